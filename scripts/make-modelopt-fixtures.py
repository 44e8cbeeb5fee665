#!/usr/bin/env python3
"""Makes tiny checkpoints with NVIDIA's modelopt, which quantises and exports them.

    python scripts/make-modelopt-fixtures.py testdata/golden/infer/models [NAME ...]

It needs torch, transformers and nvidia-modelopt. Only hf_quant_config.json says how the weights are stored, as in
NVIDIA's older releases: quantization_config is removed from config.json. golden.json is what float32 arithmetic of
transformers makes of the weights that modelopt dequantises. Without NAME it makes the models that are committed; a NAME
of ALL makes all, for a check with HEFT_GOLDEN.
"""
import copy
import gzip
import importlib.util
import json
import pathlib
import shutil
import sys

import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export import export_hf_checkpoint
from modelopt.torch.export.quant_utils import from_quantized_weight
from modelopt.torch.quantization.qtensor import MXFP4QTensor, MXFP8QTensor, NVFP4QTensor
from safetensors.torch import load_file, save_file

import packed

spec = importlib.util.spec_from_file_location("plain", pathlib.Path(__file__).with_name("make-model-fixtures.py"))
plain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain)

COMMITTED = ["small-llama-modelopt-fp8-blocks", "small-llama-modelopt-mxfp8"]
LLAMA = dict(plain.COMMON, tie_word_embeddings=False)
WIDE = dict(LLAMA, hidden_size=32, intermediate_size=160, num_attention_heads=2, num_key_value_heads=1, head_dim=32)
# The name of modelopt's settings, the model's fields, and whether activations are calibrated, which formats with dynamic
# scales can do on GPUs only.
MODELS = {
    "small-llama-modelopt-fp8-blocks": ("FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", WIDE, True),
    "small-llama-modelopt-mxfp8": ("MXFP8_DEFAULT_CFG", WIDE, False),
    "small-llama-modelopt-fp8-tensor": ("FP8_DEFAULT_CFG", LLAMA, True),
    "small-llama-modelopt-fp8-channel": ("FP8_PER_CHANNEL_PER_TOKEN_CFG", LLAMA, True),
    "small-llama-modelopt-int8": ("INT8_WEIGHT_ONLY_CFG", LLAMA, True),
    "small-llama-modelopt-mxfp4": ("MXFP4_DEFAULT_CFG", WIDE, False),
    "small-llama-modelopt-w4a8-mxfp4": ("W4A8_MXFP4_FP8_CFG", WIDE, False),
    "small-llama-modelopt-nvfp4-w4a16": ("W4A16_NVFP4_CFG", WIDE, False),
    "small-llama-modelopt-nvfp4-w4a4": ("NVFP4_DEFAULT_CFG", WIDE, False),
}


def spread(scale, shape):
    """Scales of blocks of 128 × 128, one for each element."""
    return scale.squeeze(3).squeeze(1).repeat_interleave(128, 0).repeat_interleave(128, 1)[:shape[0], :shape[1]]


def dequantised(codes, scale, scale_2):
    """The values of a weight in float32."""
    if scale.ndim == 4:
        return codes.float() * spread(scale, codes.shape)
    if scale.dtype == torch.uint8 and codes.dtype == torch.uint8:
        return MXFP4QTensor((codes.shape[0], codes.shape[1] * 2), torch.float32, codes).dequantize(torch.float32, scale=scale, block_sizes={-1: 32})
    if scale.dtype == torch.uint8:
        return MXFP8QTensor(codes.shape, torch.float32, codes).dequantize(torch.float32, scale=scale, block_sizes={-1: 32})
    if scale_2 is not None:
        return NVFP4QTensor((codes.shape[0], codes.shape[1] * 2), torch.float32, codes).dequantize(
            torch.float32, scale=scale, double_scale=scale_2, block_sizes={-1: 16})
    if codes.dtype == torch.int8 or scale.ndim == 1:
        return codes.float() * scale.float()[:, None]
    return from_quantized_weight(codes, scale, "fp8", torch.float32)


def quantise(model, settings, calibrated, out):
    """Writes the model as modelopt does, and returns it with dequantised weights."""
    half = copy.deepcopy(model).bfloat16()
    half.config.architectures = [type(model).__name__]
    settings = copy.deepcopy(getattr(mtq, settings))
    settings["quant_cfg"].append(dict(quantizer_name="*layers.1.mlp.down_proj*", enable=False))
    ids = torch.randint(3, plain.VOCAB, (4, 16), generator=torch.Generator().manual_seed(1))
    mtq.quantize(half, settings, (lambda m: m(ids)) if calibrated else None)
    with torch.inference_mode():
        export_hf_checkpoint(half, export_dir=str(out))
    tensors = load_file(out / "model.safetensors")
    values = {}
    for name, t in tensors.items():
        base = name.removesuffix("weight")
        if name.endswith("weight"):
            values[name] = dequantised(t, tensors[base + "weight_scale"], tensors.get(base + "weight_scale_2")) if base + "weight_scale" in tensors else t.float()
    missing, unexpected = model.load_state_dict(values, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return tensors


def make(folder, name, settings, fields, calibrated):
    out = folder / name
    for seed in range(1, 200):
        shutil.rmtree(out, ignore_errors=True)
        config, model = plain.build("llama", torch.bfloat16, fields, seed)
        tensors = quantise(model, settings, calibrated, out)
        ids = torch.randint(3, plain.VOCAB, (max(plain.LENGTHS),), generator=torch.Generator().manual_seed(seed)).tolist()
        cases = [plain.prompt(model, ids[:n]) for n in plain.LENGTHS]
        if min(margin for _, margin in cases) > plain.MARGIN:
            break
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    packed.pack(out / "model.safetensors")
    text = json.loads((out / "config.json").read_text())
    del text["quantization_config"]
    (out / "config.json").write_text(json.dumps(dict(text, dtype="bfloat16"), indent=1, sort_keys=True) + "\n")
    tokens = dict(bos_token_id=text["bos_token_id"], eos_token_id=text["eos_token_id"])
    (out / "generation_config.json").write_text(json.dumps(tokens) + "\n")
    golden = dict(name=name, model_type="llama", seed=seed, quantisation=dict(method="modelopt"), tolerance=dict(logits_atol=2e-4, logits_rtol=2e-4),
                  num_parameters=sum(p.numel() for p in model.parameters()), prompts=[case for case, _ in cases])
    with gzip.GzipFile(out / "golden.json.gz", "wb", mtime=0) as f:
        f.write((json.dumps(golden) + "\n").encode())
    print(name, "seed", seed, sum(f.stat().st_size for f in out.iterdir()), "bytes")


def main():
    names = sys.argv[2:] or COMMITTED
    for name, arguments in MODELS.items():
        if name in names or "ALL" in names:
            make(pathlib.Path(sys.argv[1]), name, *arguments)


if __name__ == "__main__":
    main()
