"""We begin with weights that the newest PyTorch has saved: float32, half, bfloat16, double."""
import torch
from common import checkpoint, torch_model, train

for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    torch.manual_seed(1)
    model = torch_model()
    saved = {name: value.to(dtype) if value.is_floating_point() else value
             for name, value in model.state_dict().items()}
    torch.save(saved, "weights.pth")
    # With a learning rate of 0 the weights stay.
    train("run", "weights=weights.pth", "optimizer.lr=0", "num_epochs=1")
    found = checkpoint("run")["model_state_dict"]
    for name, _ in model.named_parameters():
        assert found[name].dtype == torch.float32
        assert torch.equal(found[name], saved[name].float()), (dtype, name)
    print(f"{dtype}: {len(saved)} weights")
