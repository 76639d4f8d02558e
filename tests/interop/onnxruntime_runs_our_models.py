"""onnxruntime runs what `lockstep export --format onnx` writes, for batches of any size, with our outputs."""
import numpy
import onnx
import onnxruntime
import torch
from common import checkpoint, lockstep, torch_model, train

CONVOLUTIONS = """
model:
  - {Conv2d: {in_channels: 3, out_channels: 4, kernel_size: 3, padding: 1}}
  - {BatchNorm2d: {num_features: 4}}
  - ReLU
  - {MaxPool2d: {kernel_size: 2}}
  - {Dropout: {p: 0.5}}
  - Flatten
  - {Linear: {out_features: 3}}
criterion: CrossEntropyLoss
optimizer: {_target_: SGD, lr: 0.1}
loaders: {train: {dataset: {_target_: Noise, samples: 32, shape: [3, 8, 8], classes: 3, seed: 1}, batch_size: 8}}
num_epochs: 1
"""


def run(path, batch):
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: batch})[0]


def check(model, weights, shape):
    lockstep("export", "run", "--checkpoint", "last", "--format", "onnx", "--output", "model.onnx")
    model.load_state_dict(weights)
    model.eval()
    for samples in (1, 5):
        batch = numpy.random.default_rng(samples).normal(size=(samples, *shape)).astype("float32")
        with torch.no_grad():
            expected = model(torch.tensor(batch)).numpy()
        numpy.testing.assert_allclose(run("model.onnx", batch), expected, rtol=1e-4, atol=1e-5)


train("run")
check(torch_model(), checkpoint("run")["model_state_dict"], (4,))
train("run", config=CONVOLUTIONS)
nn = torch.nn
convolutions = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 3))
check(convolutions, checkpoint("run")["model_state_dict"], (3, 8, 8))
print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}: two models, batches of 1 and 5")
