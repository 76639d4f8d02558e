"""Writes tests/goldens/python/weights.safetensors for tests/checkpoint/weights_file_test.cpp. Needs torch and
the newest safetensors:

    python3 scripts/goldens/checkpoint_safetensors.py
"""
import pathlib

import torch
from safetensors.torch import save_file

folder = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "python"
save_file(
    {
        "fc.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "fc.bias": torch.tensor([0.5, -2]),
        "bn.num_batches_tracked": torch.tensor(7),
        "half": torch.tensor([0.5, 2, -1]).half(),
        "brain": torch.tensor([0.5, 2]).bfloat16(),
        "double": torch.tensor([0.1], dtype=torch.float64),
        "complex": torch.tensor([1 + 2j]),
        "flags": torch.tensor([True, False, True]),
        "bytes": torch.tensor([255], dtype=torch.uint8),
        "small": torch.tensor([-8], dtype=torch.int8),
        "short": torch.tensor([300], dtype=torch.int16),
        "int": torch.tensor([-7], dtype=torch.int32),
        "empty": torch.empty(0, 4),
        "größe": torch.tensor(2.5),
    },
    folder / "weights.safetensors", metadata={"format": "pt"})
