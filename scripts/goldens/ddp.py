"""Writes tests/goldens/ddp.json: two models that two ranks of PyTorch's DistributedDataParallel
train for 100 steps.

The data are integers below 256, made by a hash (all arithmetic modulo 2^32):

    mix(x):  x = (x ^ x >> 16) * 0x7feb352d;  x = (x ^ x >> 15) * 0x846ca68b;  x ^ x >> 16
    label of sample i          mix(i) % 10
    pattern of a label at p    mix(2^20 + 64 * label + p) % 2
    pixel p of sample i        mix(2^16 + 64 * i + p) % 192 + 64 * pattern of i's label at p

Pixel p is row p / 8, column p % 8 of an image [1, 8, 8]; a feature is its pixel / 255 in float32.
203 samples cannot be divided by two, so the sampler uses one sample twice and gives each rank 102,
which are 12 batches of 8 and one of 6. The epochs are 1, 2, ...; training stops after step 100, in
the middle of an epoch.

Each rank draws other weights, and then DistributedDataParallel replaces them by rank 0's, which are
the "initial" ones. A step's losses are those of its forward passes on rank 0 and rank 1, each the
mean over the rank's own batch. After the last step the parameters of both ranks have the same bits.
The buffers differ: rank 0's buffers are sent to all ranks before a forward pass, and then each rank
updates them with its own batch. The "final" values are rank 0's.
"""
import json
import pathlib

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "tests/goldens/ddp.json"
HOST = "127.0.0.1"
REPLICAS = 2
SAMPLES = 203
BATCH_SIZE = 8  # per rank
SEED = 42
FIRST_EPOCH = 1
STEPS = 100


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 4 * 4, 10))


CASES = [
    (linear, "Adam", {"lr": 0.02}),
    (cnn, "SGD", {"lr": 0.05, "momentum": 0.9}),
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
    return pixels, labels


def batches(dataset, rank):
    sampler = DistributedSampler(dataset, num_replicas=REPLICAS, rank=rank, shuffle=True,
                                 seed=SEED, drop_last=False)
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, sampler=sampler, drop_last=False)
    step, epoch = 0, FIRST_EPOCH
    while True:
        sampler.set_epoch(epoch)
        for batch in loader:
            if step == STEPS:
                return
            yield batch
            step += 1
        epoch += 1


def tensors(module):
    return {name: {"shape": list(tensor.shape), "values": tensor.flatten().tolist()}
            for name, tensor in module.state_dict().items()}


def gathered(tensor):
    """Returns the tensors of all ranks."""
    parts = [torch.empty_like(tensor) for _ in range(REPLICAS)]
    distributed.all_gather(parts, tensor)
    return parts


def run(dataset, rank, make_model, optimizer_name, options):
    torch.manual_seed(rank)
    module = make_model()
    initial = tensors(module)
    model = DistributedDataParallel(module)
    criterion = nn.CrossEntropyLoss()
    optimizer = getattr(torch.optim, optimizer_name)(model.parameters(), **options)
    losses = []
    for features, labels in batches(dataset, rank):
        loss = criterion(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    for parameter in module.parameters():
        assert all(torch.equal(parameter, other) for other in gathered(parameter.detach()))
    return {"name": make_model.__name__, "model": [repr(layer) for layer in module],
            "optimizer": optimizer_name, "options": options, "initial": initial,
            "losses": torch.stack(gathered(torch.stack(losses)), dim=1).tolist(),
            "final": tensors(module)}


def work(rank, port):
    torch.set_num_threads(1)
    store = distributed.TCPStore(HOST, port, is_master=False)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=REPLICAS)
    pixels, labels = data()
    features = torch.tensor(pixels, dtype=torch.float32).reshape(SAMPLES, 1, 8, 8) / 255
    dataset = TensorDataset(features, torch.tensor(labels))
    cases = [run(dataset, rank, *case) for case in CASES]
    if rank == 0:
        golden = {"torch": torch.__version__, "replicas": REPLICAS, "batch_size": BATCH_SIZE,
                  "seed": SEED, "first_epoch": FIRST_EPOCH, "steps": STEPS,
                  "shape": list(features.shape), "pixels": pixels, "labels": labels,
                  "cases": cases}
        OUTPUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    distributed.barrier()


def main():
    store = distributed.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    multiprocessing.spawn(work, args=(store.port,), nprocs=REPLICAS)


if __name__ == "__main__":
    main()
