"""onnxruntime runs what `lockstep export` writes, for several opsets and sizes of a batch, with our outputs."""
import os

import numpy
import onnx
import onnxruntime
from common import lockstep, train

OPSETS = (13, 17, 21)  # the oldest, the default and the newest
SAMPLES, TOKENS, VOCABULARY, CLASSES = 12, 6, 7, 3
random = numpy.random.default_rng(1)

VECTORS = {"features": random.normal(size=(SAMPLES, 4)).astype("float32")}
SEQUENCES = {"features": random.normal(size=(SAMPLES, TOKENS, 4)).astype("float32")}
IMAGES = {"features": random.normal(size=(SAMPLES, 3, 8, 8)).astype("float32")}
TEXTS = {"features": random.integers(0, VOCABULARY, (SAMPLES, TOKENS))}
PADDED = {"tokens": random.integers(0, VOCABULARY, (SAMPLES, TOKENS)),
          "lengths": random.integers(1, TOKENS + 1, SAMPLES)}
ONE_CLASS = random.integers(0, CLASSES, SAMPLES)
CLASS_PER_TOKEN = random.integers(0, CLASSES, (SAMPLES, TOKENS))
NEXT_TOKENS = random.integers(0, VOCABULARY, (SAMPLES, TOKENS))
PIXELS = random.normal(size=(SAMPLES, 2, 8, 8)).astype("float32")

# The model, its inputs, and the targets.
MODELS = {
    "batch norm": ("[{Linear: {out_features: 8}}, {BatchNorm1d: {num_features: 8}}, ReLU, {Linear: {out_features: 3}}]",
                   VECTORS, ONE_CLASS),
    "convolutions": ("[{Conv2d: {in_channels: 3, out_channels: 4, kernel_size: 3, padding: 1}}, "
                     "{BatchNorm2d: {num_features: 4}}, ReLU, {MaxPool2d: {kernel_size: 2}}, {Dropout: {p: 0.5}}, "
                     "Flatten, {Linear: {out_features: 3}}]", IMAGES, ONE_CLASS),
    "group norm, layer norm": ("[{Conv2d: {in_channels: 3, out_channels: 4, kernel_size: 3, padding: 1}}, "
                               "{GroupNorm: {num_groups: 2}}, GELU, Flatten, LayerNorm, {Linear: {out_features: 3}}]",
                               IMAGES, ONE_CLASS),
    "UNet": ("{UNet: {out: 2, width: 8, depth: 2, norm: group}}", IMAGES, PIXELS),
    "LSTM": ("{LSTMTagger: {vocabulary: 7, classes: 3, embedding: 4, hidden: 4, bidirectional: true}}",
             PADDED, CLASS_PER_TOKEN),
    "LSTM of vectors": ("{LSTMClassifier: {features: 4, classes: 3, hidden: 4}}", SEQUENCES, ONE_CLASS),
    "GRU": ("{GRUClassifier: {vocabulary: 7, classes: 3, hidden: 4, layers: 2}}", TEXTS, ONE_CLASS),
    "transformer": ("{TransformerClassifier: {vocabulary: 7, classes: 3, width: 8, heads: 2}}", PADDED, ONE_CLASS),
    "GPT": ("{GPT: {vocabulary: 7, width: 8, heads: 2, layers: 1}}", TEXTS, NEXT_TOKENS),
}


def config(model, inputs, targets):
    arrays = {**inputs, "targets": targets}
    for name, array in arrays.items():
        numpy.save(f"{name}.npy", array)
    keys = ", ".join(f"{name}: {os.path.abspath(name)}.npy" for name in arrays)
    runner = f"runner: {{SupervisedRunner: {{input_keys: [{', '.join(inputs)}], target_key: targets}}}}"
    return f"""
model: {model}
criterion: {'MSELoss' if targets.dtype == numpy.float32 else 'CrossEntropyLoss'}
optimizer: {{_target_: Adam, lr: 0.01}}
{runner if len(inputs) > 1 else ''}
loaders: {{train: {{dataset: {{_target_: ArrayDataset, keys: {{{keys}}}}}, batch_size: 4}}}}
num_epochs: 1
"""


def check_file(path, inputs, expected, title):
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert {port.name for port in session.get_inputs()} == set(inputs), title
    for port in [*session.get_inputs(), *session.get_outputs()]:
        assert port.shape[0] == "batch", (title, port.name, port.shape)
    for rows in (slice(0, 1), slice(1, 6)):
        found = session.run(None, {name: array[rows] for name, array in inputs.items()})[0]
        numpy.testing.assert_allclose(found, expected[rows], rtol=1e-4, atol=1e-5, err_msg=title)


for name, (model, inputs, targets) in MODELS.items():
    train("run", config=config(model, inputs, targets))
    lockstep("predict", "run", "--checkpoint", "last", "--output", "ours.npy")
    expected = numpy.load("ours.npy")
    assert len(expected) == SAMPLES, (name, expected.shape)
    for opset in OPSETS:
        lockstep("export", "run", "--checkpoint", "last", "--opset", str(opset), "--output", "model.onnx")
        check_file("model.onnx", inputs, expected, f"{name}, opset {opset}")
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}: {len(MODELS)} models, "
      f"opsets {', '.join(map(str, OPSETS))}, batches of 1 and 5")
