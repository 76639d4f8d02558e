"""Writes tests/goldens/precision_fp16.json: the two models of precision.py, trained by PyTorch for 50
steps on the CPU with autocast to fp16 and a GradScaler. The weights before the first step are those in
precision.json.

Debian 12's PyTorch has no fp16 autocast on the CPU, so this needs PyTorch 2.3 or newer, for example
the one that `make interop` installs:

    OMP_NUM_THREADS=1 build/interop/bin/python scripts/goldens/precision_fp16.py

The scale of the MLP is 2^21 or 2^17: with 2^21 the largest gradient is more than three times the
largest number of fp16, so the update is skipped; with 2^17 it is less than half of it. So rounding
does not decide which updates are skipped. The scale of the CNN stays 2^12: the gradient of
the bias before batch norm is a sum in which almost everything cancels, and whether it overflows with a
larger scale depends on the order of adding. `scale` is the scale of each step, before it is adjusted.
"""
import json

import torch
from torch import nn

import precision

OUTPUT = precision.OUTPUT.with_name("precision_fp16.json")
SCALERS = {
    "mlp": {"init_scale": 2.0**21, "growth_factor": 16.0, "backoff_factor": 1 / 16,
            "growth_interval": 20},
    "cnn": {"init_scale": 2.0**12, "growth_factor": 2.0, "backoff_factor": 0.5,
            "growth_interval": 2000},
}


def train(model, optimizer, scaler):
    criterion = nn.CrossEntropyLoss()
    features, labels = precision.data()
    losses, scales = [], []
    for step in range(precision.STEPS):
        begin = step * precision.BATCH_SIZE % precision.SAMPLES
        batch = slice(begin, begin + precision.BATCH_SIZE)
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(features[batch])
            loss = criterion(logits, labels[batch])
        assert logits.dtype == torch.float16
        scales.append(scaler.get_scale())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, scales


def main():
    torch.set_num_threads(1)
    initial = {case["name"]: case["initial"]
               for case in json.loads(precision.OUTPUT.read_text())["cases"]}
    cases = {}
    for make_model, optimizer_name, options in precision.CASES:
        name = make_model.__name__
        model = make_model()
        model.load_state_dict({key: torch.tensor(value["values"]).reshape(value["shape"])
                               for key, value in initial[name].items()})
        optimizer = getattr(torch.optim, optimizer_name)(model.parameters(), **options)
        scaler = torch.amp.GradScaler("cpu", **SCALERS[name])
        losses, scales = train(model, optimizer, scaler)
        cases[name] = {"scaler": SCALERS[name], "fp16": losses, "scale": scales}
    golden = {"torch": torch.__version__, "cases": cases}
    OUTPUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
