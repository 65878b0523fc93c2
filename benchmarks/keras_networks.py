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
from functools import partial
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


def unet(bilinear: bool = False) -> Any:
    from keras import Input, Model, layers

    x = start = Input((96, 96, 3))
    skips = []
    for width in (16, 32, 64):
        x = layers.Conv2D(width, 3, 1, "same", activation="relu")(x)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    for width, skip in zip((64, 32, 16), skips[::-1]):
        larger = layers.UpSampling2D(interpolation="bilinear")
        x = (larger if bilinear else layers.Conv2DTranspose(width, 2, 2))(x)
        x = layers.Conv2D(width, 3, 1, "same", activation="relu")(layers.Concatenate()([x, skip]))
    return Model(start, layers.Conv2D(2, 1, activation="sigmoid" if bilinear else None)(x))


def autoencoder() -> Any:
    from keras import Input, Model, layers

    x = start = Input((640,))
    for width in (128,) * 4 + (8,) + (128,) * 4:
        x = _stack(x, layers.Dense(width), layers.BatchNormalization(), layers.ReLU())
    return Model(start, layers.Dense(640)(x))


def image_autoencoder() -> Any:
    from keras import Input, Model, layers

    x = start = Input((64, 64, 1))
    for width in (16, 32, 64):
        x = layers.Conv2D(width, 3, 2, "same", activation="relu")(x)
    for width in (32, 16, 8):
        x = layers.Conv2DTranspose(width, 3, 2, "same", activation="relu")(x)
    return Model(start, layers.Conv2D(1, 3, 1, "same", activation="sigmoid")(x))


def wake_word() -> Any:
    """Pictures of sound, as in microcontrollers' first examples."""
    from keras import Input, Model, layers

    x = start = Input((49, 40, 1))
    x = layers.DepthwiseConv2D((10, 8), 2, "same", depth_multiplier=8, activation="relu")(x)
    return Model(start, _stack(x, layers.Flatten(), layers.Dense(4, activation="softmax")))


def activity() -> Any:
    from keras import Input, Model, layers

    x = start = Input((128, 9))
    for width in (32, 64):
        x = layers.Conv1D(width, 5, padding="same", activation="relu")(x)
        x = layers.MaxPooling1D(2)(x)
    last = layers.Dense(64, activation="relu"), layers.Dense(6, activation="softmax")
    return Model(start, _stack(x, layers.Flatten(), *last))


def residual_1d() -> Any:
    from keras import Input, Model, layers

    x = start = Input((256, 1))
    x = layers.Conv1D(16, 7, 2, "same", activation="relu")(x)
    for width, stride in ((16, 1), (32, 2), (64, 2)):
        y = _stack(
            x, layers.Conv1D(width, 3, stride, "same"), layers.BatchNormalization(), layers.ReLU(),
            layers.Conv1D(width, 3, 1, "same"), layers.BatchNormalization(),
        )  # fmt: skip
        x = x if stride == 1 else layers.Conv1D(width, 1, stride, "same")(x)
        x = layers.ReLU()(layers.Add()([x, y]))
    last = layers.Dense(5, activation="softmax")
    return Model(start, _stack(x, layers.GlobalAveragePooling1D(), last))


def recurrent(name: str) -> Callable[[], Any]:
    def build() -> Any:
        from keras import Input, Model, layers

        x = start = Input((16, 20))
        x = getattr(layers, name)(32, unroll=True)(x)
        return Model(start, layers.Dense(5, activation="softmax")(x))

    return build


def crnn() -> Any:
    """Letters of a line: columns of an image are moments."""
    from keras import Input, Model, layers

    x = start = Input((32, 96, 1))
    for width, pool in ((16, (2, 2)), (32, (2, 2)), (32, (4, 1))):
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D(pool)(x)
    x = _stack(x, layers.Permute((2, 1, 3)), layers.Reshape((24, 64)))
    x = layers.Bidirectional(layers.LSTM(24, return_sequences=True, unroll=True))(x)
    return Model(start, layers.Dense(20, activation="softmax")(x))


def attention() -> Any:
    from keras import Input, Model, layers

    x = start = Input((64, 96))
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 24)(y, y)])
        y = _stack(x, layers.LayerNormalization(), layers.Dense(192, activation="gelu"))
        x = layers.Add()([x, layers.Dense(96)(y)])
    last = layers.Dense(10, activation="softmax")
    return Model(start, _stack(x, layers.GlobalAveragePooling1D(), last))


def yolo() -> Any:
    from keras import Input, Model, layers

    def conv(x: Any, width: int, size: int = 3, stride: int = 1) -> Any:
        made = layers.Conv2D(width, size, stride, "same", use_bias=False)
        return _stack(x, made, layers.BatchNormalization(), layers.LeakyReLU(negative_slope=0.1))

    x = start = Input((SIDE, SIDE, 3))
    kept = []
    for width in (16, 32, 64, 128):
        x = conv(conv(x, width, 3, 2), width)
        kept.append(x)
    x = conv(x, 64, 1)
    large = layers.Conv2D(24, 1)(conv(x, 128))
    x = layers.UpSampling2D()(conv(x, 32, 1))
    x = conv(layers.Concatenate()([x, kept[2]]), 64)
    return Model(start, [large, layers.Conv2D(24, 1)(x)])


def fomo() -> Any:
    """Where things are, of a grid: the start of a MobileNet and a layer for each place."""
    from keras import Model, applications, layers

    net = applications.MobileNetV2((96, 96, 3), alpha=0.35, include_top=False, weights=None)
    x = layers.Conv2D(32, 1, activation="relu")(net.get_layer("block_6_expand_relu").output)
    return Model(net.input, layers.Softmax()(layers.Conv2D(3, 1)(x)))


def of_keras(name: str, side: int = SIDE, planes: int = 3, **options: Any) -> Callable[[], Any]:
    def build() -> Any:
        from keras import applications

        make = getattr(applications, name)
        return make(input_shape=(side, side, planes), weights=None, classes=100, **options)

    return build


NETWORKS: dict[str, Callable[[], Any]] = {
    "ds_cnn": ds_cnn, "resnet8": resnet8, "tcn": tcn, "unet": unet,
    "unet_bilinear": partial(unet, True), "autoencoder": autoencoder,
    "image_autoencoder": image_autoencoder, "wake_word": wake_word, "activity": activity,
    "residual_1d": residual_1d, "lstm": recurrent("LSTM"), "gru": recurrent("GRU"), "crnn": crnn,
    "attention": attention, "yolo": yolo, "fomo": fomo,
    "person_detection": of_keras("MobileNet", 96, 1, alpha=0.25),
    "mobilenet": of_keras("MobileNet"), "mobilenet_v2": of_keras("MobileNetV2"),
    "mobilenet_v3_small": of_keras("MobileNetV3Small", include_preprocessing=False),
    "mobilenet_v3_large": of_keras("MobileNetV3Large", include_preprocessing=False),
    "efficientnet_b0": of_keras("EfficientNetB0"), "densenet121": of_keras("DenseNet121"),
    "efficientnet_v2_b0": of_keras("EfficientNetV2B0", include_preprocessing=False),
    "resnet50": of_keras("ResNet50"),
    "resnet50_v2": of_keras("ResNet50V2"), "xception": of_keras("Xception"),
    "inception_v3": of_keras("InceptionV3"),
    "convnext_tiny": of_keras("ConvNeXtTiny", 64, include_preprocessing=False),
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
    from tosaic.targets.ethosu.vela import VelaConfig, run_vela

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
