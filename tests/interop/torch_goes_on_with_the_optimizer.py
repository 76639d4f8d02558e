"""Optimizers of PyTorch take the state of ours, and make the step that ours makes."""
import torch
from common import checkpoint, train

# Both train on one batch, so that the step of Python can be made with the same gradient.
CONFIG = """
model: [{Linear: {out_features: 2}}]
criterion: MSELoss
optimizer: %s
loaders: {train: {dataset: {_target_: ArrayDataset, features: x.npy, targets: y.npy}, batch_size: 16}}
num_epochs: 3
"""
import numpy

rng = numpy.random.default_rng(1)
x = rng.normal(size=(16, 4)).astype("float32")
y = rng.normal(size=(16, 2)).astype("float32")
numpy.save("x.npy", x)
numpy.save("y.npy", y)


def check(ours, optimizer):
    train("run", config=CONFIG % ours)
    state = checkpoint("run")
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    model.load_state_dict(state["model_state_dict"])
    made = optimizer(model.parameters())
    made.load_state_dict(state["optimizer_state_dict"])
    torch.nn.functional.mse_loss(model(torch.tensor(x)), torch.tensor(y)).backward()
    made.step()
    train("longer", config=(CONFIG % ours).replace("num_epochs: 3", "num_epochs: 4"))
    for name, expected in checkpoint("longer")["model_state_dict"].items():
        torch.testing.assert_close(model.state_dict()[name], expected, rtol=1e-5, atol=1e-6)


check("{_target_: Adam, lr: 0.01}", lambda p: torch.optim.Adam(p, lr=0.5))
check("{_target_: AdamW, lr: 0.01, weight_decay: 0.1}", lambda p: torch.optim.AdamW(p, lr=0.5))
check("{_target_: SGD, lr: 0.1, momentum: 0.9}", lambda p: torch.optim.SGD(p, lr=0.5))
print("Adam, AdamW, SGD: the step after load_state_dict is that of the longer run")
