"""Every private or version-dependent call into torch that the importer makes."""

from tosaic.front.torchapi.forwards import in_order
from tosaic.front.torchapi.fourier import FFT2D
from tosaic.front.torchapi.nodes import (
    argument_names,
    attribute,
    drop_unread,
    known_shape,
    known_size,
    likely_shape,
    likely_size,
    location,
    modules_of,
    same_shape,
)
from tosaic.front.torchapi.operators import (
    bound_arguments,
    by_position,
    canonicalize,
    computed,
    evaluate,
    is_canonical,
    is_number_argument,
    is_pointwise,
    is_region_call,
    is_repeatable,
    overload_of,
    target_name,
    written_positions,
)
from tosaic.front.torchapi.overloads import (
    WRITTEN_AS,
    Effects,
    aliases,
    canonical_name,
    effects,
)
from tosaic.front.torchapi.parts import decomposed
from tosaic.front.torchapi.pickling import dumps, loads
from tosaic.front.torchapi.programs import (
    captured,
    copied,
    copied_program,
    export,
    functional,
    graphs_of,
    load,
    module_of,
    quiet,
    reshape_views,
    with_own_operators,
    written,
)
from tosaic.front.torchapi.standin import (
    computed_beside,
    give_fakes,
    is_stand_in,
    new_call,
    stand_in_beside,
)
from tosaic.front.torchapi.trees import (
    arguments_of,
    flatten,
    flatten_as,
    is_written_as_text,
    names_of,
    positional_of,
    structure,
    unflatten,
    written_structure,
)

__all__ = [
    "FFT2D",
    "WRITTEN_AS", "Effects", "aliases", "argument_names", "arguments_of", "attribute",
    "bound_arguments", "by_position",
    "canonical_name", "canonicalize", "captured", "computed",
    "computed_beside", "copied", "copied_program", "decomposed",
    "drop_unread", "dumps", "effects", "evaluate", "export", "flatten", "flatten_as",
    "functional",
    "give_fakes", "graphs_of", "in_order", "is_canonical", "is_number_argument", "is_pointwise",
    "is_region_call", "is_repeatable", "is_stand_in", "is_written_as_text", "known_shape",
    "known_size", "likely_shape", "likely_size", "load", "loads",
    "location", "module_of", "modules_of", "names_of", "new_call", "overload_of", "positional_of",
    "quiet", "reshape_views", "same_shape", "stand_in_beside",
    "structure", "target_name", "unflatten", "with_own_operators", "written",
    "written_positions",
    "written_structure",
]  # fmt: skip
