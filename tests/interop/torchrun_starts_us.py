"""torchrun of the newest PyTorch starts our programs as ranks, with the bits of one process."""
import os
import subprocess
import sys

import torch
from common import LOCKSTEP, train, weights_of

expected = weights_of(train("one", "--shards", "2", "--workers", "1"))
torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
ran = subprocess.run([torchrun, "--standalone", "--nproc-per-node", "2", "--no-python", LOCKSTEP, "run", "-C",
                      "config.yml", "--shards", "2", "--logdir", "two"],
                     capture_output=True, text=True, timeout=240)
assert ran.returncode == 0, ran.stdout + ran.stderr
assert weights_of(ran.stdout) == expected, (ran.stdout, expected)
print(f"torchrun of PyTorch {torch.__version__}: two ranks, weights {expected}")
