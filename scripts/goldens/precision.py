"""Writes tests/goldens/precision.json: two models that PyTorch trains for 50 steps on the CPU, with
autocast to bf16, and without it for comparison.

The data are those of ddp.py: integers below 256, made by a hash (all arithmetic modulo 2^32):

    mix(x):  x = (x ^ x >> 16) * 0x7feb352d;  x = (x ^ x >> 15) * 0x846ca68b;  x ^ x >> 16
    label of sample i          mix(i) % 10
    pattern of a label at p    mix(2^20 + 64 * label + p) % 2
    pixel p of sample i        mix(2^16 + 64 * i + p) % 192 + 64 * pattern of i's label at p

Pixel p is row p / 8, column p % 8 of an image [1, 8, 8]; a feature is its pixel / 255 in float32.
The 160 samples are 10 batches of 16, always in the same order, so 50 steps are 5 epochs. Forward
pass and loss are under autocast, backward and the optimizer are not. A step's loss is that of its
forward pass, before the update.
"""
import json
import pathlib

import torch
from torch import nn

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "tests/goldens/precision.json"
SAMPLES = 160
BATCH_SIZE = 16
STEPS = 50


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 4 * 4, 10))


CASES = [
    (mlp, "Adam", {"lr": 0.005}),
    (cnn, "SGD", {"lr": 0.01, "momentum": 0.5}),
]


def mix(x):
    x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def pixel(sample, label, p):
    pattern = mix(2**20 + 64 * label + p) % 2
    return mix(2**16 + 64 * sample + p) % 192 + 64 * pattern


def data():
    labels = [mix(i) % 10 for i in range(SAMPLES)]
    pixels = [pixel(i, label, p) for i, label in enumerate(labels) for p in range(64)]
    features = torch.tensor(pixels, dtype=torch.float32).reshape(SAMPLES, 1, 8, 8) / 255
    return features, torch.tensor(labels)


def tensors(module):
    return {name: {"shape": list(tensor.shape), "values": tensor.flatten().tolist()}
            for name, tensor in module.state_dict().items()}


def train(make_model, optimizer_name, options, dtype):
    torch.manual_seed(1)
    model = make_model()
    initial = tensors(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = getattr(torch.optim, optimizer_name)(model.parameters(), **options)
    features, labels = data()
    losses = []
    for step in range(STEPS):
        begin = step * BATCH_SIZE % SAMPLES
        batch = slice(begin, begin + BATCH_SIZE)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            logits = model(features[batch])
            loss = criterion(logits, labels[batch])
        assert logits.dtype == (torch.bfloat16 if dtype == "bf16" else torch.float32)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return initial, losses


def main():
    torch.set_num_threads(1)
    cases = []
    for make_model, optimizer, options in CASES:
        initial, bf16 = train(make_model, optimizer, options, "bf16")
        _, fp32 = train(make_model, optimizer, options, "fp32")
        cases.append({"name": make_model.__name__, "optimizer": optimizer, "options": options,
                      "initial": initial, "bf16": bf16, "fp32": fp32})
    golden = {"torch": torch.__version__, "samples": SAMPLES, "batch_size": BATCH_SIZE,
              "steps": STEPS, "cases": cases}
    OUTPUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
