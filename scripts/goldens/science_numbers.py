"""Computes spectra, filters, statistics and subgrid models with NumPy and SciPy, of fields that need no file:

    python3 scripts/goldens/science_numbers.py > tests/goldens/science_numbers.json

The fields are sums of sines, so that a test can make them itself. All sides of a field have the same
length, also if they have different numbers of points; the tests set Lockstep's `box` accordingly.
"""
import json
import sys

import numpy as np
from scipy import ndimage, stats


def field(shape, seed):
    grids = np.meshgrid(*[np.arange(n) / n for n in shape], indexing="ij")
    total = np.zeros(shape)
    for m in range(1, 6):
        phase = sum((m + seed + i) % 4 * g for i, g in enumerate(grids))
        total += np.sin(2 * np.pi * phase + 0.7 * m + seed) / m
    return total + 0.1 * np.cos(np.arange(total.size).reshape(shape) * 0.37 + seed)


def spectrum(fields):
    shape = fields[0].shape
    energy = sum(np.abs(np.fft.fftn(f) / f.size) ** 2 for f in fields)
    k = np.sqrt(sum(g ** 2 for g in np.meshgrid(*[np.rint(np.fft.fftfreq(n) * n) for n in shape], indexing="ij")))
    shells = np.rint(k).astype(int)
    sums = np.bincount(shells.ravel(), energy.ravel())
    return (0.5 * sums[1:min(shape) // 2 + 1]).tolist()


def spectral(f, cutoff):
    k = np.sqrt(sum(g ** 2 for g in np.meshgrid(*[np.rint(np.fft.fftfreq(n) * n) for n in f.shape], indexing="ij")))
    return np.fft.ifftn(np.fft.fftn(f) * (k <= cutoff)).real


def gradient(u, spacing):
    return np.array([[(np.roll(u[i], -1, j) - np.roll(u[i], 1, j)) / (2 * spacing) for j in range(len(u))]
                     for i in range(len(u))])


def reynolds(u, filt):
    s = [filt(c) for c in u]
    return np.array([[filt(u[i] * u[j]) - s[i] * s[j] for j in range(len(u))] for i in range(len(u))])


def smagorinsky(u, filt, width, ratio):
    g = gradient(u, 1.0)
    strain = 0.5 * (g + g.transpose(1, 0, 2, 3, 4))
    strain -= np.eye(3)[:, :, None, None, None] * np.einsum("iiabc->abc", strain) / 3
    magnitude = np.sqrt((2 * strain * strain).sum((0, 1)))
    known = reynolds(u, filt)
    known -= np.eye(3)[:, :, None, None, None] * np.einsum("iiabc->abc", known) / 3
    ts = np.array([[filt(strain[i, j]) for j in range(3)] for i in range(3)])
    tm = np.sqrt((2 * ts * ts).sum((0, 1)))
    fs = np.array([[filt(magnitude * strain[i, j]) for j in range(3)] for i in range(3)])
    m = 2 * width ** 2 * (fs - ratio ** 2 * tm * ts)
    c = (known * m).sum() / (m * m).sum()
    return c, -2 * c * width ** 2 * magnitude * strain


def some(a):
    """A few elements and the norm: enough to find a difference, and small enough for the file."""
    flat = np.asarray(a).ravel()
    return {"norm": float(np.linalg.norm(flat)), "some": flat[:: max(1, flat.size // 16)].tolist()}


shapes = {"1": (30,), "2": (12, 9), "3": (12, 10, 8)}
out = {"spectrum": {}, "spectral": {}, "box": {}, "gaussian": {}}
for key, shape in shapes.items():
    f = field(shape, 1)
    out["spectrum"][key] = spectrum([f])
    out["spectral"][key] = some(spectral(f, 3))
    out["box"][key] = {str(w): some(ndimage.uniform_filter(f, w, mode="wrap")) for w in (3, 4)}
    out["gaussian"][key] = some(ndimage.gaussian_filter(f, 0.8, mode="wrap"))
u = np.array([field((12, 12, 12), s) for s in (1, 2, 3)])
out["vector_spectrum"] = spectrum(list(u))
out["gradient_model"] = some(np.einsum("ikabc,jkabc->ijabc", gradient(u, 1.0), gradient(u, 1.0)) * 2.0 ** 2 / 12)
out["reynolds"] = some(reynolds(u, lambda f: ndimage.uniform_filter(f, 3, mode="wrap")))
c, stress = smagorinsky(u, lambda f: ndimage.uniform_filter(f, 3, mode="wrap"), 1.0, 2.0)
out["smagorinsky"] = {"coefficient": float(c), "stress": some(stress)}
a, b = field((12, 10, 8), 1).ravel(), field((9, 7, 8), 5).ravel()
out["ks"] = float(stats.ks_2samp(a, b).statistic)
out["ks_same"] = float(stats.ks_2samp(np.round(a, 1), np.round(b, 1)).statistic)
density, edges = np.histogram(a, 20, (b.min(), a.max()), density=True)
out["histogram"] = {"first": float(b.min()), "last": float(a.max()), "density": density.tolist(), "edges": edges.tolist()}
rng = np.random.default_rng(0)
x, y = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
q = rng.normal(size=(5, 3))


def kernel(p, r, gamma=0.5):
    return np.exp(-gamma * ((p[:, None] - r[None]) ** 2).sum(-1))


out["krr"] = {"x": x.tolist(), "y": y.tolist(), "q": q.tolist(),
              "predicted": (kernel(q, x) @ np.linalg.solve(kernel(x, x) + 0.3 * np.eye(20), y)).tolist()}
json.dump(out, sys.stdout, indent=1)
print()
