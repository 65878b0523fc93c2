"""BERT (Devlin et al. 2019), small, with random weights: pairs of sentences, token by token."""

import torch
from torch import Tensor, nn

from .tokens import enliven

WORDS, LENGTH = 1000, 24


class Bert(nn.Module):
    def __init__(self, width: int = 64, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.bert = BertModel(
            BertConfig(
                vocab_size=WORDS, hidden_size=width, num_hidden_layers=depth,
                num_attention_heads=heads, intermediate_size=4 * width,
                max_position_embeddings=2 * LENGTH,
            )
        )  # fmt: skip

    def forward(self, words: Tensor, is_word: Tensor, sentence: Tensor) -> tuple[Tensor, Tensor]:
        """Each token, and the pair as a whole."""
        made = self.bert(words, is_word, sentence)
        return made.last_hidden_state, made.pooler_output


def bert() -> nn.Module:
    return enliven(Bert())


def pairs(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random words of two sentences of random lengths."""
    make = torch.Generator().manual_seed(seed)
    words = torch.randint(WORDS, (count, LENGTH), generator=make)
    ends = torch.randint(LENGTH // 2, LENGTH + 1, (count, 1), generator=make)
    turns = torch.randint(2, LENGTH // 2, (count, 1), generator=make)
    place = torch.arange(LENGTH)
    is_word = (place < ends).long()
    return words * is_word, is_word, (place >= turns).long() * is_word
