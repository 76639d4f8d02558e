#!/usr/bin/env python3
"""Writes tests/goldens/data_sampler.json: results of PyTorch's randperm and DistributedSampler.

Short orders are written in full. For long ones the file has the length, the first and last entries and
a hash (FNV-1a over the indices as little-endian 64-bit integers).
"""
import json
import pathlib
import struct

import torch
from torch.utils.data import DistributedSampler

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "tests/goldens/data_sampler.json"
SIZES = [1, 7, 10, 101, 1000]
REPLICAS = [1, 2, 3, 4]
SEEDS = [0, 42]
EPOCHS = [0, 1, 7]


def fnv1a(indices):
    state = 0xCBF29CE484222325
    for byte in b"".join(struct.pack("<q", index) for index in indices):
        state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{state:016x}"


def summary(indices):
    if len(indices) <= 10:
        return {"indices": indices}
    return {"size": len(indices), "first": indices[:3], "last": indices[-3:], "hash": fnv1a(indices)}


def permutations():
    for size in [0, *SIZES, 60000]:
        for seed in [0, 1, 42, 2**31, 2**63 + 11]:
            generator = torch.Generator().manual_seed(seed)
            order = torch.randperm(size, generator=generator).tolist()
            yield {"n": size, "seed": str(seed), **summary(order)}


def samplers():
    for size in SIZES:
        for replicas in REPLICAS:
            for shuffle in [False, True]:
                for seed in SEEDS if shuffle else [0]:
                    for epoch in EPOCHS if shuffle else [0]:
                        for drop_last in [False, True]:
                            for rank in range(replicas):
                                sampler = DistributedSampler(
                                    range(size), num_replicas=replicas, rank=rank,
                                    shuffle=shuffle, seed=seed, drop_last=drop_last)
                                sampler.set_epoch(epoch)
                                yield {"n": size, "replicas": replicas, "rank": rank,
                                       "shuffle": shuffle, "seed": seed, "epoch": epoch,
                                       "drop_last": drop_last, **summary(list(sampler))}


def lines(cases):
    return ",\n".join(json.dumps(case) for case in cases)


OUTPUT.write_text(f'{{"torch": "{torch.__version__}",\n"permutations": [\n{lines(permutations())}],\n'
                  f'"samplers": [\n{lines(samplers())}]}}\n')
