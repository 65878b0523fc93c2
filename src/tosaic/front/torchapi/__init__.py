"""Every private or version-dependent call into torch that the importer makes."""

# ruff: noqa: F401

from tosaic.front.torchapi.forwards import in_order
from tosaic.front.torchapi.fourier import FFT2D
from tosaic.front.torchapi.mx import ELEMENTS, MX_CONV2D, MX_LINEAR, as_block_layers
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
    sweep,
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
    function_transforms,
    functional,
    graphs_of,
    load,
    module_of,
    quiet,
    reshape_views,
    with_own_operators,
    written,
)
from tosaic.front.torchapi.scan import SCAN, ScanCall, is_scan, scan_of
from tosaic.front.torchapi.standin import (
    computed_beside,
    give_fakes,
    is_stand_in,
    new_call,
    stand_in_beside,
)
from tosaic.front.torchapi.symbols import (
    FreeSize,
    FreeSizes,
    automatic_sizes,
    free_sizes,
    stated_sizes,
)
from tosaic.front.torchapi.trees import (
    arguments_of,
    flatten,
    flatten_as,
    is_written_as_text,
    keys_of,
    names_of,
    positional_of,
    structure,
    unflatten,
    written_structure,
)
