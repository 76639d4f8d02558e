"""torch.load reads our checkpoints with its defaults, and load_state_dict takes the weights."""
import torch
from common import checkpoint, torch_model, train

train("run")
state = checkpoint("run")
assert isinstance(state["run"]["epoch"], int) and state["run"]["epoch"] == 2
model = torch_model()
model.load_state_dict(state["model_state_dict"])
assert torch.isfinite(model.eval()(torch.ones(2, 4))).all()
print(f"PyTorch {torch.__version__}: {len(state['model_state_dict'])} weights")
