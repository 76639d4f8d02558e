"""Writes tests/goldens/network.json: the names of parameters and the outputs of Python's models, with weights
from a formula. Needs torch 2 and torchvision:

    python3 scripts/goldens/network.py > tests/goldens/network.json
"""
import json
import math
import sys

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


def wave(sizes, n):
    i = torch.arange(math.prod(sizes))
    return ((i * i) % 1009 + n).double().sin().float().reshape(sizes)


def wave_tokens(sizes, below):
    i = torch.arange(math.prod(sizes))
    return ((i * i) % 1009 % below).reshape(sizes)


@torch.no_grad()
def fill_by_formula(model):
    for n, parameter in enumerate(model.parameters()):
        if parameter.dim() > 1:
            inputs = parameter.numel() // parameter.size(0)
            parameter.copy_(wave(parameter.shape, n) * math.sqrt(2 / inputs))
        else:
            parameter.copy_(1 + wave(parameter.shape, n) * 0.1)


def saved(output):
    return {"sizes": list(output.shape), "values": [float(f"{x:.7g}") for x in output.flatten().tolist()]}


def golden(model, *inputs):
    """In double, from the same float weights and inputs."""
    fill_by_formula(model)
    model.double()
    inputs = [x.double() if x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        result = {"parameters": [name for name, _ in model.named_parameters()], "train": saved(model(*inputs))}
        model.eval()
        result["eval"] = saved(model(*inputs))
    return result


class SmallBlock(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.stride, self.more = stride, (out - channels) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        if self.stride > 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more, self.more))
        return (x + y).relu()


class ResNet20(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        for i, (channels, out) in enumerate(((16, 16), (16, 32), (32, 64))):
            stride = 1 if i == 0 else 2
            blocks = [SmallBlock(channels, out, stride), SmallBlock(out, out, 1), SmallBlock(out, out, 1)]
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.bn1(self.conv1(x)).relu())))
        return self.fc(x.mean((2, 3)))


class UNet(nn.Module):
    def __init__(self, dimensions, channels, out, width, depth, norm):
        super().__init__()
        conv, up = ((nn.Conv2d, nn.ConvTranspose2d), (nn.Conv3d, nn.ConvTranspose3d))[dimensions - 2]
        self.pool = (F.max_pool2d, F.max_pool3d)[dimensions - 2]

        def level(a, b):
            layers = []
            for c in (a, b):
                layers += [conv(c, b, 3, padding=1, bias=norm is None)] + ([norm(b)] if norm else []) + [nn.ReLU()]
            return nn.Sequential(*layers)

        widths = [width << i for i in range(depth + 1)]
        self.encoder = nn.ModuleList(level(a, b) for a, b in zip([channels] + widths, widths))
        self.upsample = nn.ModuleList(nn.Sequential(up(w, w // 2, 2, 2)) for w in widths[:0:-1])
        self.decoder = nn.ModuleList(level(w, w // 2) for w in widths[:0:-1])
        self.head = nn.Sequential(conv(width, out, 1))

    def forward(self, x):
        skipped = []
        for level in self.encoder:
            x = level(self.pool(x, 2) if skipped else x)
            skipped.append(x)
        skipped.pop()
        for up, level in zip(self.upsample, self.decoder):
            skip, x = skipped.pop(), up(x)
            padding = []
            for d in range(x.dim() - 1, 1, -1):
                padding += [0, skip.shape[d] - x.shape[d]]
            x = level(torch.cat((skip, F.pad(x, padding)), 1))
        return self.head(x)


class TransformerClassifier(nn.Module):
    def __init__(self, vocabulary, classes, tokens, width, layers, heads, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(tokens, width)
        layer = nn.TransformerEncoderLayer(width, heads, hidden, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens, mask):
        x = self.embedding(tokens) + self.position.weight[:tokens.shape[1]]
        x = self.encoder(x, src_key_padding_mask=mask)
        is_real = (~mask).unsqueeze(2)
        return self.head((x * is_real).sum(1) / is_real.sum(1))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.attn.c_attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    """nanoGPT's, with bias=True."""

    def __init__(self, vocabulary, tokens, width, layers, heads, tied):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(tokens, width),
            "h": nn.ModuleList(GptBlock(width, heads) for _ in range(layers)), "ln_f": nn.LayerNorm(width)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens):
        x = self.transformer.wte(tokens) + self.transformer.wpe.weight[:tokens.shape[1]]
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x)).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self, cell, inputs, vocabulary, classes, per_token, hidden, layers, bidirectional):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, inputs) if vocabulary else None
        self.rnn = cell(inputs, hidden, layers, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(hidden * (1 + bidirectional), classes)
        self.per_token, self.bidirectional = per_token, bidirectional

    def forward(self, x, lengths):
        count = x.shape[1]
        if self.embedding is not None:
            x = self.embedding(x)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, state = self.rnn(packed)
        if self.per_token:
            outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True, total_length=count)
            return self.head(outputs).transpose(1, 2)
        if isinstance(state, tuple):
            state = state[0]
        return self.head(torch.cat((state[-2], state[-1]), 1) if self.bidirectional else state[-1])


torch.set_num_threads(1)
images = wave((2, 3, 40, 37), 0)
lengths = torch.tensor([4, 7, 1])
mask = torch.arange(7) >= lengths.unsqueeze(1)
tokens = wave_tokens((3, 7), 11)
json.dump({
    "resnet18": golden(torchvision.models.resnet18(num_classes=5), images),
    "resnet20": golden(ResNet20(5), images),
    "resnet50": golden(torchvision.models.resnet50(num_classes=5), images),
    "unet2d": golden(UNet(2, 2, 3, 4, 2, nn.BatchNorm2d), wave((2, 2, 9, 6), 0)),
    "unet3d": golden(UNet(3, 1, 2, 2, 1, None), wave((1, 1, 3, 4, 5), 0)),
    "transformer": golden(TransformerClassifier(11, 3, 9, 8, 2, 2, 12), tokens, mask),
    "gpt": golden(Gpt(11, 9, 8, 2, 2, tied=False), tokens),
    "gpt_tied": golden(Gpt(11, 9, 8, 2, 2, tied=True), tokens),
    "lstm": golden(Recurrent(nn.LSTM, 5, 11, 3, False, 6, 2, True), tokens, lengths),
    "gru": golden(Recurrent(nn.GRU, 4, None, 3, True, 6, 1, False), wave((3, 7, 4), 0), lengths),
}, sys.stdout, indent=None, separators=(",", ":"))
print()
