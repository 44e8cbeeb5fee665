#!/usr/bin/env python3
"""Makes dispatch/testdata/gguf/mtp: models of testdata/mtp, with their modules for multi-token prediction, as llama.cpp's own
converter writes them. What transformers computes with them is in testdata/mtp. Run it from the root of the repository:

    python scripts/make-gguf-mtp.py LLAMA_CPP [NAME...]

LLAMA_CPP is what scripts/make-gguf-converted.py takes."""
import bz2
import importlib.util
import json
import pathlib
import shutil
import sys
import tempfile

import packed

# DeepSeek-V3's converter leaves its module out. Qwen's adds one to norms.
NAMES = ["glm4_moe", "glm4_moe_lite", "deepseek_v32", "qwen3_5"]
SOURCE, OUT = pathlib.Path("testdata/mtp"), pathlib.Path("dispatch/testdata/gguf/mtp")
wanted = sys.argv[2:] or NAMES
sys.argv[2:] = []
spec = importlib.util.spec_from_file_location("converted", pathlib.Path(__file__).parent / "make-gguf-converted.py")
converted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(converted)
OUT.mkdir(parents=True, exist_ok=True)
for name in wanted:
    with tempfile.TemporaryDirectory() as temporary:
        folder, file = pathlib.Path(temporary) / "model", pathlib.Path(temporary) / "model.gguf"
        with packed.unpacked(SOURCE / name) as plain:
            shutil.copytree(plain, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({"scoring_func": "sigmoid"} | config))
        converted.convert(folder, file, ["--outtype", "bf16"], True)
        data = bz2.compress(file.read_bytes())
    (OUT / f"{name}.gguf.bz2").write_bytes(data)
    print(name, len(data), "bytes")
