"""Opens what Heft wrote with the reference libraries and compares every tensor bit for bit.

    check-save.py checkpoint ORIGINAL SAVED [ORIGINAL SAVED ...]
    check-save.py model ORIGINAL SAVED [ORIGINAL SAVED ...]
    check-save.py offload SAFETENSORS FOLDER

checkpoint compares the tensors of two folders, model loads both with transformers,
offload reads an offload folder with Accelerate. Needs torch, safetensors, transformers,
accelerate. Prints one line a pair; exits 1 where something differs.
"""

import glob
import os
import sys


def same(name, a, b):
    import torch

    if a.dtype != b.dtype or a.shape != b.shape:
        sys.exit(f"{name}: {a.dtype} {tuple(a.shape)}, not {b.dtype} {tuple(b.shape)}")
    raw = [x.detach().contiguous().reshape(-1).view(torch.uint8) if x.numel() else x for x in (a, b)]
    if not torch.equal(*raw):
        sys.exit(f"{name}: values differ")


def tensors(folder):
    from safetensors import safe_open

    found = {}
    for file in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        with safe_open(file, framework="pt") as f:
            if (f.metadata() or {}).get("format") != "pt":
                sys.exit(f"{file}: metadata {f.metadata()}")
            for name in f.keys():
                if name in found:
                    sys.exit(f"{file}: {name} stands twice")
                found[name] = f.get_tensor(name)
    return found


def compare(what, want, got):
    if want.keys() != got.keys():
        sys.exit(f"{what}: names differ: {sorted(want.keys() ^ got.keys())[:5]}")
    for name in want:
        same(f"{what}: {name}", want[name], got[name])
    print(f"{what}: {len(want)} tensors are equal")


def model(folder):
    from transformers import AutoModelForCausalLM

    loaded, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    for key in ("missing_keys", "mismatched_keys", "error_msgs"):
        if info.get(key):
            sys.exit(f"{folder}: {key}: {info[key]}")
    return loaded.state_dict()


def offload(file, folder):
    from accelerate.utils import OffloadedWeightsLoader
    from safetensors.torch import load_file

    weights = OffloadedWeightsLoader(save_folder=folder)
    compare(folder, load_file(file), {name: weights[name] for name in weights})


def main():
    mode, *paths = sys.argv[1:]
    if mode == "offload":
        offload(*paths)
        return
    read = {"checkpoint": tensors, "model": model}[mode]
    for original, saved in zip(paths[::2], paths[1::2]):
        compare(saved, read(original), read(saved))


if __name__ == "__main__":
    main()
