"""Quantization: torchao's PT2E flow with a Quantizer read off the registry of rules."""

from tosaic.quant.quantizer import TosaicQuantizer, quantize

__all__ = ["TosaicQuantizer", "quantize"]
