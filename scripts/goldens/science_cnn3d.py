"""Trains the network of examples/cnn3d in PyTorch, with the same cubes, order, optimizer and schedule.

    build/bin/cnn3d --logdir DIR --workers 2 --shards 2
    python3 scripts/goldens/science_cnn3d.py DIR/field.h5 > tests/goldens/science_cnn3d.json
"""
import json
import sys

import h5py
import torch
from torch import nn

CUBE, BATCH, SHARDS, EPOCHS, PATIENCE, MIN_DELTA, LR, SEED = 16, 16, 2, 150, 25, 1e-5, 2e-3, 42

with h5py.File(sys.argv[1]) as file:
    velocity, large = (torch.from_numpy(file[name][:]) for name in ("velocity", "large_scales"))


def cubes(field):
    channels, side = field.shape[0], field.shape[1] // CUBE
    field = field.reshape(channels, side, CUBE, side, CUBE, side, CUBE)
    return field.permute(1, 3, 5, 0, 2, 4, 6).reshape(-1, channels, CUBE, CUBE, CUBE)


features, targets = cubes(velocity), cubes(large).flatten(1)
count = len(features)
order = torch.randperm(count, generator=torch.Generator().manual_seed(SEED))
cut = round(0.8 * count)
train, valid = order[:cut], order[cut:]

torch.set_num_threads(1)
torch.manual_seed(SEED)
d = features.shape[1]
network = nn.Sequential(
    nn.Conv3d(d, 2 * d, 2, 2, 1), nn.MaxPool3d(2, padding=1), nn.ReLU(),
    nn.Conv3d(2 * d, 2 * d, 2, 2, 1), nn.MaxPool3d(2, padding=1), nn.ReLU(),
    nn.Conv3d(2 * d, 4 * d, 2, 2, 1), nn.MaxPool3d(2), nn.Flatten(),
    nn.Linear(4 * d, 8 * d), nn.ReLU(), nn.Linear(8 * d, targets.shape[1]))
criterion = nn.SmoothL1Loss()
optimizer = torch.optim.Adam(network.parameters(), lr=LR)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, min_lr=LR / 100)
best, misses, losses = float("inf"), 0, []
for epoch in range(1, EPOCHS + 1):
    network.train()
    shuffled = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(SEED + epoch))]
    total = 0.0
    for batch in shuffled.split(BATCH * SHARDS):
        optimizer.zero_grad()
        loss = criterion(network(features[batch]), targets[batch])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    train_loss = total / len(train)
    network.eval()
    with torch.no_grad():
        valid_loss = criterion(network(features[valid]), targets[valid]).item()
    losses.append(valid_loss)
    scheduler.step(train_loss)
    if train_loss <= best - MIN_DELTA:
        best, misses = train_loss, 0
    else:
        misses += 1
        if misses >= PATIENCE:
            break
json.dump({"valid_loss": losses[-1], "epochs": len(losses), "first_valid_loss": losses[0]}, sys.stdout, indent=1)
print()
