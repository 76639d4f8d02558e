"""Writes a small file with h5py: compressed, chunked, with several types and numbers of dimensions.

    python3 scripts/goldens/science_h5py.py tests/goldens/science_h5py.h5
"""
import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as file:
    values = np.arange(2 * 6 * 4 * 4, dtype=np.float64).reshape(2, 6, 4, 4)
    file.create_dataset("velocity", data=values, chunks=(1, 3, 4, 4), compression="gzip")
    file.create_dataset("density", data=values[0].astype(np.float32))
    file.create_dataset("count", data=values[0].astype(np.int32))
    file.create_dataset("name", data="a simulation")
    file.create_dataset("big_endian", data=values[0, 0].astype(">f4"))
    file.create_dataset("flag", data=np.array([True, False]))
    file.create_dataset("time", data=0.25)
    file.create_group("more").create_dataset("inner", data=[1.0, 2.0])
