"""A checkpoint in which Python has changed weights and optimizer can be resumed, as docs/guide/checkpoints.md says."""
import shutil

import numpy
import torch
from common import checkpoint, lockstep, train

# Every step is made with the same batch, so that Python can make the same steps.
CONFIG = """
model: [{Linear: {out_features: 2}}]
criterion: MSELoss
optimizer: {_target_: Adam, lr: 0.01}
loaders: {train: {dataset: {_target_: ArrayDataset, features: x.npy, targets: y.npy}, batch_size: 16}}
num_epochs: 3
"""
rng = numpy.random.default_rng(1)
x = rng.normal(size=(16, 4)).astype("float32")
y = rng.normal(size=(16, 2)).astype("float32")
numpy.save("x.npy", x)
numpy.save("y.npy", y)

train("run", config=CONFIG)
model = torch.nn.Sequential(torch.nn.Linear(4, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.5)


def steps(count):
    for _ in range(count):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(torch.tensor(x)), torch.tensor(y)).backward()
        optimizer.step()


# The recipe of the guide.
file = torch.load("run/checkpoints/last.pth")
model.load_state_dict(file["model_state_dict"])
optimizer.load_state_dict(file["optimizer_state_dict"])
steps(2)
file["model_state_dict"] = model.state_dict()
file["optimizer_state_dict"] = optimizer.state_dict()
del file["checksum"]
torch.save(file, "python.pth")


def check(logdir):
    """The run has made the steps that Python makes."""
    found = checkpoint(logdir)
    for name, expected in model.state_dict().items():
        torch.testing.assert_close(found["model_state_dict"][name], expected, rtol=1e-5, atol=1e-6)
    for number, kinds in optimizer.state_dict()["state"].items():
        for kind, expected in kinds.items():
            torch.testing.assert_close(found["optimizer_state_dict"]["state"][number][kind],
                                       torch.as_tensor(expected, dtype=torch.float32), rtol=1e-5, atol=1e-6)


# The run was saved after its third epoch, and goes on with the fourth: 3 steps, 2 of Python, 3 more.
steps(3)
lockstep("run", "-C", "config.yml", "--resume", "python.pth", "--num-epochs", "6", "--logdir", "by_path")
check("by_path")
shutil.copy("python.pth", "run/checkpoints/python.pth")
lockstep("run", "-C", "config.yml", "--resume", "python", "--num-epochs", "6", "--logdir", "run")
check("run")
print("Adam: weights, moments and counts go on from Python's, by path and by name")
