"""Optimizers of PyTorch take the state of ours, and make the step that ours makes."""
import numpy
import torch
from common import checkpoint, train

# Both train on one batch, so that the step of Python can be made with the same gradient.
CONFIG = """
model: [{Linear: {out_features: 2}}]
criterion: MSELoss
optimizer: %s
loaders: {train: {dataset: {_target_: ArrayDataset, features: x.npy, targets: y.npy}, batch_size: 16}}
num_epochs: %d
"""
STEPS = 6  # RAdam does something else in its first five steps

# All optimizers that have PyTorch's layout (docs/guide/checkpoints.md), with options that are not the defaults.
OPTIMIZERS = {
    "SGD": "lr: 0.1, momentum: 0.9",
    "Adam": "lr: 0.01",
    "AdamW": "lr: 0.01, weight_decay: 0.1",
    "RMSprop": "lr: 0.01, momentum: 0.5",
    "Adagrad": "lr: 0.05",
    "RAdam": "lr: 0.02",
    "NAdam": "lr: 0.02",
    "Adamax": "lr: 0.02",
    "Adadelta": "lr: 0.5",
}

rng = numpy.random.default_rng(1)
x = rng.normal(size=(16, 4)).astype("float32")
y = rng.normal(size=(16, 2)).astype("float32")
numpy.save("x.npy", x)
numpy.save("y.npy", y)


def check(name, options):
    ours = f"{{_target_: {name}, {options}}}"
    train("run", config=CONFIG % (ours, STEPS))
    state = checkpoint("run")
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    model.load_state_dict(state["model_state_dict"])
    # load_state_dict must replace this learning rate.
    made = getattr(torch.optim, name)(model.parameters(), lr=0.7)
    made.load_state_dict(state["optimizer_state_dict"])
    torch.nn.functional.mse_loss(model(torch.tensor(x)), torch.tensor(y)).backward()
    made.step()
    train("longer", config=CONFIG % (ours, STEPS + 1))
    for weight, expected in checkpoint("longer")["model_state_dict"].items():
        torch.testing.assert_close(model.state_dict()[weight], expected, rtol=1e-5, atol=1e-6,
                                   msg=lambda text: f"{name}: {weight}: {text}")


for name, options in OPTIMIZERS.items():
    check(name, options)
print(f"{', '.join(OPTIMIZERS)}: the step after load_state_dict is that of the longer run")
