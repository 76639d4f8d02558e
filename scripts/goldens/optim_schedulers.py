"""Writes tests/goldens/optim_schedulers.json: learning rate and momentum that PyTorch's
schedulers set, at the start and after each step."""
import json
import math
import pathlib

import torch

STEPS = 80
LR = 0.05

CASES = [
    ("StepLR", {"step_size": 7}),
    ("StepLR", {"step_size": 1, "gamma": 0.95}),
    ("MultiStepLR", {"milestones": [3, 10, 10, 41], "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.93}),
    ("CosineAnnealingLR", {"T_max": 80}),
    ("CosineAnnealingLR", {"T_max": 12, "eta_min": 0.001}),
    ("CosineAnnealingLR", {"T_max": 1, "eta_min": 0.01}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.01, "end_factor": 0.8, "total_iters": 33}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 81}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 81, "anneal_strategy": "linear",
                    "pct_start": 0.2, "div_factor": 10.0, "final_div_factor": 100.0,
                    "base_momentum": 0.7, "max_momentum": 0.9}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 81, "three_phase": True}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 81, "pct_start": 0.0, "cycle_momentum": False}),
    ("PolynomialLR", {"total_iters": 80}),
    ("PolynomialLR", {"total_iters": 33, "power": 0.9}),
    ("CosineAnnealingWarmRestarts", {"T_0": 7}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.001}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 7}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4, "step_size_down": 9,
                  "mode": "triangular2", "base_momentum": 0.7, "max_momentum": 0.95}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 10, "mode": "exp_range", "gamma": 0.97,
                  "cycle_momentum": False}),
    ("ReduceLROnPlateau", {}),
    ("ReduceLROnPlateau", {"patience": 2, "factor": 0.5, "cooldown": 3, "min_lr": 0.002}),
    ("ReduceLROnPlateau", {"patience": 1, "factor": 0.3, "mode": "max", "threshold": 0.05}),
    ("ReduceLROnPlateau", {"patience": 3, "factor": 0.3, "threshold": 0.02,
                           "threshold_mode": "abs"}),
    ("ReduceLROnPlateau", {"patience": 3, "factor": 0.3, "mode": "max", "threshold": 0.02,
                           "threshold_mode": "abs", "eps": 1e-4}),
    ("SequentialLR", {"schedulers": [["LinearLR", {"start_factor": 0.1, "total_iters": 10}],
                                     ["CosineAnnealingLR", {"T_max": 70, "eta_min": 0.001}]],
                      "milestones": [10]}),
    # Parts that have not reached their end, and one that goes on after it.
    ("SequentialLR", {"schedulers": [["LinearLR", {"start_factor": 0.01, "total_iters": 20}],
                                     ["ExponentialLR", {"gamma": 0.9}],
                                     ["StepLR", {"step_size": 7, "gamma": 0.5}],
                                     ["MultiStepLR", {"milestones": [3, 5], "gamma": 0.5}]],
                      "milestones": [5, 12, 13]}),
]


def make(name, optimizer, options):
    if name == "SequentialLR":
        parts = [make(part[0], optimizer, part[1]) for part in options["schedulers"]]
        options = dict(options, schedulers=parts)
    return getattr(torch.optim.lr_scheduler, name)(optimizer, **options)


def metric(step):
    """A metric that falls, stays equal and jumps."""
    return 1.0 / (1 + step // 6) + 0.125 * (step % 5 == 0) - 0.25 * (step > 50)


def main():
    metrics = [metric(step) for step in range(STEPS)]
    cases = []
    for name, options in CASES:
        parameter = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([parameter], lr=LR, momentum=0.9)
        scheduler = make(name, optimizer, options)
        group = optimizer.param_groups[0]
        lrs, momenta = [group["lr"]], [group["momentum"]]
        for step in range(STEPS):
            optimizer.step()
            scheduler.step(*([metrics[step]] if name == "ReduceLROnPlateau" else []))
            lrs.append(group["lr"])
            momenta.append(group["momentum"])
        assert all(math.isfinite(lr) for lr in lrs)
        cases.append({"name": name, "options": options, "lr": lrs,
                      "momentum": momenta if len(set(momenta)) > 1 else momenta[:1]})
    golden = {"torch": torch.__version__, "lr": LR, "momentum": 0.9, "metrics": metrics,
              "cases": cases}
    path = pathlib.Path(__file__).parents[2] / "tests/goldens/optim_schedulers.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
