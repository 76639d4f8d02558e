"""A checkpoint in which Python has changed weights and optimizer can be resumed."""
import torch
from common import checkpoint, lockstep, torch_model, train

train("run")
path = "run/checkpoints/last.pth"
state = checkpoint("run")
before = int(state["optimizer_state_dict"]["state"][0]["step"])  # load_state_dict may keep the tensor, and step() changes it
model = torch_model()
model.load_state_dict(state["model_state_dict"])
optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
optimizer.load_state_dict(state["optimizer_state_dict"])
loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(0, 3, (8,)))
loss.backward()
optimizer.step()
state["model_state_dict"] = model.state_dict()
state["optimizer_state_dict"] = optimizer.state_dict()
torch.save({"model_state_dict": state["model_state_dict"],
            "optimizer_state_dict": state["optimizer_state_dict"],
            **{key: value for key, value in state.items() if key not in ("model_state_dict", "optimizer_state_dict", "checksum")}},
           "python.pth")
lockstep("run", "-C", "config.yml", "--resume", "python.pth", "--num-epochs", "3", "--logdir", "again")
after = checkpoint("again")["optimizer_state_dict"]["state"][0]["step"]
steps = 64 // 8
assert int(after) == before + 1 + steps, (before, after)
print("Adam: its state is Python's after one more step")
