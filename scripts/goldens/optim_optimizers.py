"""Writes tests/goldens/optim_optimizers.json: the steps of PyTorch's optimizers on a fixed problem, and those
of optimizers that it lacks, by the formulas of their papers.

Values and gradients are fractions of powers of two, so both sides start from the same bits. Gradients
do not depend on the parameters, so a difference in rounding does not grow. The weight decays are chosen
so that no gradient becomes zero up to rounding: an optimizer that divides a gradient by its size would
make the rounding error large.
"""
import json
import math
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
    ("RAdam", {"lr": 0.02}),
    ("RAdam", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.07}),
    ("NAdam", {"lr": 0.02}),
    ("NAdam", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.07, "momentum_decay": 0.5}),
    ("Adamax", {"lr": 0.02}),
    ("Adamax", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.07}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.95, "eps": 1e-4, "weight_decay": 0.07}),
    ("Lion", {"lr": 0.01}),
    ("Lion", {"lr": 0.01, "betas": (0.75, 0.875), "weight_decay": 0.3}),
    ("Lamb", {"lr": 0.02}),
    ("Lamb", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.07}),
    # Catalyst's defaults, with a limit that is reached.
    ("Lamb", {"lr": 0.02, "weight_decay": 0.01, "bias_correction": False, "max_weight_norm": 0.5}),
    ("Lookahead", {"k": 5, "alpha": 0.5, "optimizer": ["SGD", {"lr": 0.05, "momentum": 0.9}]}),
    ("Lookahead", {"k": 3, "alpha": 0.8, "optimizer": ["RAdam", {"lr": 0.02}]}),
]


class PaperOptimizer:
    """Calls update(parameter, gradient, its state, number of the step) for every parameter."""

    def __init__(self, parameters, **options):
        self.parameters, self.options, self.steps = parameters, options, 0
        self.states = [{} for _ in parameters]

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for parameter, state in zip(self.parameters, self.states):
            self.update(parameter, parameter.grad, state, self.steps, **self.options)

    @staticmethod
    def moments(gradient, state, beta1, beta2):
        m = state["m"] = state.get("m", torch.zeros_like(gradient)) * beta1 + (1 - beta1) * gradient
        v = state["v"] = state.get("v", torch.zeros_like(gradient)) * beta2 + (1 - beta2) * gradient ** 2
        return m, v


class NAdam(PaperOptimizer):
    """That of PyTorch 2. In PyTorch 1.13 the last denominator has one factor mu too many."""

    def update(self, p, g, state, t, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, momentum_decay=4e-3):
        g = g + weight_decay * p
        m, v = self.moments(g, state, *betas)
        mu = betas[0] * (1 - 0.5 * 0.96 ** (t * momentum_decay))
        following = betas[0] * (1 - 0.5 * 0.96 ** ((t + 1) * momentum_decay))
        product = state["product"] = state.get("product", 1.0) * mu
        size = (v / (1 - betas[1] ** t)).sqrt() + eps
        p -= lr * (1 - mu) / (1 - product) * g / size
        p -= lr * following / (1 - product * following) * m / size


class Lion(PaperOptimizer):
    """Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2."""

    def update(self, p, g, state, t, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        m = state.get("m", torch.zeros_like(g))
        direction = torch.sign(betas[0] * m + (1 - betas[0]) * g)
        p.mul_(1 - lr * weight_decay).sub_(lr * direction)
        state["m"] = betas[1] * m + (1 - betas[1]) * g


class Lamb(PaperOptimizer):
    """You et al. 2020, Large Batch Optimization for Deep Learning, algorithm 2."""

    def update(self, p, g, state, t, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0,
               bias_correction=True, max_weight_norm=math.inf):
        m, v = self.moments(g, state, *betas)
        if bias_correction:
            m, v = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
        r = m / (v.sqrt() + eps) + weight_decay * p
        weight_norm, norm = min(p.norm().item(), max_weight_norm), r.norm().item()
        p -= lr * (weight_norm / norm if weight_norm > 0 and norm > 0 else 1.0) * r


class Lookahead:
    """Zhang et al. 2019, Lookahead Optimizer: k steps forward, 1 step back, algorithm 1."""

    def __init__(self, parameters, optimizer, k, alpha):
        self.parameters, self.k, self.alpha, self.steps = parameters, k, alpha, 0
        self.optimizer = make(optimizer[0], parameters, optimizer[1])
        self.slow = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def step(self):
        self.optimizer.step()
        self.steps += 1
        if self.steps % self.k == 0:
            for fast, slow in zip(self.parameters, self.slow):
                slow += self.alpha * (fast - slow)
                fast.copy_(slow)


def make(name, parameters, options):
    own = {"NAdam": NAdam, "Lion": Lion, "Lamb": Lamb, "Lookahead": Lookahead}
    return (own.get(name) or getattr(torch.optim, name))(parameters, **options)


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
    optimizer = make(name, parameters, options)
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
