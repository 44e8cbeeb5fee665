#!/usr/bin/env python3
"""Writes device map cases on random trees, answered by accelerate.

usage: make-devicemap-fixtures.py OUT/infer/devicemap SEED TREES   (needs torch and accelerate 1.15)

The trees have blocks of a no-split class, tied parameters, modules that stand in several
places, parameters beside children, buffers of both kinds and types below a byte. The
form is that of the other device map fixtures.
"""
import gzip
import json
import logging
import pathlib
import random
import re
import sys
import warnings

import torch
from accelerate.utils import CustomDtype, modeling
from torch import nn

DTYPES = [torch.float32, torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.float8_e4m3fn]
NAMES = ["0", "1", "10", "norm", "a", "attn"]
CUSTOM = {"int4": CustomDtype.INT4, "fp8": CustomDtype.FP8, "int2": CustomDtype.INT2}

find_tied = modeling.find_tied_parameters
modeling.find_tied_parameters = lambda model: sorted(find_tied(model))  # its order follows the hash seed


def new(name):
    return type(name, (nn.Module,), {})()


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.params, self.modules = [], []
        self.ties = self.r.random() < 0.5
        self.alias = self.r.random() < 0.2

    def tensors(self, module, most):
        r = self.r
        for name in r.sample(["weight", "bias", "scale"], r.randint(0, most)):
            if self.ties and self.params and r.random() < 0.2:
                module.register_parameter(name, r.choice(self.params))
                continue
            shape = [r.randint(0, 12) for _ in range(r.randint(1, 2))]
            p = nn.Parameter(torch.empty(shape, dtype=r.choice(DTYPES), device="meta"), requires_grad=False)
            module.register_parameter(name, p)
            self.params.append(p)
        if r.random() < 0.3:
            b = torch.empty([r.randint(0, 9)], dtype=r.choice(DTYPES), device="meta")
            module.register_buffer("buf", b, persistent=r.random() < 0.5)

    def module(self, depth):
        r = self.r
        if self.alias and self.modules and r.random() < 0.1:
            return r.choice(self.modules)
        m = new(r.choice(["Linear", "Block", "List", "Other"]))
        self.tensors(m, 2)
        if depth < 4 and r.random() < 0.7:
            for name in r.sample(NAMES, r.randint(0, 4)):
                m.add_module(name, self.module(depth + 1))
        self.modules.append(m)
        return m

    def root(self):
        m = new("Root")
        self.tensors(m, 1)
        for name in self.r.sample(NAMES, self.r.randint(1, 5)):
            m.add_module(name, self.module(1))
        return m


def tree(root):
    params, modules = {}, {}

    def node(m, path):
        if id(m) in modules:
            return {"same_as": modules[id(m)]}
        modules[id(m)] = path
        dot = path + "." if path else ""
        out = {"class": type(m).__name__}
        for name, p in m._parameters.items():
            row = [name, list(p.shape), str(p.dtype).removeprefix("torch.")]
            if id(p) in params:
                row.append(params[id(p)])
            params.setdefault(id(p), dot + name)
            out.setdefault("params", []).append(row)
        for name, b in m._buffers.items():
            row = [name, list(b.shape), str(b.dtype).removeprefix("torch."), name not in m._non_persistent_buffers_set]
            out.setdefault("buffers", []).append(row)
        for name, child in m._modules.items():
            out.setdefault("children", []).append([name, node(child, dot + name)])
        return out

    return node(root, "")


def special(root, rule):
    if rule is None:
        return None
    names = [n for n, _ in root.named_parameters(remove_duplicate=False)]
    return {n: dtype(next(d for e, d in rule if re.search(e, n))) for n in names if any(re.search(e, n) for e, _ in rule)}


def dtype(name):
    return CUSTOM.get(name) or (name and getattr(torch, name))


class Messages(logging.Handler):
    def emit(self, record):
        self.text = record.getMessage()


def answer(root, case):
    args = {"no_split_module_classes": case["no_split"], "dtype": dtype(case["dtype"]),
            "special_dtypes": special(root, case["special_dtypes_rule"])}
    memory = dict(map(tuple, case["max_memory"]))
    out = {}
    log = Messages()
    log.text = ""
    logger = logging.getLogger("accelerate.utils.modeling")
    logger.handlers, logger.propagate = [log], False
    logger.setLevel(logging.INFO)
    try:
        if case["mode"] != "sequential":
            memory = modeling.get_balanced_memory(root, memory, low_zero=case["mode"] == "balanced_low_0", **args)
            out["balanced_memory"] = [list(i) for i in memory.items()]
        args |= {"offload_buffers": case["offload_buffers"], "fallback_allocation": case["fallback_allocation"]}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            log.text = ""
            raw = modeling.infer_auto_device_map(root, memory, clean_result=False, **args)
            text = log.text
            clean = modeling.clean_device_map(dict(raw))
        out["device_map_raw"] = [list(i) for i in raw.items()]
        out["device_map"] = dict(sorted(clean.items()))
        if caught:
            out["warnings"] = [str(w.message) for w in caught]
        found = re.findall(r"  - (\S+): (\S+) bytes required", text)
        if found:
            out["minimum_memory_info"] = [[d, float(b)] for d, b in found]
    except Exception as e:
        out |= {"reference_fails": True, "error": {"type": type(e).__name__, "message": str(e)}}
    return out


def cases(maker, root, name, path):
    r = maker.r
    total = modeling.compute_module_sizes(root)[""]
    for i in range(6):
        devices = r.choice([["cpu"], [0, "cpu"], [0, 1, "cpu"], [0, 1, 2], [1, 0, 3, "cpu"], [0], [], ["mps", "cpu"], [0, "disk"]])
        rule = r.choice([None, None, [["bias|norm", "bfloat16"], ["", "int4"]], [["weight", "float64"]], [["0", "int2"]]])
        case = {
            "name": f"{name}#{i}", "model": name, "tree": path, "mode": r.choice(["sequential", "sequential", "auto", "balanced_low_0"]),
            "max_memory": [[d, int(total * r.choice([0, 0.1, 0.2, 0.4, 0.7, 1.2]))] for d in devices],
            "no_split": r.choice([None, ["Block"], ["Block", "Other"]]), "dtype": r.choice([None, None, "float16", "int8", "int4", "fp8"]),
            "special_dtypes_rule": rule, "offload_buffers": r.random() < 0.3, "fallback_allocation": r.random() < 0.4,
        }
        yield case | {"expected": answer(root, case)}


def main():
    out, seed, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    (out / "trees" / "random").mkdir(parents=True, exist_ok=True)
    rows = []
    for i in range(count):
        maker = Maker(f"{seed}-{i}")
        root = maker.root()
        name = f"made-{seed}-{i}"
        path = f"trees/random/{name}.json"
        (out / path).write_text(json.dumps(tree(root), separators=(",", ":")))
        rows += cases(maker, root, name, path)
    text = json.dumps({"statics": [], "cases": rows}, separators=(",", ":"))
    (out / "cases_made.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


main()
