"""Writes tests/goldens/optim_optimizers.json: the steps of PyTorch's optimizers on a fixed problem.

Values and gradients are fractions of powers of two, so both sides start from the same bits. Gradients
do not depend on the parameters, so a difference in rounding does not grow. The weight decays are chosen
so that no gradient becomes zero up to rounding: an optimizer that divides a gradient by its size would
make the rounding error large.
"""
import json
import pathlib

import torch

SHAPES = {"weight": (3, 5), "bias": (7,), "scale": (1,)}
STEPS = 64
RECORDED = [1, 2, 3, 17, 64]

CASES = [
    ("Adam", {"lr": 0.02}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.07}),
    ("Adam", {"lr": 0.02, "amsgrad": True, "betas": (0.9, 0.9)}),
    ("Adam", {"lr": 0.02, "amsgrad": True, "betas": (0.9, 0.9), "weight_decay": 0.03}),
    ("AdamW", {"lr": 0.02}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "betas": (0.85, 0.97)}),
    ("AdamW", {"lr": 0.02, "amsgrad": True, "betas": (0.9, 0.9)}),
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.05, "weight_decay": 0.07}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "alpha": 0.9, "weight_decay": 0.07}),
    ("RMSprop", {"lr": 0.01, "alpha": 0.9, "momentum": 0.8}),
    ("RMSprop", {"lr": 0.01, "alpha": 0.9, "centered": True}),
    ("RMSprop", {"lr": 0.01, "alpha": 0.9, "centered": True, "momentum": 0.8,
                 "weight_decay": 0.02}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.07,
                 "initial_accumulator_value": 0.25, "eps": 1e-6}),
]


def initial(index, shape, dtype):
    size = torch.Size(shape).numel()
    values = [((5 * i + 3 * index + 3) % 11 - 5) / 8 for i in range(size)]
    return torch.tensor(values, dtype=dtype).reshape(shape)


def gradient(index, shape, step, dtype):
    size = torch.Size(shape).numel()
    values = [((7 * i + 13 * step + step * step + 5 * index) % 17 - 8) / 2 ** (3 + i % 4)
              for i in range(size)]
    return torch.tensor(values, dtype=dtype).reshape(shape)


def run(name, options, dtype, max_norm=None):
    parameters = [torch.nn.Parameter(initial(i, s, dtype)) for i, s in enumerate(SHAPES.values())]
    optimizer = getattr(torch.optim, name)(parameters, **options)
    recorded = []
    for step in range(1, STEPS + 1):
        for i, parameter in enumerate(parameters):
            parameter.grad = gradient(i, parameter.shape, step, dtype)
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        optimizer.step()
        if step in RECORDED:
            recorded.append([x for p in parameters for x in p.detach().flatten().tolist()])
    return recorded


def main():
    cases = []
    for name, options in CASES:
        named = dict(options)
        if "betas" in named:
            named["beta1"], named["beta2"] = named.pop("betas")
        cases.append({"name": name, "options": named,
                      "float32": run(name, options, torch.float32),
                      "float64": run(name, options, torch.float64)})
    clipped = {"max_norm": 0.75, "lr": 0.02,
               "float64": run("Adam", {"lr": 0.02}, torch.float64, max_norm=0.75)}
    golden = {"torch": torch.__version__, "shapes": SHAPES, "steps": STEPS, "recorded": RECORDED,
              "cases": cases, "clipped_adam": clipped}
    path = pathlib.Path(__file__).parents[2] / "tests/goldens/optim_optimizers.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
