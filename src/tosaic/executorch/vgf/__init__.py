"""What users of ExecuTorch's VGF backend run by its module: ``python -m ….vgf.check_env``."""
