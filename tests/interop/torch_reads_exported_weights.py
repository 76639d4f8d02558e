"""`lockstep export --format pth` writes a plain state_dict, and torchscript a program that PyTorch runs."""
import torch
from common import checkpoint, lockstep, torch_model, train

train("run")
lockstep("export", "run", "--checkpoint", "last", "--format", "pth", "--output", "weights.pth")
weights = torch.load("weights.pth")
model = torch_model().eval()
model.load_state_dict(weights)
for name, value in checkpoint("run")["model_state_dict"].items():
    assert torch.equal(weights[name], value), name
lockstep("export", "run", "--checkpoint", "last", "--format", "torchscript", "--output", "model.pt")
script = torch.jit.load("model.pt").eval()
batch = torch.randn(5, 4)
torch.testing.assert_close(script(batch), model(batch), rtol=1e-5, atol=1e-5)
print("pth and torchscript give the outputs of the model")
