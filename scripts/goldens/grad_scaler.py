"""Writes tests/goldens/grad_scaler.json: the scale of PyTorch's GradScaler after each of a sequence
of updates, of which some have a gradient that is not finite.

It needs a PyTorch that has GradScaler on the CPU, 2.3 or newer (`make interop` installs one).
Debian's 1.13 has not.
"""
import json
import math
import pathlib

import torch

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "tests/goldens/grad_scaler.json"

# "." is an update with finite gradients, "i" one with an infinite, "n" one with NaN. A pair in
# brackets is a batch in which two optimizers step.
CASES = [
    ({}, "." * 3 + "i" + "." * 4 + "nn" + "." * 5),
    ({"growth_interval": 4}, "." * 9 + "i" + "." * 3 + "i" + "." * 12),
    ({"init_scale": 2.0**126, "growth_interval": 1}, "....."),
    ({"init_scale": 1000.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 3},
     "...." * 3 + "i" + "." * 7 + "in" + "." * 8),
    ({"growth_interval": 3}, "..[.i].[..][i.]...[..]..[ni]..."),
]
VALUES = {".": 1.0, "i": math.inf, "n": math.nan}


def batches(text):
    while text:
        end = text.index("]") if text[0] == "[" else 0
        yield text[1:end] if text[0] == "[" else text[0]
        text = text[end + 1:]


def run(options, text):
    scaler = torch.amp.GradScaler("cpu", **options)
    scales, trackers, stepped = [], [], []
    for batch in batches(text):
        optimizers = []
        for kind in batch:
            parameter = torch.nn.Parameter(torch.zeros(2))
            optimizer = torch.optim.SGD([parameter], lr=1.0)
            scaler.scale(torch.ones(()))  # makes the scale
            parameter.grad = torch.tensor([1.0, VALUES[kind]])
            scaler.step(optimizer)
            optimizers.append(bool((parameter != 0).any()))
        scaler.update()
        scales.append(scaler.get_scale())
        trackers.append(scaler.state_dict()["_growth_tracker"])
        stepped.append(optimizers)
    return {"options": options, "batches": list(batches(text)), "scales": scales,
            "trackers": trackers, "stepped": stepped, "state": scaler.state_dict()}


def main():
    golden = {"torch": torch.__version__, "cases": [run(*case) for case in CASES]}
    OUTPUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
