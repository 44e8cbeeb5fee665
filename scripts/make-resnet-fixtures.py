#!/usr/bin/env python3
"""Writes testdata/golden/train/resnet: a ResNet18 of width 2 trained by torch for a few batches.

The folder has the layout of the reference's, without final weights. Random images of 16x16.
usage: make-resnet-fixtures.py [FOLDER]
"""
import gzip
import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import nn

WIDTH, BATCH, SIZE, STEPS, WINDOW = 2, 8, 16, 5, 4
LR, MOMENTUM, DECAY = 0.1, 0.9, 5e-4
MEAN, STD = [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]


class Block(nn.Module):
    def __init__(self, ins, outs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outs)
        self.conv2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outs)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        ins = WIDTH
        for i in range(4):
            outs = WIDTH << i
            setattr(self, f"layer{i+1}", nn.Sequential(Block(ins, outs, 1 + (i > 0)), Block(outs, outs, 1)))
            ins = outs
        self.fc = nn.Linear(ins, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for i in range(4):
            x = getattr(self, f"layer{i+1}")(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def run(mode, init, images, labels, grads):
    net = ResNet18()
    net.load_state_dict(init)
    opt = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    rows = []
    for i in range(STEPS):
        loss = F.cross_entropy(net((images[i].float() / 255 - mean) / std), labels[i])
        (loss / WINDOW).backward()
        if i == 0:
            grads.update({n: p.grad * WINDOW for n, p in net.named_parameters()})
        norm = sum(p.grad.double().square().sum() for p in net.parameters()).sqrt()
        stepped = i % (WINDOW - 1) == 0 if mode == "as_written" else (i + 1) % WINDOW == 0
        if stepped:
            opt.step()
            opt.zero_grad()
        rows.append(dict(iteration=i, loss=loss.item(), accumulated_grad_norm=norm.item(), stepped=stepped,
                         conv1_first10=net.conv1.weight.flatten()[:10].tolist(), fc_bias=net.fc.bias.tolist(),
                         bn1_running_mean=net.bn1.running_mean.tolist(), bn1_running_var=net.bn1.running_var.tolist()))
    return dict(mode=mode, iterations=rows)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    init = ResNet18().state_dict()
    images = torch.randint(0, 256, (STEPS, BATCH, 3, SIZE, SIZE), dtype=torch.uint8)
    labels = torch.randint(0, 10, (STEPS, BATCH))
    grads = {}
    cases = [run(mode, {k: v.clone() for k, v in init.items()}, images, labels, grads) for mode in ("as_written", "every_window_end")]
    trace = dict(width=WIDTH, batch=BATCH, gradient_accumulation=WINDOW,
                 optimizer=dict(name="sgd", lr=LR, momentum=MOMENTUM, weight_decay=DECAY),
                 normalize=dict(mean=MEAN, std=STD), cases=cases)
    here = pathlib.Path(__file__).resolve().parent.parent / "testdata/golden/train/resnet"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    out.mkdir(parents=True, exist_ok=True)
    (out / "trace.json.gz").write_bytes(gzip.compress((json.dumps(trace, separators=(",", ":")) + "\n").encode(), mtime=0))
    for name, tensors in dict(init=init, data=dict(images=images, labels=labels), first_batch_grads=grads).items():
        packed = gzip.compress(save({k: v.contiguous() for k, v in tensors.items()}), 9, mtime=0)
        (out / f"{name}.safetensors.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
