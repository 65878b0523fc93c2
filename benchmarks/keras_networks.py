"""The same Keras network through TFLite and Vela, and through Tosaic and Vela: cycles and SRAM.

Keras builds a network for TensorFlow or for PyTorch. The one is converted to TFLite in int8, in an
interpreter that has TensorFlow (``--tensorflow``); the other is compiled here, where keras must be
installed, as an nn.Module that nobody wrote for PyTorch. The same Vela compiles both with the same
configuration, and its own estimate is what the table shows. Inputs and outputs are int8.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Beside this file lies one with the name of Vela's package.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT / "benchmarks"]
sys.path.append(str(ROOT / "src"))
TARGETS = ("ethos-u55-128", "ethos-u85-256")
SIDE = 128  # pixels


def _stack(x: Any, *layers: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x


def ds_cnn() -> Any:
    from keras import Input, Model, layers

    x = start = Input((49, 10, 1))
    x = _stack(x, layers.Conv2D(64, (10, 4), 2, "same"), layers.BatchNormalization(), layers.ReLU())
    for _ in range(4):
        for layer in (layers.DepthwiseConv2D(3, padding="same"), layers.Conv2D(64, 1)):
            x = _stack(x, layer, layers.BatchNormalization(), layers.ReLU())
    last = layers.Dense(12, activation="softmax")
    return Model(start, _stack(x, layers.GlobalAveragePooling2D(), last))


def resnet8() -> Any:
    from keras import Input, Model, layers

    x = start = Input((32, 32, 3))
    x = _stack(x, layers.Conv2D(16, 3, 1, "same"), layers.BatchNormalization(), layers.ReLU())
    for width, stride in ((16, 1), (32, 2), (64, 2)):
        y = _stack(
            x, layers.Conv2D(width, 3, stride, "same"), layers.BatchNormalization(), layers.ReLU(),
            layers.Conv2D(width, 3, 1, "same"), layers.BatchNormalization(),
        )  # fmt: skip
        x = x if stride == 1 else layers.Conv2D(width, 1, stride, "same")(x)
        x = layers.ReLU()(layers.Add()([x, y]))
    last = layers.Dense(10, activation="softmax")
    return Model(start, _stack(x, layers.GlobalAveragePooling2D(), last))


def tcn() -> Any:
    from keras import Input, Model, layers

    x = start = Input((128, 16))
    for gap in (1, 2, 4, 8):
        made = [
            layers.Conv1D(32, 3, padding="causal", dilation_rate=gap, activation="relu")
            for _ in range(2)
        ]
        x = layers.Add()([layers.Conv1D(32, 1)(x) if gap == 1 else x, _stack(x, *made)])
    last = layers.Dense(6, activation="softmax")
    return Model(start, _stack(x, layers.GlobalAveragePooling1D(), last))


def unet() -> Any:
    from keras import Input, Model, layers

    x = start = Input((96, 96, 3))
    skips = []
    for width in (16, 32, 64):
        x = layers.Conv2D(width, 3, 1, "same", activation="relu")(x)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    for width, skip in zip((64, 32, 16), skips[::-1]):
        x = layers.Concatenate()([layers.Conv2DTranspose(width, 2, 2)(x), skip])
        x = layers.Conv2D(width, 3, 1, "same", activation="relu")(x)
    return Model(start, layers.Conv2D(2, 1)(x))


def of_keras(name: str, **options: Any) -> Callable[[], Any]:
    def build() -> Any:
        from keras import applications

        make = getattr(applications, name)
        return make(input_shape=(SIDE, SIDE, 3), weights=None, classes=100, **options)

    return build


NETWORKS: dict[str, Callable[[], Any]] = {
    "ds_cnn": ds_cnn, "resnet8": resnet8, "tcn": tcn, "unet": unet,
    "mobilenet": of_keras("MobileNet"), "mobilenet_v2": of_keras("MobileNetV2"),
    "mobilenet_v3_small": of_keras("MobileNetV3Small", include_preprocessing=False),
    "mobilenet_v3_large": of_keras("MobileNetV3Large", include_preprocessing=False),
    "efficientnet_b0": of_keras("EfficientNetB0"), "densenet121": of_keras("DenseNet121"),
}  # fmt: skip


def built(name: str) -> tuple[Any, tuple[int, ...]]:
    import keras

    keras.utils.set_random_seed(0)
    net = NETWORKS[name]()
    return net, (1, *net.inputs[0].shape[1:])


def convert(name: str, path: str) -> None:
    """The TFLite file of a network, where TensorFlow is."""
    import keras
    import numpy as np
    import tensorflow as tf

    net, shape = built(name)
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        archive = keras.export.ExportArchive()
        archive.track(net)
        given = [tf.TensorSpec(shape, tf.float32)]
        archive.add_endpoint("serve", lambda x: net(x, training=False), given)
        archive.write_out(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: (
            [random.standard_normal(shape).astype(np.float32)] for _ in range(4)
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
        Path(path).write_bytes(converter.convert())


def theirs(file: bytes, target: str) -> tuple[int, int]:
    """Vela's cycles and SRAM of a TFLite file."""
    from tosaic.targets.vela import VelaConfig, run_vela

    found = run_vela(file, VelaConfig(target), "TFLITE").performance
    return found.total_cycles, found.memories.get("Sram", 0)


def ours(name: str, target: str) -> tuple[int, int]:
    import torch

    import tosaic

    net, shape = built(name)

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> Any:
            return self.net(x, training=False)

    data = [(torch.randn(shape),) for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        made = tosaic.compile(
            Called().eval(), data[0], target=target, calibration=data, io="int8"
        )  # fmt: skip
    assert not made.report.refused, made.report.refused
    (found,) = (delegate.result.performance for delegate in made.delegates)
    return found.total_cycles, found.memories.get("Sram", 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--tensorflow", help="an interpreter that has TensorFlow")
    parser.add_argument("--keep", default="build/tflite", help="where TFLite files are kept")
    parser.add_argument("--convert", nargs=2, metavar=("NETWORK", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.convert:
        convert(*options.convert)
        return 0
    os.environ["KERAS_BACKEND"] = "torch"
    folder = Path(options.keep)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{'':<36}{'Tosaic':>20}{'TFLite':>22}{'ratio':>14}")
    for name in options.networks:
        file = folder / f"{name}.tflite"
        if not file.exists():
            command = [options.tensorflow or sys.executable, __file__, "--convert", name, str(file)]
            apart = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            apart |= {"KERAS_BACKEND": "tensorflow"}
            done = subprocess.run(command, env=apart, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"no TFLite file of {name}: {done.stderr[-2000:]}")
        for target in TARGETS:
            mine, other = ours(name, target), theirs(file.read_bytes(), target)
            text = "".join(f"{c / 1e6:>12.3f}{s / 1024:>9.0f}" for c, s in (mine, other))
            ratios = "".join(f"{a / b:>7.2f}" for a, b in zip(mine, other))
            print(f"{name:<20}{target:<15}{text}{ratios}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
