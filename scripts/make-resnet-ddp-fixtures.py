#!/usr/bin/env python3
"""Writes testdata/golden/train/resnet_ddp: ResNet18 trained by torch's DistributedDataParallel over gloo.

Two processes run the loop of Colossal-AI's guide to gradient accumulation, once with its literal
rule and once with a step at the end of each window. The initial weights are those of
make-resnet-fixtures.py. Images come from a linear congruential generator, so they are not stored.
usage: make-resnet-ddp-fixtures.py [FOLDER]
"""
import contextlib
import gzip
import importlib.util
import json
import os
import pathlib
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from safetensors.torch import load, save

HERE = pathlib.Path(__file__).resolve().parent
RANKS, BATCH, SIZE, STEPS, WINDOW = 2, 8, 32, 8, 4
MODES = ("as_written", "every_window_end")


def single():
    spec = importlib.util.spec_from_file_location("single", HERE / "make-resnet-fixtures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batch(rank, step):
    """Images in 0..255 and labels, from the high bytes of a 32-bit generator."""
    state, out = 101 + rank * STEPS + step, []  # seeds whose float32 and float64 runs agree
    for _ in range(BATCH * 3 * SIZE * SIZE + BATCH):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(state >> 24)
    images = np.array(out[:-BATCH], dtype=np.float32).reshape(BATCH, 3, SIZE, SIZE)
    return torch.from_numpy(images), torch.tensor([b % 10 for b in out[-BATCH:]])


def run(rank, mode, init):
    s = single()
    net = s.ResNet18()
    net.load_state_dict(init)
    if rank > 0:  # what DistributedDataParallel must replace
        with torch.no_grad():
            for t in net.state_dict().values():
                t.add_(1)
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    opt = torch.optim.SGD(ddp.parameters(), lr=s.LR, momentum=s.MOMENTUM, weight_decay=s.DECAY)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (s.MEAN, s.STD))
    rows = []
    for i in range(STEPS):
        images, labels = batch(rank, i)
        stepped = i % (WINDOW - 1) == 0 if mode == "as_written" else (i + 1) % WINDOW == 0
        with contextlib.nullcontext() if stepped else ddp.no_sync():
            loss = F.cross_entropy(ddp((images / 255 - mean) / std), labels)
            (loss / WINDOW).backward()
        if stepped:
            opt.step()
            opt.zero_grad()
        rows.append(dict(loss=loss.item(), stepped=stepped, conv1_first10=net.conv1.weight.flatten()[:10].tolist(),
                         fc_bias=net.fc.bias.tolist(), bn1_running_mean=net.bn1.running_mean.tolist(),
                         bn1_running_var=net.bn1.running_var.tolist(),
                         last_running_var=net.layer4[1].bn2.running_var.tolist()))
    return rows, {k: v.detach().clone().contiguous() for k, v in net.state_dict().items()}


def process(rank, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29700), RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    init = load(gzip.decompress((HERE.parent / "testdata/golden/train/resnet/init.safetensors.gz").read_bytes()))
    cases = []
    for mode in MODES:
        rows, final = run(rank, mode, {k: v.clone() for k, v in init.items()})
        ranks = [None] * RANKS
        dist.all_gather_object(ranks, rows)
        cases.append(dict(mode=mode, ranks=ranks))
        if rank == 0:
            (out / f"final_{mode}.safetensors.gz").write_bytes(gzip.compress(save(final), 9, mtime=0))
    if rank == 0:
        trace = dict(batch=BATCH, size=SIZE, gradient_accumulation=WINDOW, cases=cases, torch=torch.__version__)
        (out / "trace.json.gz").write_bytes(gzip.compress((json.dumps(trace, separators=(",", ":")) + "\n").encode(), mtime=0))
    dist.destroy_process_group()


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "testdata/golden/train/resnet_ddp"
    out.mkdir(parents=True, exist_ok=True)
    mp.spawn(process, (out,), RANKS)
