"""Arrays as numpy.save writes them, for tests/source/npy_test.cpp and npy_reader_test.cpp.

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

# For the reader: other byte orders, types and layouts, and archives.
x = np.arange(12).reshape(3, 4)
np.save(f"{FOLDER}/big_endian.npy", x.astype(">f8"))
np.save(f"{FOLDER}/fortran.npy", np.asfortranarray(x.astype(np.float32)))
np.save(f"{FOLDER}/unsigned.npy", (x + 65_000).astype(np.uint16))
np.save(f"{FOLDER}/complex.npy", (x + 1j).astype(np.complex64))
np.save(f"{FOLDER}/number.npy", np.float32(2.5))
np.save(f"{FOLDER}/structured.npy", np.zeros(2, dtype=[("a", "<f4"), ("b", "<i8")]))
np.save(f"{FOLDER}/objects.npy", np.array([{}, None], dtype=object), allow_pickle=True)
np.save(f"{FOLDER}/text.npy", np.array(["a", "bc"]))
arrays = {"x": x.astype(np.float32) / 8, "y": np.arange(3)}
np.savez(f"{FOLDER}/stored.npz", **arrays)
np.savez_compressed(f"{FOLDER}/packed.npz", **arrays)
