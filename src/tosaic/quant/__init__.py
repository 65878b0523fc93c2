"""Quantization: torchao's PT2E flow with a Quantizer read off the registry of rules."""

import logging

# torchao reports on import which GPU kernels it could not load: nothing a user here needs.
_LOGGERS = [logging.getLogger(name) for name in ("torchao", "torch.utils._pytree")]
_LEVELS = [logger.level for logger in _LOGGERS]
for _logger in _LOGGERS:
    _logger.setLevel(logging.ERROR)
try:
    from tosaic.quant.flow import quantize
    from tosaic.quant.quantizer import TosaicQuantizer
    from tosaic.quant.schemes import Scheme
    from tosaic.quant.selection import Schemes
finally:
    for _logger, _level in zip(_LOGGERS, _LEVELS):
        _logger.setLevel(_level)

__all__ = ["Scheme", "Schemes", "TosaicQuantizer", "quantize"]
