"""Arrays as numpy.save writes them, for tests/data/npy_test.cpp.

Run it from the root of the repository with a Python that has NumPy 1.24 or newer: older ones leave less room in
the header.
"""

import numpy as np

FOLDER = "tests/goldens/npy"

np.save(f"{FOLDER}/float.npy", np.arange(12, dtype=np.float32).reshape(3, 4) / 8)
np.save(f"{FOLDER}/long.npy", np.arange(5, dtype=np.int64) - 2)
np.save(f"{FOLDER}/bool.npy", np.array([[True], [False]]))
np.save(f"{FOLDER}/half.npy", np.arange(24, dtype=np.float16).reshape(2, 3, 1, 4))
np.save(f"{FOLDER}/empty.npy", np.zeros((0, 3), dtype=np.float64))
