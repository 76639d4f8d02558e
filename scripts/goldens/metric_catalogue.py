#!/usr/bin/env python3
"""Writes tests/goldens/metric_catalogue.json: data for the tests of metrics, and what others compute for it.

scikit-learn and SciPy compute most of it. torchmetrics computes calibration errors and ranked lists. The
Tversky index, and the numbers that are far from zero, are computed by their definitions, the latter in rational
numbers. Run it from the root of the repository with a Python that has numpy, scikit-learn, SciPy, PyTorch
and torchmetrics (1.2.1; it is on PyPI only).
"""
import json
import math
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from scipy.stats import pearsonr
from sklearn import metrics as sk
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error
from torchmetrics.functional.retrieval import (
    retrieval_average_precision,
    retrieval_hit_rate,
    retrieval_normalized_dcg,
    retrieval_recall,
    retrieval_reciprocal_rank,
)

OUTPUT = Path("tests/goldens/metric_catalogue.json")
RANDOM = np.random.default_rng(20261118)
AVERAGES = ("micro", "macro", "weighted")


def single(values):
    """Rounds to float32, so that all readers have the same numbers."""
    return np.asarray(values).astype(np.float32)


def listed(array):
    """Nested lists of the shortest decimals that are read back as the same numbers."""
    if array.dtype == np.float32:
        return [listed(a) for a in array] if array.ndim > 1 else [float(str(x)) for x in array]
    return array.tolist()


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def softmax(x):
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def ratios(expected, predicted, average):
    values = sk.precision_recall_fscore_support(expected, predicted, average=average, zero_division=0)
    if average is None:
        return [[float(v) for v in row] for row in zip(*values)]
    return [float(v) for v in values[:3]]


def binary():
    targets = RANDOM.integers(2, size=70)
    logits = single(RANDOM.normal(size=70) + targets - 0.4)
    probabilities = sigmoid(logits)
    result = {"logits": listed(logits), "probabilities": probabilities.tolist(), "targets": targets.tolist()}
    result["thresholds"] = []
    for threshold in (0.5, 0.3, 0.9):
        predicted = (probabilities > threshold).astype(int)
        result["thresholds"].append({
            "threshold": threshold,
            "accuracy": sk.accuracy_score(targets, predicted),
            "ratios": ratios(targets, predicted, "binary"),
        })
    result["log_loss"] = sk.log_loss(targets, probabilities)
    p, t = torch.tensor(probabilities), torch.tensor(targets)
    for bins in (10, 15):
        result[f"ece{bins}"] = binary_calibration_error(p, t, n_bins=bins, norm="l1").item()
        result[f"mce{bins}"] = binary_calibration_error(p, t, n_bins=bins, norm="max").item()
    return result


def classes():
    labels = RANDOM.integers(5, size=90)
    logits = RANDOM.normal(size=(90, 5)) * 2
    logits[np.arange(90), labels] += 1.5
    logits = single(logits)
    probabilities = softmax(logits)
    result = {"logits": listed(logits), "probabilities": probabilities.tolist(), "labels": labels.tolist(),
              "log_loss": sk.log_loss(labels, probabilities)}
    p, t = torch.tensor(probabilities), torch.tensor(labels)
    for bins in (10, 15):
        for name, norm in (("ece", "l1"), ("mce", "max")):
            value = multiclass_calibration_error(p, t, num_classes=5, n_bins=bins, norm=norm)
            result[f"{name}{bins}"] = value.item()
    return result


def multilabel():
    targets = (RANDOM.random((80, 4)) < [0.5, 0.2, 0.1, 0.8]).astype(int)
    logits = single(RANDOM.normal(size=targets.shape) + 2 * targets - 1)
    predicted = (sigmoid(logits) > 0.4).astype(int)
    result = {"logits": listed(logits), "targets": targets.tolist(), "threshold": 0.4,
              "accuracy": float((predicted == targets).mean()),
              "exact_match": sk.accuracy_score(targets, predicted),
              "class": ratios(targets, predicted, None)}
    for average in AVERAGES:
        result["_" + average] = ratios(targets, predicted, average)
    return result


def tversky(matrix, alpha, beta, average):
    """By its definition, from a confusion matrix of each class: [class, 2, 2]."""
    tp, fn, fp = (matrix[:, 1, 1], matrix[:, 1, 0], matrix[:, 0, 1])
    if average == "micro":
        tp, fn, fp = (np.array([x.sum()]) for x in (tp, fn, fp))
    whole = tp + alpha * fn + beta * fp
    scores = np.where(whole == 0, 1.0, tp / np.where(whole == 0, 1, whole))
    weights = (tp + fn) if average == "weighted" else np.ones(len(tp))
    return scores.tolist() if average is None else float((scores * weights).sum() / weights.sum())


def overlaps(expected, predicted, labels, matrix):
    """IoU, Dice and Tversky by class and averaged, with 1 for a class that is not there."""
    result = {}
    for average in AVERAGES + (None,):
        key = "class" if average is None else "_" + average
        arguments = dict(labels=labels, average=average, zero_division=1)
        jaccard = sk.jaccard_score(expected, predicted, **arguments)
        dice = sk.f1_score(expected, predicted, **arguments)
        result[key] = {"iou": np.asarray(jaccard).tolist(), "dice": np.asarray(dice).tolist(),
                       "tversky": tversky(matrix, 0.7, 0.3, average)}
    return result


def labelled_maps(name, shape, classes, labels, strength, ignored=None):
    """Maps of labels: scores [N, C, …], of which the highest counts."""
    targets = RANDOM.choice(labels, size=shape)
    scores = RANDOM.normal(size=(shape[0], classes) + shape[1:])
    scores += strength * (np.arange(classes).reshape((1, -1) + (1,) * (len(shape) - 1)) == targets[:, None])
    scores = single(scores)
    predicted = scores.argmax(axis=1)
    if ignored is not None:
        targets[RANDOM.random(shape) < 0.2] = ignored
    kept = targets.ravel() != ignored
    y, p = targets.ravel()[kept], predicted.ravel()[kept]
    every = list(range(classes))
    matrix = sk.multilabel_confusion_matrix(y, p, labels=every)
    result = {"name": name, "classes": classes, "targets": targets.tolist(), "scores": listed(scores),
              "ignored": ignored, "overlaps": overlaps(y, p, every, matrix),
              "accuracy": sk.accuracy_score(y, p)}
    recall = dict(labels=every, zero_division=1)
    result["class_accuracy"] = sk.recall_score(y, p, average=None, **recall).tolist()
    result["macro_accuracy"] = sk.recall_score(y, p, average="macro", **recall)
    return result


def flag_maps():
    """Each class on its own: 0 and 1 [N, C, H, W], and a threshold."""
    targets = (RANDOM.random((3, 2, 4, 5)) < 0.4).astype(int)
    logits = single(RANDOM.normal(size=targets.shape) + 2 * targets - 1)
    predicted = (sigmoid(logits) > 0.3).astype(int)
    y, p = (np.moveaxis(x, 1, -1).reshape(-1, 2) for x in (targets, predicted))
    matrix = sk.multilabel_confusion_matrix(y, p)
    return {"targets": targets.tolist(), "logits": listed(logits), "threshold": 0.3,
            "overlaps": overlaps(y, p, None, matrix), "accuracy": float((y == p).mean()),
            "class_accuracy": (y == p).mean(axis=0).tolist()}


def numbers(name, expected, predicted):
    y, p = (x.astype(np.float64).reshape(len(x), -1) for x in (expected, predicted))
    columns = {"mae": [], "mse": [], "rmse": [], "r2": [], "mape": [], "explained_variance": [], "pearson": []}
    for c in range(y.shape[1]):
        a, b = y[:, c], p[:, c]
        columns["mae"].append(sk.mean_absolute_error(a, b))
        columns["mse"].append(sk.mean_squared_error(a, b))
        columns["rmse"].append(math.sqrt(sk.mean_squared_error(a, b)))
        columns["r2"].append(sk.r2_score(a, b))
        columns["mape"].append(sk.mean_absolute_percentage_error(a, b))
        columns["explained_variance"].append(sk.explained_variance_score(a, b))
        columns["pearson"].append(pearsonr(a, b)[0])
    return {"name": name, "targets": listed(expected), "outputs": listed(predicted), "double": expected.dtype == np.float64,
            "columns": {k: [float(x) for x in v] for k, v in columns.items()}}


def root(value):
    """The square root of a Fraction, exact to many more digits than a double has."""
    scale = 10**60
    return float(Fraction(math.isqrt(int(value * scale * scale)), scale))


def exact_numbers(name, expected, predicted):
    y, p = ([Fraction(float(v)) for v in x] for x in (expected, predicted))
    n = len(y)
    e = [b - a for a, b in zip(y, p)]

    def centered(a, b):
        ma, mb = sum(a) / n, sum(b) / n
        return sum((u - ma) * (v - mb) for u, v in zip(a, b))

    squares = sum(x * x for x in e)
    variation, covariation = centered(y, y), centered(p, y)
    pearson = root(covariation**2 / (centered(p, p) * variation)) * (1 if covariation > 0 else -1)
    columns = {"mae": float(sum(abs(x) for x in e) / n), "mse": float(squares / n), "rmse": root(squares / n),
               "r2": float(1 - squares / variation), "mape": float(sum(abs(x) / abs(a) for x, a in zip(e, y)) / n),
               "explained_variance": float(1 - centered(e, e) / variation), "pearson": pearson}
    return {"name": name, "targets": listed(expected), "outputs": listed(predicted), "double": True,
            "columns": {k: [v] for k, v in columns.items()}}


def fields():
    """Large samples with two outputs: [N, 2, 4, 4, 4]."""
    expected = single(RANDOM.normal(size=(5, 2, 4, 4, 4)) + 3)
    predicted = single(expected + 0.3 * RANDOM.normal(size=expected.shape))
    flat = [np.moveaxis(x, 1, -1).reshape(-1, 2) for x in (expected, predicted)]
    return {"targets": listed(expected), "outputs": listed(predicted),
            "columns": numbers("", *flat)["columns"],
            "all": numbers("", expected.reshape(-1, 1), predicted.reshape(-1, 1))["columns"]}


def ranked(name, relevances):
    count, items = relevances.shape
    scores = single(RANDOM.permuted(np.tile(np.arange(items), (count, 1)), axis=1) + 2 * relevances / relevances.max())
    scores += single(RANDOM.random(scores.shape) * 0.1)
    result = {"name": name, "scores": listed(scores), "relevances": relevances.tolist(), "k": {}}
    for k in (1, 3, 5, items):
        sums = dict.fromkeys(("hitrate", "any_hit", "mrr", "map", "ndcg"), 0.0)
        for s, r in zip(torch.tensor(scores, dtype=torch.float64), torch.tensor(relevances)):
            if r.sum() == 0:
                continue  # counts 0
            flags = r > 0
            sums["hitrate"] += retrieval_recall(s, flags, top_k=k).item()
            sums["any_hit"] += retrieval_hit_rate(s, flags, top_k=k).item()
            sums["map"] += retrieval_average_precision(s, flags, top_k=k).item()
            sums["mrr"] += retrieval_reciprocal_rank(s, flags, top_k=k).item()
            sums["ndcg"] += sk.ndcg_score([(2.0**r.numpy() - 1)], [s.numpy()], k=k)
            gains = 2.0**r.double() - 1
            assert abs(retrieval_normalized_dcg(s, gains, top_k=k).item()
                       - sk.ndcg_score([gains.numpy()], [s.numpy()], k=k)) < 1e-6
        result["k"][str(k)] = {metric: value / count for metric, value in sums.items()}
    return result


def main():
    warnings.simplefilter("error")
    y = RANDOM.normal(size=60)
    p = 0.8 * y + 0.4 * RANDOM.normal(size=60)
    columns = RANDOM.normal(size=(50, 3)) * [1, 10, 0.1]
    binary_relevance = (RANDOM.random((30, 12)) < 0.25).astype(int)
    binary_relevance[::10] = 0
    golden = {
        "binary": binary(),
        "classes": classes(),
        "multilabel": multilabel(),
        "maps": [
            labelled_maps("images", (4, 5, 6), 3, [0, 1, 2], 1.0),
            labelled_maps("volumes with a missing class", (2, 3, 4, 3), 4, [0, 1, 3], 30.0),
            labelled_maps("ignored pixels", (3, 4, 5), 3, [0, 1, 2], 1.5, ignored=255),
        ],
        "flag_maps": flag_maps(),
        "numbers": [
            numbers("doubles", y, p),
            numbers("floats", single(y), single(p)),
            numbers("three outputs", single(columns), single(columns + RANDOM.normal(size=columns.shape))),
            exact_numbers("far from zero", 1e9 + y, 1e9 + p + 3),
            exact_numbers("large and tiny", 1e150 * y, 1e150 * p),
        ],
        "fields": fields(),
        "ranked": [
            ranked("relevant or not", binary_relevance),
            ranked("graded", RANDOM.integers(4, size=(20, 8))),
        ],
    }
    OUTPUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
