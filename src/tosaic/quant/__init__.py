"""Quantization: the PT2E flow with a Quantizer read off the registry of rules."""

from tosaic.quant.flow import quantize
from tosaic.quant.quantizer import TosaicQuantizer
from tosaic.quant.schemes import Scheme
from tosaic.quant.selection import Schemes

__all__ = ["Scheme", "Schemes", "TosaicQuantizer", "quantize"]
