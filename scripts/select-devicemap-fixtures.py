#!/usr/bin/env python3
"""Selects a part of the device map fixtures for testdata/golden.

usage: select-devicemap-fixtures.py FROM/infer/devicemap TO/infer/devicemap

All of accelerate's own tests and small functions, every third model of the others. Their
trees are copied where they are missing.
"""
import gzip
import json
import pathlib
import shutil
import sys

source, target = (pathlib.Path(p) for p in sys.argv[1:])
target.mkdir(parents=True, exist_ok=True)
shutil.copyfile(source / "small_functions.json", target / "small_functions.json")
for path in sorted(source.glob("cases_*.json.gz")):
    data = json.loads(gzip.decompress(path.read_bytes()))
    names = [s["name"] for s in data["statics"]]
    keep = set(names if "accelerate" in path.name else names[::3])
    data["statics"] = [s for s in data["statics"] if s["name"] in keep]
    data["cases"] = [c for c in data["cases"] if c["model"] in keep]
    text = json.dumps(data, separators=(",", ":")).encode()
    (target / path.name).write_bytes(gzip.compress(text, mtime=0))
    for row in data["statics"] + data["cases"]:
        tree = target / row["tree"]
        tree.parent.mkdir(parents=True, exist_ok=True)
        if not tree.exists():
            shutil.copyfile(source / row["tree"], tree)
