"""Writes tests/goldens/torchvision.json: the names, shapes and types of the state_dict of torchvision's ResNets, in
its order, and which are parameters. Needs torch and torchvision:

    python3 scripts/goldens/torchvision_names.py > tests/goldens/torchvision.json
"""
import json
import sys

import torchvision


def entries(model):
    parameters = {name for name, _ in model.named_parameters()}
    return [[name, list(tensor.shape), str(tensor.dtype).removeprefix("torch."), name in parameters]
            for name, tensor in model.state_dict().items()]


json.dump({f"resnet{depth}": entries(getattr(torchvision.models, f"resnet{depth}")()) for depth in (18, 34, 50)},
          sys.stdout, separators=(",", ":"))
print()
