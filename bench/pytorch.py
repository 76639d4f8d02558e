"""One process of PyTorch's side of every comparison, written to be fast: data is preloaded as one
float tensor, batches are made by index_select, one thread per process, no work per sample.

    pytorch.py WORKLOAD RANK WORLD_SIZE STORE plain|ddp|flat
    torchrun … pytorch.py WORKLOAD env env STORE plain|ddp|flat

plain is one process. ddp uses DistributedDataParallel on Gloo. flat makes one all_reduce of all
gradients in one tensor. Models, data and order are those of workloads.cpp. Rank 0 prints what it
measured.
"""
import gzip
import json
import math
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

WORKLOAD, STORE, WAY = sys.argv[1], sys.argv[4], sys.argv[5]
RANK, WORLD = (
    int(os.environ[name] if given == "env" else given)
    for name, given in zip(("RANK", "WORLD_SIZE"), sys.argv[2:4]))
FOLDER = "/usr/share/datasets/fashion-mnist/"
# batch size per worker, steps (None: one epoch), lr of Adam
SETTINGS = {
    "A": (32, None, 0.02),
    "B": (64, None, 1e-3),
    "C": (64, 200, 1e-3),
    "D": (16, 500, 1e-3),
    "D64": (4, 30, 1e-3),
    "E": (16, 500, 1e-3),
    "F": (32, 30, 1e-4),
    "G": (16, 30, 1e-3),
}


def read(name, header):
    with gzip.open(FOLDER + name) as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)[header:]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def make_data():
    if WORKLOAD == "D":
        return torch.rand(2000, 3, 16, 16, 16, generator=generator(1)), None
    if WORKLOAD == "D64":
        features = torch.rand(240, 3, 32, 32, 32, generator=generator(1))
        return features, torch.rand(240, 3, generator=generator(2))
    if WORKLOAD == "E":
        features = torch.rand(8192, 64, generator=generator(1))
        return features, torch.randint(10, (8192,), generator=generator(2))
    if WORKLOAD == "F":
        features = torch.rand(1024, 3, 32, 32, generator=generator(1))
        return features, torch.randint(10, (1024,), generator=generator(2))
    if WORKLOAD == "G":
        tokens = torch.randint(256, (1024, 65), generator=generator(1))
        return tokens[:, :64].contiguous(), tokens[:, 1:].contiguous()
    images = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).float().div_(255)
    return images, read("train-labels-idx1-ubyte.gz", 8).long()


class ResidualBlock(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.stride, self.more = stride, (out - channels) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        if self.stride > 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more, self.more))
        y += x
        return F.relu(y, inplace=True)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        blocks = []
        for channels, out, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
            blocks += [ResidualBlock(channels, out, stride), ResidualBlock(out, out, 1), ResidualBlock(out, out, 1)]
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(64, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.blocks(F.relu(self.bn1(self.conv1(x)), inplace=True))
        return self.fc(x.mean((2, 3)))


class GptBlock(nn.Module):
    def __init__(self, width, heads, mask):
        super().__init__()
        self.heads, self.mask = heads, mask
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.attn_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.mlp_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.c_attn(self.ln_1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(*qkv.unbind(0), is_causal=True)
        else:
            q, k, v = qkv.reshape(3, b * self.heads, t, -1).unbind(0)
            scores = torch.baddbmm(self.mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(q.shape[-1]))
            y = scores.softmax(-1).bmm(v).view(b, self.heads, t, -1)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    """The last layer has the weights of the embedding. Logits are rows, one per token."""

    def __init__(self, vocabulary=256, tokens=64, width=128, layers=4, heads=4):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(tokens, width)
        mask = torch.full((1, tokens, tokens), -math.inf).triu(1)
        self.h = nn.ModuleList(GptBlock(width, heads, mask) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                std = 0.02 / math.sqrt(2 * layers) if name.endswith("_proj") else 0.02
                nn.init.normal_(module.weight, 0.0, std)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)


def make_model():
    torch.manual_seed(0)
    if WORKLOAD == "F":
        return ResNet20()
    if WORKLOAD == "G":
        return Gpt()
    if WORKLOAD == "A":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    if WORKLOAD == "B":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
            nn.Linear(256, 10))
    if WORKLOAD == "C":
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10))
    if WORKLOAD == "D":
        return nn.Sequential(
            nn.Conv3d(3, 6, 2, stride=2, padding=1), nn.MaxPool3d(2, padding=1), nn.ReLU(),
            nn.Conv3d(6, 6, 2, stride=2, padding=1), nn.MaxPool3d(2, padding=1), nn.ReLU(),
            nn.Conv3d(6, 12, 2, stride=2, padding=1), nn.MaxPool3d(2),
            nn.Flatten(), nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12288))
    if WORKLOAD == "D64":
        return nn.Sequential(
            nn.Conv3d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2),
            nn.Conv3d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2),
            nn.Conv3d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2),
            nn.Flatten(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 3))
    layers = []
    for _ in range(29):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def flat_gradients(model):
    """One tensor that every parameter's gradient is a part of."""
    parameters = list(model.parameters())
    flat = torch.zeros(sum(p.numel() for p in parameters))
    offset = 0
    for parameter in parameters:
        parameter.grad = flat.as_strided(parameter.size(), parameter.stride(), offset)
        offset += parameter.numel()
    return flat


torch.set_num_threads(1)
torch.set_flush_denormal(True)
if WORLD > 1:
    dist.init_process_group("gloo", init_method="file://" + STORE, rank=RANK, world_size=WORLD)
batch_size, steps, lr = SETTINGS[WORKLOAD]
features, targets = make_data()
count = (steps or len(features) // (batch_size * WORLD)) * batch_size * WORLD
order = torch.randperm(count, generator=generator(42 + 1)) % len(features)
batches = order.split(batch_size)[RANK::WORLD]
model = make_model()
criterion = nn.SmoothL1Loss() if WORKLOAD.startswith("D") else nn.CrossEntropyLoss()
# Settings that make PyTorch faster: foreach for all but the large convolutions, channels last for 2-D ones.
optimizer = torch.optim.Adam(model.parameters(), lr=lr, foreach=WORKLOAD in ("A", "B", "E", "F", "G"))
if WORKLOAD in ("C", "F"):
    model = model.to(memory_format=torch.channels_last)
forward = model
if WAY == "ddp":
    forward = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
flat = flat_gradients(model) if WAY == "flat" else None

if WORLD > 1:
    dist.barrier()
total = 0.0
first_step = None
start = time.monotonic()
for indices in batches:
    inputs = features.index_select(0, indices)
    expected = inputs.flatten(1) if targets is None else targets.index_select(0, indices)
    if WORKLOAD == "G":
        expected = expected.flatten()
    loss = criterion(forward(inputs), expected)
    if flat is None:
        optimizer.zero_grad(set_to_none=True)
    else:
        flat.zero_()
    loss.backward()
    if flat is not None:
        dist.all_reduce(flat)
        flat /= WORLD
    optimizer.step()
    total += loss.item()
    if first_step is None:
        first_step = time.monotonic()
if WORLD > 1:
    dist.barrier()
seconds = time.monotonic() - start
mean = torch.tensor(total / len(batches), dtype=torch.float64)
if WORLD > 1:
    dist.all_reduce(mean)
    mean /= WORLD
if RANK == 0:
    squares = sum(p.detach().double().square().sum() for p in model.parameters())
    print(json.dumps({
        "weights_norm": squares.sqrt().item(),
        "samples_per_second": count / seconds,
        "loss": mean.item(),
        "first_step": first_step,
    }))
