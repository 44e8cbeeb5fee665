#!/usr/bin/env python3
"""Makes fixtures of whole models that answer in speech from those of their thinkers, which write the text.

    scripts/make-omni-fixtures.py testdata/golden/infer/models

Published files have the thinker's config as thinker_config and its tensors behind "thinker."; the parts that speak are
beside it. What the thinker computes stays the same, so golden.json is copied. transformers reads the config.
"""
import json
import pathlib
import shutil
import sys

from safetensors.torch import load_file, save_file
from transformers import AutoConfig

import packed

WHOLES = {  # fixture: model type, architecture, the thinker's fixture
    "whole-qwen2-5-omni": ("qwen2_5_omni", "Qwen2_5OmniForConditionalGeneration", "family-qwen2-5-omni-3"),
    "whole-qwen3-omni-moe": ("qwen3_omni_moe", "Qwen3OmniMoeForConditionalGeneration", "family-qwen3-omni-moe-2"),
}

root = pathlib.Path(sys.argv[1])
for name, (kind, architecture, thinker) in WHOLES.items():
    out = root / name
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(root / thinker, out)
    own = json.loads((root / thinker / "config.json").read_text())
    del own["architectures"]
    config = {"architectures": [architecture], "model_type": kind, "enable_audio_output": False, "thinker_config": own}
    if dtype := own.get("dtype"):
        config["dtype"] = dtype
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    read = AutoConfig.from_pretrained(out).thinker_config.text_config
    assert read.hidden_size == own["text_config"]["hidden_size"] and read.vocab_size == own["text_config"]["vocab_size"]
    with packed.unpacked(root / thinker) as folder:
        tensors = load_file(folder / "model.safetensors")
    save_file({f"thinker.{n}": t for n, t in tensors.items()}, out / "model.safetensors", metadata={"format": "pt"})
    packed.pack(out / "model.safetensors")
