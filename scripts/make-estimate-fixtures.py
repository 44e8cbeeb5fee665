#!/usr/bin/env python3
"""Writes cmd/serve/testdata/estimate.json: what Accelerate estimates for small configs.

usage: make-estimate-fixtures.py OUT.json CONFIG.json...   (needs accelerate, torch and transformers 5)

The sizes are those of `accelerate estimate-memory`, by its own functions. The model is that of
AutoModelForCausalLM, head included, as Heft serves it; the command leaves the head away where
config.json names no class of its own.
"""
import json
import sys
import tempfile
from pathlib import Path

import torch
from accelerate import init_empty_weights
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from transformers import AutoConfig, AutoModelForCausalLM

DIVISOR = {"float32": 1, "float16": 2, "int8": 4, "int4": 8}
KEEP_OUT = ("_name_or_path", "transformers_version", "architectures", "quantization_config")


def estimate(fields):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(fields))
        config = AutoConfig.from_pretrained(folder)
    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.tie_weights()
    total, (largest, names) = calculate_maximum_sizes(model)
    rows = []
    for dtype, divisor in DIVISOR.items():
        training = max(estimate_training_usage(total, dtype).values())
        rows.append({
            "dtype": dtype, "largest_layer_bytes": largest / divisor, "total_bytes": total / divisor,
            "training_bytes": None if training < 0 else training,
        })
    return {"config": fields, "largest_layers": names, "dtypes": rows}


out, *paths = sys.argv[1:]
cases = []
for path in paths:
    fields = {k: v for k, v in json.loads(Path(path).read_text()).items() if k not in KEEP_OUT}
    cases.append(estimate(fields))
Path(out).write_text(json.dumps(cases, indent=1) + "\n")
