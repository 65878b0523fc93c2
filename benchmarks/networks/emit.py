"""A quantized layer list as a TOSA 1.0 graph, by Tosaic's Builder or by tosa-tools' serializer."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import tosa_serializer as ts
from numpy.typing import NDArray

from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import dtype as dtype_named

from .quantize import Layer, QuantizedNetwork, Scale

Shape = tuple[int, ...]


V = TypeVar("V")


class Writer(Protocol[V]):
    """What the emitter needs of a graph under construction."""

    def input(self, name: str, shape: Shape, dtype: str) -> V: ...
    def const(self, values: NDArray[Any], dtype: str) -> V: ...
    def emit(
        self, op: str, inputs: Sequence[V], attrs: Mapping[str, Any], shape: Shape, dtype: str
    ) -> V: ...


class BuilderWriter:
    """Tosaic's own graph; the shapes the emitter expects are checked against the inferred ones."""

    def __init__(self) -> None:
        self.builder = Builder("TOSA-1.0+INT")

    def input(self, name: str, shape: Shape, dtype: str) -> Value:
        return self.builder.input(dtype, shape, name)

    def const(self, values: NDArray[Any], dtype: str) -> Value:
        return self.builder.const(values, dtype)

    def emit(
        self, op: str, inputs: Sequence[Value], attrs: Mapping[str, Any], shape: Shape, dtype: str
    ) -> Value:
        wanted = dtype_named(dtype) if op == "RESCALE" else None
        value: Value = self.builder.op(op, *inputs, out=wanted, **attrs)
        if value.shape != shape:
            raise ValueError(f"{op} gives {value.type}, expected the shape {shape}")
        return value

    def finish(self, output: Value) -> Graph:
        output.name = "logits"
        self.builder.output(output)
        return self.builder.graph


class SerializerWriter:
    """The graph of tosa-tools' own serializer."""

    ATTRIBUTES: ClassVar[dict[str, str]] = {
        "ADD": "AddAttribute",
        "AVG_POOL2D": "AvgPool2dAttribute",
        "CONV2D": "Conv2dAttribute",
        "DEPTHWISE_CONV2D": "DepthwiseConv2dAttribute",
        "MAX_POOL2D": "MaxPool2dAttribute",
        "RESCALE": "RescaleAttribute",
        "RESHAPE": "ReshapeAttribute",
        "SLICE": "SliceAttribute",
    }
    TYPES: ClassVar[dict[str, Any]] = {
        "i8": ts.DType.INT8,
        "i32": ts.DType.INT32,
        "shape": ts.DType.SHAPE,
    }
    ENUMS: ClassVar[dict[str, Any]] = {
        "nan_mode": ts.NanPropagationMode,
        "rounding_mode": ts.RoundingMode,
    }

    def __init__(self) -> None:
        self.graph = ts.TosaSerializer("", ts.ConstMode.EMBED, 1, 0, 0, False)
        self.block = self.graph.currRegion.currBasicBlock
        self.count = 0

    def _name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def input(self, name: str, shape: Shape, dtype: str) -> str:
        self.graph.addInputTensor(ts.TosaSerializerTensor(name, list(shape), self.TYPES[dtype]))
        return name

    def const(self, values: NDArray[Any], dtype: str) -> str:
        name = self._name()
        self.graph.addConst(list(values.shape), self.TYPES[dtype], values, name)
        return name

    def emit(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], shape: Shape, dtype: str
    ) -> str:
        name = self._name()
        self.block.addTensor(name, list(shape), self.TYPES[dtype])
        attribute = ts.TosaSerializerAttribute()
        getattr(attribute, self.ATTRIBUTES[op])(**{k: self.field(k, v) for k, v in attrs.items()})
        self.graph.addOperator(getattr(ts.Op, op), list(inputs), [name], attribute)
        return name

    def field(self, name: str, value: Any) -> Any:
        if name == "acc_type":
            return self.TYPES[value]
        return getattr(self.ENUMS[name], value) if name in self.ENUMS else value

    def finish(self, output: str) -> bytes:
        self.block.addOutput(output)
        return bytes(self.graph.serialize())


class Emitter(Generic[V]):
    """Layers to operators, for a fixed batch."""

    def __init__(self, writer: Writer[V], net: QuantizedNetwork, batch: int) -> None:
        self.to = writer
        self.batch = batch
        shape = (batch, *net.in_shape)
        self.values: list[tuple[V, Shape]] = [(writer.input("image", shape, "i8"), shape)]

    def zero_point(self, value: int, dtype: str = "i8") -> V:
        return self.to.const(np.array([value], np.int8 if dtype == "i8" else np.int32), dtype)

    def rescale(
        self, x: V, shape: Shape, scale: Scale, types: tuple[str, str], zp: tuple[int, int]
    ) -> V:
        operands = [
            x,
            self.to.const(scale.multiplier, "i32"),
            self.to.const(scale.shift, "i8"),
            self.zero_point(zp[0], types[0]),
            self.zero_point(zp[1], types[1]),
        ]
        attrs = {
            "scale32": True,
            "rounding_mode": "SINGLE_ROUND",
            "per_channel": len(scale.multiplier) > 1,
            "input_unsigned": False,
            "output_unsigned": False,
        }
        return self.to.emit("RESCALE", operands, attrs, shape, types[1])

    def cut(self, x: V, shape: Shape, pad: Sequence[int]) -> tuple[V, list[int]]:
        """Negative padding as a SLICE: rows and columns that no window reads."""
        if min(pad) >= 0:
            return x, list(pad)
        size = (shape[0], shape[1] + min(pad[1], 0), shape[2] + min(pad[3], 0), shape[3])
        start = self.to.const(np.zeros(4, np.int64), "shape")
        extent = self.to.const(np.array(size, np.int64), "shape")
        return self.to.emit("SLICE", [x, start, extent], {}, size, "i8"), [max(p, 0) for p in pad]

    def layer(self, layer: Layer) -> None:
        shape = (self.batch, *layer.out_shape)
        if layer.kind == "add":
            result = self.add(layer, shape)
        else:
            x, source = self.values[layer.inputs[0]]
            x, pad = self.cut(x, source, layer.pad)
            if layer.kind in ("conv", "depthwise"):
                result = self.conv(layer, x, pad, shape)
            else:
                result = self.pool(layer, x, pad, shape)
        self.values.append((result, shape))

    def conv(self, layer: Layer, x: V, pad: list[int], shape: Shape) -> V:
        if layer.weight is None or layer.bias is None:
            raise ValueError(f"a layer of kind {layer.kind} has no weights")
        operands = [
            x,
            self.to.const(layer.weight, "i8"),
            self.to.const(layer.bias, "i32"),
            self.zero_point(layer.in_zp[0]),
            self.zero_point(0),
        ]
        attrs = {
            "pad": pad,
            "stride": list(layer.stride),
            "dilation": [1, 1],
            "local_bound": False,
            "acc_type": "i32",
        }
        op = "CONV2D" if layer.kind == "conv" else "DEPTHWISE_CONV2D"
        accumulated = self.to.emit(op, operands, attrs, shape, "i32")
        zp = (0, layer.out_zp)
        return self.rescale(accumulated, shape, layer.rescale[0], ("i32", "i8"), zp)

    def add(self, layer: Layer, shape: Shape) -> V:
        wide = [
            self.rescale(self.values[index][0], shape, scale, ("i8", "i32"), (zp, 0))
            for index, scale, zp in zip(layer.inputs, layer.rescale[:2], layer.in_zp, strict=True)
        ]
        total = self.to.emit("ADD", wide, {}, shape, "i32")
        return self.rescale(total, shape, layer.rescale[2], ("i32", "i8"), (0, layer.out_zp))

    def pool(self, layer: Layer, x: V, pad: list[int], shape: Shape) -> V:
        attrs = {"kernel": list(layer.kernel), "stride": list(layer.stride), "pad": pad}
        if layer.kind == "max_pool":
            return self.to.emit("MAX_POOL2D", [x], attrs | {"nan_mode": "PROPAGATE"}, shape, "i8")
        operands = [x, self.zero_point(layer.in_zp[0]), self.zero_point(layer.out_zp)]
        return self.to.emit("AVG_POOL2D", operands, attrs | {"acc_type": "i32"}, shape, "i8")


def lower(writer: Writer[V], net: QuantizedNetwork, batch: int) -> V:
    """Write the whole network: int8 NHWC pictures in, int8 logits [batch, classes] out."""
    emitter = Emitter(writer, net, batch)
    for layer in net.layers:
        emitter.layer(layer)
    result, shape = emitter.values[-1]
    flat = (batch, shape[3])
    extent = writer.const(np.array(flat, np.int64), "shape")
    return writer.emit("RESHAPE", [result, extent], {}, flat, "i8")


def emit(net: QuantizedNetwork, batch: int = 1) -> bytes:
    """The `.tosa` file as tosa-tools writes it: nothing of Tosaic is in it."""
    writer = SerializerWriter()
    return writer.finish(lower(writer, net, batch))


def build(net: QuantizedNetwork, batch: int = 1) -> Graph:
    """The graph as Tosaic's Builder makes it."""
    writer = BuilderWriter()
    return writer.finish(lower(writer, net, batch))
