"""What networks are made of, by the operators that their programs call."""

from torch.export import ExportedProgram
from torch.fx import GraphModule

# Words in the names of operators. Norms of batches and of weights are parts of convolutions.
_WORDS = {
    "attention": ("attention",),
    "recurrence": ("lstm", "gru", "rnn"),
    "normalisation": ("_norm",),
    "softmax": ("softmax",),
}
_OTHERS = ("batch_norm", "weight_norm")


def parts(program: ExportedProgram) -> frozenset[str]:
    """What a program has of attention, recurrence, normalisation and softmax, in any branch."""
    modules = [m for m in program.graph_module.modules() if isinstance(m, GraphModule)]
    nodes = [node for m in modules for node in m.graph.nodes if node.op == "call_function"]
    names = {str(node.target) for node in nodes}
    named = {name for name in names if not any(other in name for other in _OTHERS)}
    return frozenset(
        part for part, words in _WORDS.items()
        if any(word in name for word in words for name in named)
    )  # fmt: skip
