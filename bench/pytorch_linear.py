"""The seed's workload in PyTorch, as fast as a good engineer writes it; see main.cpp."""
import gzip
import json
import time

import torch
from torch import nn

FOLDER = "/usr/share/datasets/fashion-mnist/"
BATCH = 32


def read(name, header):
    with gzip.open(FOLDER + name) as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)[header:]


torch.set_num_threads(1)
images = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).float() / 255
labels = read("train-labels-idx1-ubyte.gz", 8).long()
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(42 + 1))

start = time.perf_counter()
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
total = 0.0
for indices in order.split(BATCH):
    loss = criterion(model(images.index_select(0, indices)), labels.index_select(0, indices))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item() * len(indices)
seconds = time.perf_counter() - start
print(json.dumps({"samples_per_second": len(images) / seconds, "loss": total / len(images)}))
