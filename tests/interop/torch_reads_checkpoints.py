"""torch.load reads our checkpoints with its defaults, load_state_dict takes the weights, and the outputs are ours."""
import csv
import os

import torch
from common import CONFIG, checkpoint, lockstep, torch_model, train

# Python must have the inputs, too, so they are in a file.
torch.manual_seed(1)
batch = torch.randn(32, 4)
torch.save({"features": batch, "targets": torch.zeros(32, dtype=torch.int64)}, "data.pt")
noise = "{_target_: Noise, samples: 32, shape: 4, classes: 3, seed: 2}"
assert noise in CONFIG
data = "{TensorFile: {path: %s, keys: {features: features, targets: targets}}}" % os.path.abspath("data.pt")

train("run", config=CONFIG.replace(noise, data))
state = checkpoint("run")
assert isinstance(state["run"]["epoch"], int) and state["run"]["epoch"] == 2
model = torch_model()
model.load_state_dict(state["model_state_dict"])
lockstep("predict", "run", "--checkpoint", "last", "--output", "ours.csv")
with open("ours.csv") as file:
    ours = [[float(row[f"logits_{i}"]) for i in range(3)] for row in csv.DictReader(file)]
with torch.no_grad():
    torch.testing.assert_close(model.eval()(batch), torch.tensor(ours), rtol=1e-5, atol=1e-5)
print(f"PyTorch {torch.__version__}: {len(state['model_state_dict'])} weights, the outputs of {len(ours)} samples")
