"""The path of ExecuTorch's VGF backend: its names, and ``python -m ….vgf.check_env``."""

import sys

from tosaic.executorch.paths import give_names

give_names(sys.modules[__name__])
