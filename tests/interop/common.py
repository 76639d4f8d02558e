"""What the checks of this folder share. Each check is a program of its own, which scripts/interop starts with
  LOCKSTEP  the lockstep program
and in an empty folder, in which it may write. It ends with 0 if what it says in its first lines is true."""
import csv
import os
import subprocess
import textwrap

LOCKSTEP = os.environ["LOCKSTEP"]

# A model of every kind of weight: matrices, biases, and buffers of two types.
CONFIG = """
model: [{Linear: {out_features: 8}}, {BatchNorm1d: {num_features: 8}}, ReLU, {Linear: {out_features: 3}}]
criterion: CrossEntropyLoss
optimizer: {_target_: Adam, lr: 0.01}
loaders:
  train: {dataset: {_target_: Noise, samples: 64, shape: 4, classes: 3, seed: 1}, batch_size: 8, shuffle: true}
  valid: {dataset: {_target_: Noise, samples: 32, shape: 4, classes: 3, seed: 2}, batch_size: 8}
valid_loader: valid
callbacks: [{AccuracyCallback: {num_classes: 3}}, {ConfusionMatrixCallback: {num_classes: 3}}]
num_epochs: 2
"""


def torch_model():
    """The same model in PyTorch."""
    import torch

    nn = torch.nn
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def lockstep(*words, env=None, expect=0):
    """Runs the command, and returns what it prints."""
    ran = subprocess.run([LOCKSTEP, *words], capture_output=True, text=True, timeout=240,
                         env={**os.environ, **(env or {})})
    assert ran.returncode == expect, (
        f"lockstep {' '.join(words)}: ended with {ran.returncode}, expected {expect}\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout


def train(logdir, *overrides, config=CONFIG, env=None, expect=0):
    """Trains a small model into a folder."""
    with open("config.yml", "w") as file:
        file.write(textwrap.dedent(config))
    return lockstep("run", "-C", "config.yml", *overrides, "--logdir", logdir, env=env, expect=expect)


def checkpoint(logdir, name="last"):
    import torch

    return torch.load(f"{logdir}/checkpoints/{name}.pth")


def metrics_of(logdir, loader):
    """The metrics of a loader that the run has in its CSV file: by name, a list of (epoch, value)."""
    found = {}
    with open(f"{logdir}/logs/{loader}.csv") as file:
        for row in csv.DictReader(file):
            step = int(row.pop("step"))
            for name, value in row.items():
                if value:
                    found.setdefault(name, []).append((step, float(value)))
    assert found, f"{logdir}/logs/{loader}.csv has no metrics"
    return found


def weights_of(output):
    """The hash of the weights, from the last lines of a run."""
    return output.split("weights ")[1].split()[0]
