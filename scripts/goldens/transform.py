#!/usr/bin/env python3
"""Writes tests/goldens/transform.json: results of Pillow, torchvision and torch for images from a formula.

Bytes are written in hexadecimal. Needs Debian's python3-torchvision:

    /usr/bin/python3 scripts/goldens/transform.py
"""
import json
import math
import pathlib

import PIL.Image
import numpy
import torch
import torch.nn.functional as F
import torchvision
import torchvision.transforms.functional as V

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "tests/goldens/transform.json"
MODES = {"nearest": PIL.Image.NEAREST, "bilinear": PIL.Image.BILINEAR, "bicubic": PIL.Image.BICUBIC}


def byte_image(*shape):
    """Smooth waves with some noise on them, so that both edges and flat parts are there."""
    i = torch.arange(math.prod(shape))
    return ((i * 3 + (i * i) % 1009 // 8) % 256).to(torch.uint8).reshape(shape)


def float_image(*shape):
    return byte_image(*shape).float() / 255


def pil(image):
    return PIL.Image.fromarray(image.numpy())


def tensor(image):
    return torch.from_numpy(numpy.array(image))


def saved(result):
    if isinstance(result, PIL.Image.Image):
        result = tensor(result)
    if result.dtype == torch.uint8:
        return {"shape": list(result.shape), "bytes": bytes(result.contiguous().numpy().tobytes()).hex()}
    return {"shape": list(result.shape), "floats": [float(f"{x:.7g}") for x in result.flatten().tolist()]}


goldens = {}


def add(name, result):
    assert name not in goldens, name
    goldens[name] = saved(result)


def resize_window(image, top, left, height, width, size, mode):
    """What resample() promises: a crop to the touched pixels, then a resize of the box inside it."""
    y, x = math.floor(top), math.floor(left)
    touched = image.crop((x, y, math.ceil(left + width), math.ceil(top + height)))
    box = (left - x, top - y, left - x + width, top - y + height)
    return touched.resize((size[1], size[0]), mode, box=box)


def resample():
    colours, grey, four = byte_image(23, 31, 3), byte_image(23, 31), byte_image(23, 31, 4)
    for mode, code in MODES.items():
        add(f"resample/{mode}/smaller", resize_window(pil(colours), 0, 0, 23, 31, (9, 40), code))
        add(f"resample/{mode}/larger", resize_window(pil(colours), 0, 0, 23, 31, (30, 13), code))
        add(f"resample/{mode}/crop", resize_window(pil(colours), 4, 5, 15, 20, (8, 9), code))
        add(f"resample/{mode}/fraction", resize_window(pil(colours), 2.25, 3.75, 17.5, 20.125, (7, 11), code))
        add(f"resample/{mode}/grey", resize_window(pil(grey), 1, 2, 20, 25, (7, 33), code))
        add(f"resample/{mode}/grey/fraction", resize_window(pil(grey), 0.5, 2.5, 20, 25, (7, 33), code))
    # An image with an alpha channel is premultiplied by Pillow's resize(), but one of four inks is not.
    inks = PIL.Image.frombytes("CMYK", (31, 23), four.numpy().tobytes())
    add("resample/bilinear/four", inks.resize((12, 10), PIL.Image.BILINEAR))
    floats = float_image(2, 13, 17)
    for mode in ["bilinear", "bicubic"]:
        for antialias in [False, True]:
            for name, size in [("smaller", (5, 8)), ("larger", (19, 24))]:
                result = F.interpolate(floats[None], size, mode=mode, antialias=antialias, align_corners=False)
                add(f"resample/floats/{mode}/{'antialias' if antialias else 'plain'}/{name}", result[0])
        plain = F.interpolate(colours.permute(2, 0, 1)[None].float(), (9, 13), mode=mode, align_corners=False)
        add(f"resample/{mode}/plain", plain[0].round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0))


resample()

lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(golden)}" for name, golden in goldens.items())
OUTPUT.write_text(f'{{"torch": "{torch.__version__}", "torchvision": "{torchvision.__version__}", '
                  f'"pillow": "{PIL.__version__}",\n"goldens": {{\n{lines}}}}}\n')
