"""The safetensors library of Python reads our files, and we read those that it writes."""
import torch
from common import checkpoint, lockstep, torch_model, train
from safetensors.torch import load_file, save_file

train("run")
lockstep("export", "run", "--checkpoint", "last", "--format", "safetensors", "--output", "ours.safetensors")
ours = load_file("ours.safetensors")
expected = checkpoint("run")["model_state_dict"]
assert set(ours) == set(expected), (set(ours), set(expected))
for name, value in expected.items():
    assert torch.equal(ours[name], value), name
torch_model().load_state_dict(ours)

for dtype in (torch.float32, torch.float16, torch.bfloat16):
    model = torch_model()
    saved = {name: (value.to(dtype) if value.is_floating_point() else value).contiguous()
             for name, value in model.state_dict().items()}
    save_file(saved, "theirs.safetensors")
    train("again", "weights=theirs.safetensors", "optimizer.lr=0", "num_epochs=1")
    found = checkpoint("again")["model_state_dict"]
    for name, _ in model.named_parameters():
        assert torch.equal(found[name], saved[name].float()), (dtype, name)
print(f"{len(ours)} tensors of ours; theirs in float32, float16 and bfloat16")
