#!/usr/bin/env python3
"""Writes tests/goldens/metric.json: data for the tests, and the metrics that scikit-learn computes for it.

Run it from the root of the repository with a Python that has numpy and scikit-learn.
"""
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support, roc_auc_score

OUTPUT = Path("tests/goldens/metric.json")
RANDOM = np.random.default_rng(20240229)


def short(scores):
    """Returns float32 scores as the shortest decimals that are read back as the same float32."""
    rows = [[float(str(np.float32(x))) for x in row] for row in scores]
    assert (np.array(rows, dtype=np.float32) == scores.astype(np.float32)).all()
    return rows


def defined_mean(values, weights):
    pairs = [(v, w) for v, w in zip(values, weights) if v is not None]
    total = sum(w for _, w in pairs)
    return sum(v * w for v, w in pairs) / total


def auc(positive, scores):
    """The AUC of each column, None if roc_auc_score is not defined for it, and their averages."""
    per_class = []
    for column in range(scores.shape[1]):
        both = 0 < positive[:, column].sum() < len(positive)
        value = roc_auc_score(positive[:, column], scores[:, column]) if both else None
        per_class.append(value)
    return {
        "class": per_class,
        "_micro": roc_auc_score(positive.ravel(), scores.ravel()),
        "_macro": defined_mean(per_class, [1] * len(per_class)),
        "_weighted": defined_mean(per_class, positive.sum(axis=0).tolist()),
    }


def precision_recall(labels, predictions, classes):
    result = {}
    every = list(range(classes))
    arguments = dict(labels=every, zero_division=0)
    for average in ("micro", "macro", "weighted"):
        values = precision_recall_fscore_support(labels, predictions, average=average, **arguments)
        result["_" + average] = [float(v) for v in values[:3]]
    values = precision_recall_fscore_support(labels, predictions, average=None, **arguments)
    result["class"] = [[float(v) for v in row] for row in zip(*values)]
    return result


def topk(labels, scores):
    """The share of labels among the k best scores, for k = 1 ... C. Of equal scores the lower class is first."""
    order = np.argsort(-scores, axis=1, kind="stable")
    hits = order == labels[:, None]
    return [int(hits[:, : k + 1].sum()) / len(labels) for k in range(scores.shape[1])]


def labelled(name, labels, scores):
    scores = scores.astype(np.float32)
    classes = scores.shape[1]
    positive = (labels[:, None] == np.arange(classes)).astype(int)
    predictions = scores.argmax(axis=1)
    every = list(range(classes))
    return {
        "name": name,
        "labels": labels.tolist(),
        "scores": short(scores),
        "topk": topk(labels, scores),
        "auc": auc(positive, scores),
        "precision_recall": precision_recall(labels, predictions, classes),
        "confusion": confusion_matrix(labels, predictions, labels=every).tolist(),
    }


def informed(labels, classes, strength):
    """Normally distributed scores; `strength` is added to the score of the label."""
    scores = RANDOM.normal(size=(len(labels), classes))
    scores[np.arange(len(labels)), labels] += strength
    return scores


def label_sets():
    labels = RANDOM.integers(2, size=90)
    yield labelled("two classes", labels, informed(labels, 2, 1.0))
    labels = RANDOM.integers(10, size=160)
    yield labelled("ten classes", labels, informed(labels, 10, 1.5))
    labels = RANDOM.choice(4, size=150, p=[0.9, 0.06, 0.03, 0.01])
    yield labelled("imbalanced", labels, informed(labels, 4, 0.7))
    labels = RANDOM.choice([0, 2, 3, 7], size=90)
    yield labelled("missing classes", labels, informed(labels, 10, 1.0))
    labels = RANDOM.integers(5, size=120)
    yield labelled("heavy ties", labels, np.round(informed(labels, 5, 1.0)))
    labels = RANDOM.integers(3, size=80)
    yield labelled("two distinct scores", labels, (informed(labels, 3, 1.0) > 0.5).astype(float))
    labels = RANDOM.integers(3, size=700)
    yield labelled("enough to radix sort", labels, np.round(informed(labels, 3, 0.5), 2))


def multilabel():
    positive = (RANDOM.random((100, 4)) < [0.5, 0.2, 0.1, 0.8]).astype(int)
    scores = np.round(RANDOM.normal(size=positive.shape) + positive, 1).astype(np.float32)
    return {"positive": positive.tolist(), "scores": short(scores), "auc": auc(positive, scores)}


def binary():
    positive = RANDOM.integers(2, size=(70, 1))
    scores = np.round(RANDOM.normal(size=positive.shape) + positive, 1).astype(np.float32)
    return {"positive": positive.tolist(), "scores": short(scores), "auc": auc(positive, scores)}


def square_root(value):
    """The square root of a Fraction, exact to many more digits than a double has."""
    scale = 10**60
    return float(Fraction(math.isqrt(int(value * scale * scale)), scale))


def moments(name, values, weights):
    """Mean and standard deviation by their definition, computed in rational numbers."""
    values = [float(v) for v in values]
    total = sum(weights)
    mean = sum(Fraction(v) * w for v, w in zip(values, weights)) / total
    squares = sum(w * (Fraction(v) - mean) ** 2 for v, w in zip(values, weights))
    return {
        "name": name,
        "values": values,
        "weights": [int(w) for w in weights],
        "mean": float(mean),
        "std": square_root(squares / (total - 1)),
    }


def sums(name, terms):
    terms = [float(t) for t in terms]
    return {"name": name, "terms": terms, "sum": math.fsum(terms)}


def main():
    weights = [32] * 40 + [7]
    wide = RANDOM.normal(size=200) * 10.0 ** RANDOM.integers(-300, 300, size=200)
    close = RANDOM.normal(size=300)
    golden = {
        "labelled": list(label_sets()),
        "multilabel": multilabel(),
        "binary": binary(),
        "moments": [
            moments("losses", RANDOM.exponential(size=41), weights),
            moments("far from zero", 1e9 + RANDOM.normal(size=41), weights),
            moments("tiny", 1e-12 * RANDOM.normal(size=41), weights),
            moments("equal", [0.1] * 41, weights),
        ],
        "sums": [
            sums("wide", wide),
            sums("close", close),
            sums("cancelling", np.concatenate([close, wide, -wide[::-1]])),
            sums("subnormal", [5e-324, 1e-310, -3e-320, 2.2250738585072014e-308]),
            sums("tenths", [0.1] * 10),
        ],
    }
    OUTPUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
