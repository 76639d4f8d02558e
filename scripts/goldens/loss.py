"""Writes tests/goldens/loss.json: losses and gradients by the formulas of the papers, one pair, pixel or sample at
a time. The numbers of the inputs are fractions of powers of two, so both sides have the same bits."""
import json
import math
import pathlib

import torch


def numbers(shape, factor, modulus=23):
    size = torch.Size(shape).numel()
    values = [((factor * i + i * i) % modulus - modulus // 2) / 8 for i in range(size)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def classes(shape, factor, count):
    size = torch.Size(shape).numel()
    return torch.tensor([(factor * i + i * i // 3) % count for i in range(size)]).reshape(shape)


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else torch.zeros((), dtype=torch.float64)


# Focal losses (Lin et al. 2017).

def focal(scores, targets, gamma=2.0, weight=None, ignore_index=-100):
    def terms():
        flat = scores.movedim(1, -1).reshape(-1, scores.shape[1])
        for row, target in zip(flat, targets.flatten().tolist()):
            if target == ignore_index:
                continue
            p = torch.exp(row[target]) / torch.exp(row).sum()
            yield (1 if weight is None else weight[target]) * (1 - p) ** gamma * -torch.log(p)
    return mean(terms())


def binary_focal(scores, targets, gamma=2.0, alpha=None):
    def terms():
        for score, target in zip(scores.flatten(), targets.flatten()):
            p = 1 / (1 + torch.exp(-score))
            entropy = -(target * torch.log(p) + (1 - target) * torch.log(1 - p))
            wrong = p * (1 - target) + (1 - p) * target
            factor = 1 if alpha is None else alpha * target + (1 - alpha) * (1 - target)
            yield factor * wrong ** gamma * entropy
    return mean(terms())


# Overlap of regions: Dice, Jaccard, Tversky (Salehi et al. 2017), focal Tversky (Abraham and Khan 2019).

def tversky(scores, targets, false_positives, false_negatives, gamma=1.0, probabilities="softmax", smooth=1e-5,
            batch=False, weight=None, ignore_index=None):
    if probabilities == "softmax":
        chances = torch.exp(scores) / torch.exp(scores).sum(1, keepdim=True)
    elif probabilities == "sigmoid":
        chances = 1 / (1 + torch.exp(-scores))
    else:
        chances = scores
    samples, count = scores.shape[:2]

    def share(sample, index):
        if targets.is_floating_point():
            return targets[sample, index].flatten()
        return (targets[sample] == index).double().flatten()

    def kept(sample):
        if ignore_index is None:
            return slice(None)
        return (targets[sample] != ignore_index).flatten()

    groups = [range(samples)] if batch else [[i] for i in range(samples)]
    total = 0
    for group in groups:
        losses = []
        for index in range(count):
            p = torch.cat([chances[i, index].flatten()[kept(i)] for i in group])
            y = torch.cat([share(i, index)[kept(i)] for i in group])
            t, fp, fn = (p * y).sum(), (p * (1 - y)).sum(), ((1 - p) * y).sum()
            value = (t + smooth) / (t + false_positives * fp + false_negatives * fn + smooth)
            losses.append((1 - value) ** (1 / gamma))
        weights = weight or [1.0] * count
        total = total + sum(w * loss for w, loss in zip(weights, losses)) / sum(weights)
    return total / len(groups)


def dice(scores, targets, **options):
    return tversky(scores, targets, 0.5, 0.5, **options)


def iou(scores, targets, **options):
    return tversky(scores, targets, 1.0, 1.0, **options)


# Metric learning.

def distance(a, b):
    return torch.sqrt(((a - b) ** 2).sum())


def pairs(labels):
    return [(i, j) for i in range(len(labels)) for j in range(i)]


def contrastive(rows, labels, margin=1.0):
    return mean(distance(rows[i], rows[j]) ** 2 / 2 if labels[i] == labels[j]
                else torch.relu(margin - distance(rows[i], rows[j])) ** 2 / 2 for i, j in pairs(labels))


def margin_loss(rows, labels, beta=1.0, alpha=0.2):
    return mean(torch.relu(alpha + (1 if labels[i] == labels[j] else -1) * (distance(rows[i], rows[j]) - beta))
                for i, j in pairs(labels))


def triplet(rows, labels, margin=0.3, mining="hard"):
    count, terms = len(labels), []
    for i in range(count):
        same = [distance(rows[i], rows[j]) for j in range(count) if j != i and labels[j] == labels[i]]
        other = [distance(rows[i], rows[j]) for j in range(count) if labels[j] != labels[i]]
        if not same or not other:
            continue
        if mining == "hard":
            terms.append(torch.relu(max(same) - min(other) + margin))
        else:
            terms += [t for s in same for o in other if (t := s - o + margin) > 0]
    return mean(terms)


def supervised_contrastive(rows, labels, temperature=0.1):
    count, terms = len(labels), []
    rows = [row / torch.sqrt((row ** 2).sum()) for row in rows]
    for i in range(count):
        others = [j for j in range(count) if j != i]
        same = [j for j in others if labels[j] == labels[i]]
        if same:
            all_of_them = sum(torch.exp((rows[i] * rows[j]).sum() / temperature) for j in others)
            terms.append(mean(torch.log(all_of_them) - (rows[i] * rows[j]).sum() / temperature for j in same))
    return mean(terms)


def barlow_twins(left, right, off_diagonal=0.005, eps=1e-5):
    def standard(x):
        return (x - x.mean(0)) / torch.sqrt(x.var(0, unbiased=False) + eps)

    left, right, loss = standard(left), standard(right), 0
    for i in range(left.shape[1]):
        for j in range(left.shape[1]):
            c = (left[:, i] * right[:, j]).sum() / left.shape[0]
            loss = loss + ((1 - c) ** 2 if i == j else off_diagonal * c ** 2)
    return loss


def main():
    scores, labels = numbers((6, 4), 7), classes((6,), 5, 4)
    maps, pixels = numbers((3, 4, 5, 2), 5), classes((3, 5, 2), 7, 4)
    shares = (numbers((3, 4, 5, 2), 11) > 0).double()
    rows, names = numbers((7, 3), 9) / 2, torch.tensor([0, 1, 0, 2, 1, 0, 3])
    cases = []

    def add(name, function, outputs, targets, **options):
        outputs = outputs.clone().requires_grad_()
        loss = function(outputs, targets, **options)
        loss.backward()
        assert math.isfinite(loss.item()) and loss.item() > 0, name
        cases.append({"name": name, "options": options, "shape": list(outputs.shape),
                      "outputs": outputs.detach().flatten().tolist(),
                      "target_shape": list(targets.shape), "targets": targets.flatten().tolist(),
                      "loss": loss.item(), "gradient": outputs.grad.flatten().tolist()})

    add("FocalLoss", focal, scores, labels)
    add("FocalLoss", focal, scores, labels, gamma=0.5, weight=[1.0, 2.0, 0.5, 3.0], ignore_index=2)
    add("FocalLoss", focal, maps, pixels, gamma=1.5)
    add("BinaryFocalLoss", binary_focal, maps, shares)
    add("BinaryFocalLoss", binary_focal, maps, shares * 0.75 + 0.125, gamma=1.5, alpha=0.25)
    for name, function in (("DiceLoss", dice), ("IoULoss", iou)):
        add(name, function, maps, pixels)
        add(name, function, maps, shares, probabilities="sigmoid", smooth=0.5)
        add(name, function, maps, pixels, batch=True, weight=[1.0, 2.0, 0.0, 3.0])
        add(name, function, maps, pixels, ignore_index=1)
        add(name, function, torch.softmax(maps, 1), pixels, probabilities="none")
    add("TverskyLoss", tversky, maps, pixels, false_positives=0.3, false_negatives=0.7)
    add("TverskyLoss", tversky, maps, pixels, false_positives=0.6, false_negatives=0.2, gamma=4 / 3)
    add("ContrastiveLoss", contrastive, rows, names)
    add("ContrastiveLoss", contrastive, rows, names, margin=2.5)
    add("TripletLoss", triplet, rows, names)
    add("TripletLoss", triplet, rows, names, margin=0.1, mining="all")
    add("MarginLoss", margin_loss, rows, names)
    add("MarginLoss", margin_loss, rows, names, beta=1.5, alpha=0.5)
    add("SupervisedContrastiveLoss", supervised_contrastive, rows, names)
    add("SupervisedContrastiveLoss", supervised_contrastive, rows, names, temperature=0.5)
    add("BarlowTwinsLoss", barlow_twins, rows, numbers((7, 3), 4))
    add("BarlowTwinsLoss", barlow_twins, rows, numbers((7, 3), 4), off_diagonal=0.5, eps=0.25)
    path = pathlib.Path(__file__).parents[2] / "tests/goldens/loss.json"
    path.write_text(json.dumps({"torch": torch.__version__, "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
