"""PyTorch's side of the comparison of loaders: one pass over the samples, without a model.

    loading.py images FOLDER NUM_WORKERS
    loading.py rows FILE.npy NUM_WORKERS

images are those of images.cpp, with torchvision's ImageFolder. rows are those of rows.cpp, with
numpy.memmap. The workers are started before the measurement, and stay. Prints what it measured.
"""
import json
import sys
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

KIND, FILES, WORKERS = sys.argv[1], sys.argv[2], int(sys.argv[3])
WARM_UP_BATCHES = 4
MOST_ROWS = 1 << 17  # a quarter of the file, because it is only shown beside our own numbers


class Rows(Dataset):
    def __init__(self, path):
        self.rows = numpy.load(path, mmap_mode="r")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        # A copy: a tensor of memory that is read-only gives a warning.
        return torch.from_numpy(numpy.array(self.rows[index])), index


class Shuffled(Sampler):
    """As RandomSampler, but the number of samples can be changed: few to warm up, then all."""

    def __init__(self, size):
        self.size = self.count = size

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(torch.randperm(self.size)[:self.count].tolist())


def images():
    from torchvision import datasets, transforms
    return datasets.ImageFolder(FILES, transforms.Compose([
        transforms.RandomResizedCrop(128),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]))


data = images() if KIND == "images" else Rows(FILES)
batch_size = 64 if KIND == "images" else 256
sampler = Shuffled(len(data))
loader = DataLoader(data, batch_size, sampler=sampler, num_workers=WORKERS, persistent_workers=WORKERS > 0)
sampler.count = WARM_UP_BATCHES * batch_size * max(WORKERS, 1)
for _ in loader:
    pass
sampler.count = len(data) if KIND == "images" else min(len(data), MOST_ROWS)

samples = batches = 0
total = pixels = 0.0
start = time.monotonic()
for features, targets in loader:
    samples += len(features)
    batches += 1
    total += targets.sum().item()
    if KIND == "images":
        pixels += features[:, :, 64, 64].mean().item()
seconds = time.monotonic() - start
print(json.dumps({
    "samples_per_second": samples / seconds,
    "samples": samples,
    "sum": total,
    "mean": pixels / batches,
}))
