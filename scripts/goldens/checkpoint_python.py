"""Writes files of torch.save for tests/checkpoint/unpickler_test.cpp, and the outputs of the saved model.

    python3 scripts/goldens/checkpoint_python.py
"""
import collections
import json
import os
import pathlib

import torch

folder = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "python"
folder.mkdir(exist_ok=True)
torch.manual_seed(1)

model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten(), torch.nn.Linear(8, 3))
model(torch.randn(5, 1, 4, 4))  # gives batch norm running statistics
model.eval()
features = torch.linspace(-1, 1, 32).reshape(2, 1, 4, 4)
outputs = model(features)

torch.save(model.state_dict(), folder / "state_dict.pth")
torch.save(model.state_dict(), folder / "protocol5.pth", pickle_protocol=5)
torch.save({"module." + k: v for k, v in model.state_dict().items()}, folder / "wrapped.pth")

optimizer = torch.optim.Adam(model.parameters())
model(features).sum().backward()
optimizer.step()
torch.save({"epoch": 3, "model_state_dict": model.state_dict(),
            "optimizer_state_dict": optimizer.state_dict()}, folder / "checkpoint.pth")

shared = torch.arange(12.0)
torch.save(
    {
        "half": torch.tensor([0.5, 2]).half(),
        "bfloat16": torch.tensor([0.5, 2]).bfloat16(),
        "double": torch.tensor([1 / 3], dtype=torch.float64),
        "int64": torch.tensor([-(2**40)]),
        "int32": torch.tensor([-7], dtype=torch.int32),
        "int16": torch.tensor([300], dtype=torch.int16),
        "int8": torch.tensor([-8], dtype=torch.int8),
        "uint8": torch.tensor([255], dtype=torch.uint8),
        "bool": torch.tensor([True, False]),
        "complex": torch.tensor([1 + 2j]),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "transposed": shared.reshape(3, 4).t(),
        "part": shared[4:8],
        "expanded": torch.tensor([5.0]).expand(3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "none": None,
        "true": True,
        "small": 7,
        "negative": -70000,
        "large": 2**60,
        "ratio": 0.1,
        "text": "täst",
        "bytes": b"\x00raw",
        "list": [1, [2.5, "three"]],
        "tuple": (1, 2, 3, 4),
        "set": {9},
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda", 1),
        "dtype": torch.float32,
        "ordered": collections.OrderedDict(a=1),
        5: "a key that is a number",
    },
    folder / "everything.pth")

torch.save(model, folder / "whole_model.pth")
torch.save(torch.ones(2), folder / "tensor.pth")
torch.save({"a": torch.ones(2)}, folder / "legacy.pth", _use_new_zipfile_serialization=False)


class Hostile:
    def __reduce__(self):
        return os.system, ("touch /tmp/lockstep_hostile_pickle_was_run",)


torch.save({"weight": Hostile()}, folder / "hostile.pth")
(folder / "outputs.json").write_text(json.dumps({"outputs": outputs.detach().tolist()}) + "\n")
