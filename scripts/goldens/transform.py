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


def crops():
    image = pil(byte_image(20, 31, 3))
    tall = pil(byte_image(31, 20, 3))
    add("resize/both", V.resize(image, [12, 9]))
    add("resize/shorter", V.resize(image, [9]))
    add("resize/shorter/tall", V.resize(tall, [9]))
    add("resize/max_size", V.resize(image, [9], max_size=11))
    add("resize/bicubic", V.resize(image, [9, 13], V.InterpolationMode.BICUBIC))
    add("center_crop", V.center_crop(image, [9, 8]))
    add("center_crop/odd", V.center_crop(image, [17, 14]))
    add("resized_crop", V.resized_crop(image, 3, 4, 11, 17, [8, 8]))


def pads():
    image, floats = pil(byte_image(6, 7, 3)), float_image(2, 4, 5)
    add("pad/constant", V.pad(image, [1, 2, 3, 4], fill=9))
    add("pad/colour", V.pad(image, [2], fill=(1, 2, 3)))
    for mode in ["edge", "reflect", "symmetric"]:
        add(f"pad/{mode}", V.pad(image, [3, 2], padding_mode=mode))
        add(f"pad/{mode}/floats", V.pad(floats, [1, 2, 3, 1], padding_mode=mode))


INTERPOLATIONS = {"nearest": V.InterpolationMode.NEAREST, "bilinear": V.InterpolationMode.BILINEAR}


def as_planes(image, change):
    """Floats, channel by channel, as Pillow's images of floats."""
    return torch.stack([tensor(change(PIL.Image.fromarray(plane.numpy(), "F"))) for plane in image])


def moves():
    image, square, floats = pil(byte_image(14, 17, 3)), pil(byte_image(12, 12, 3)), float_image(2, 11, 9)
    for name, mode in INTERPOLATIONS.items():
        for angle in [30, -75.5, 90, 180, 400]:
            add(f"rotate/{name}/{angle}", V.rotate(image, angle, mode, fill=7))
        add(f"rotate/{name}/expand", V.rotate(image, 33, mode, expand=True))
        add(f"rotate/{name}/expand/90", V.rotate(image, 90, mode, expand=True))
        add(f"rotate/{name}/square", V.rotate(square, 270, mode))
        add(f"rotate/{name}/floats", as_planes(floats, lambda plane: V.rotate(plane, 20, mode)))
        add(f"affine/{name}", V.affine(image, 20, [2, -3], 1.3, [10, -5], mode, fill=[1, 2, 3]))
        add(f"affine/{name}/move", V.affine(image, 0, [3, -2], 1, [0, 0], mode))
        add(f"affine/{name}/center", V.affine(image, 0, [0, 0], 1, [25, 0], mode, center=[0, 0]))
        add(f"affine/{name}/floats",
            as_planes(floats, lambda plane: V.affine(plane, -40, [1, 1], 0.8, [0, 12], mode)))


def colours():
    image, grey, floats = pil(byte_image(9, 11, 3)), pil(byte_image(9, 11)), float_image(3, 6, 7)
    changes = {"brightness": V.adjust_brightness, "contrast": V.adjust_contrast,
               "saturation": V.adjust_saturation, "sharpness": V.adjust_sharpness}
    for name, change in changes.items():
        for factor in [0, 0.3, 1, 1.7]:
            add(f"{name}/{factor}", change(image, factor))
            if name != "sharpness":
                add(f"{name}/{factor}/floats", change(floats, factor))
        add(f"{name}/grey", change(grey, 1.4))
    for turn in [-0.5, -0.1, 0.0, 0.25]:
        add(f"hue/{turn}", V.adjust_hue(image, turn))
        add(f"hue/{turn}/floats", V.adjust_hue(floats, turn))
    add("grayscale/1", tensor(V.to_grayscale(image, 1))[:, :, None])
    add("grayscale/3", V.to_grayscale(image, 3))
    add("grayscale/1/floats", V.rgb_to_grayscale(floats, 1))
    add("grayscale/3/floats", V.rgb_to_grayscale(floats, 3))
    for bits in [1, 4, 8]:
        add(f"posterize/{bits}", V.posterize(image, bits))
    for threshold in [0, 99.5, 255]:
        add(f"solarize/{threshold}", V.solarize(image, threshold))
    dull = pil(byte_image(9, 11, 3) // 3 + 40)
    add("autocontrast", V.autocontrast(dull))
    large = pil(byte_image(40, 40, 3) // 2)
    add("equalize", V.equalize(large))
    add("equalize/few", V.equalize(dull))


def blurs():
    image, floats = pil(byte_image(10, 12, 3)), float_image(2, 8, 9)
    for size, sigma in [(3, 0.8), (7, 2.0)]:
        add(f"blur/{size}", V.gaussian_blur(image, [size, size], [sigma, sigma]))
        add(f"blur/{size}/floats", V.gaussian_blur(floats, [size, size], [sigma, sigma]))
    add("blur/grey", V.gaussian_blur(pil(byte_image(10, 12)), [5, 5], [1.1, 1.1]))


def augmentations():
    from torchvision.transforms import autoaugment
    image = pil(byte_image(16, 18, 3))
    for name, magnitude in [("Identity", 0.0), ("ShearX", 0.66), ("ShearY", -0.33), ("TranslateX", 4.9),
                            ("TranslateY", -3.2), ("Rotate", 40.5), ("Brightness", 0.5), ("Color", -0.7),
                            ("Contrast", 0.9), ("Sharpness", -0.6), ("Posterize", 3.0), ("Solarize", 110.0),
                            ("AutoContrast", 0.0), ("Equalize", 0.0)]:
        add(f"augment/{name}", autoaugment._apply_op(image, name, magnitude, V.InterpolationMode.NEAREST, None))


resample()
crops()
pads()
moves()
colours()
blurs()
augmentations()

lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(golden)}" for name, golden in goldens.items())
OUTPUT.write_text(f'{{"torch": "{torch.__version__}", "torchvision": "{torchvision.__version__}", '
                  f'"pillow": "{PIL.__version__}",\n"goldens": {{\n{lines}}}}}\n')
