"""Trains the network of examples/finetune on another task, the direction of stripes in images, and writes its
state_dict in half precision to examples/finetune/stripes.pth. Needs torch; takes a minute:

    python3 scripts/goldens/finetune.py
"""
import math
import pathlib

import torch
from torch import nn

CLASSES = 8  # directions


def images(count):
    rows, columns = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    direction = torch.randint(CLASSES, (count,))
    angle = (direction * math.pi / CLASSES).view(-1, 1, 1)
    across = columns * angle.cos() + rows * angle.sin()
    stripes = (across * (0.7 + 0.5 * torch.rand(count, 1, 1)) + 2 * math.pi * torch.rand(count, 1, 1)).sin()
    return (stripes + 0.4 * torch.randn(count, 16, 16)).unsqueeze(1), direction


torch.manual_seed(1)
torch.set_num_threads(1)
model = nn.ModuleDict({
    "backbone": nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "fc": nn.Linear(32, CLASSES),
})
optimizer = torch.optim.Adam(model.parameters(), 3e-3)
for step in range(400):
    features, targets = images(64)
    loss = nn.functional.cross_entropy(model["fc"](model["backbone"](features)), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
path = pathlib.Path(__file__).resolve().parents[2] / "examples" / "finetune" / "stripes.pth"
torch.save(model.half().state_dict(), path)
