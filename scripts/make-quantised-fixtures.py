#!/usr/bin/env python3
"""Makes the tiny quantised checkpoints of testdata/golden/infer/models with transformers.

    python scripts/make-quantised-fixtures.py testdata/golden/infer/models [NAME ...]

Codes and scales are random; golden.json is what float32 arithmetic makes of the values
that they stand for, as make-model-fixtures.py writes it. Between them they have partial
blocks, a module that is not converted, scales of each type, zeros, and groups that are
not in order.
"""
import gzip
import importlib.util
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

import packed

spec = importlib.util.spec_from_file_location("plain", pathlib.Path(__file__).with_name("make-model-fixtures.py"))
plain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain)

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def fp8(name, shape, size):
    """Blocks of 20 × 12, scales in bfloat16."""
    scale = (torch.rand(-(-shape[0] // 20), -(-shape[1] // 12)) * size / 100 + size / 200).bfloat16()
    codes = (torch.randn(shape) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    values = codes.float() * scale.float().repeat_interleave(20, 0)[:shape[0]].repeat_interleave(12, 1)[:, :shape[1]]
    return values, {name: codes, name + "_scale_inv": scale}


def mxfp4(name, shape, size):
    """[experts, inputs, outputs] as blocks along the inputs."""
    experts, inputs, outputs = shape
    codes = torch.randint(0, 16, (experts, outputs, inputs // 32, 32))
    exponents = torch.randint(-1, 2, (experts, outputs, inputs // 32)) + round(torch.tensor(size / 3).log2().item())
    values = (E2M1[codes] * 2.0 ** exponents[..., None]).reshape(experts, outputs, inputs).transpose(1, 2)
    blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
    return values, {name + "_blocks": blocks, name + "_scales": (exponents + 127).to(torch.uint8)}


def words(codes, order=range(8)):
    """Eight columns in an int32; order[i] is the column in bits 4i."""
    packed = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int64)
    for i, column in enumerate(order):
        packed |= codes[:, column::8] << (4 * i)
    return packed.where(packed < 1 << 31, packed - (1 << 32)).to(torch.int32).contiguous()


def nibbles(shape, size, group, order):
    outputs, inputs = shape
    codes, zeros = torch.randint(0, 16, (inputs, outputs)), torch.randint(6, 11, (inputs // group, outputs))
    scales = (torch.rand(inputs // group, outputs) * size / 4 + size / 8).half()
    return codes, zeros, scales, ((codes - zeros[order]) * scales.float()[order]).T


def gptq(name, shape, size):
    """Groups of 16 in no order."""
    base, group = name.removesuffix("weight"), 16
    index = (torch.arange(shape[1]) // group)[torch.randperm(shape[1])]
    codes, zeros, scales, values = nibbles(shape, size, group, index)
    return values, {base + "qweight": words(codes.T.contiguous()).T.contiguous(), base + "qzeros": words(zeros - 1),
                    base + "scales": scales, base + "g_idx": index.int()}


def few_bits(bits, added):
    """Groups of 16 in no order, of 2 or 3 bits: one integer after another in words of 32 bits. added are the numbers that are
    subtracted from words of zeros, in turn."""
    def stream(codes):
        places = (codes[..., None] >> torch.arange(bits) & 1).flatten(1).unflatten(1, (-1, 32))
        return (places << torch.arange(32)).sum(-1)

    def signed(words):
        words = words & 0xFFFFFFFF
        return words.where(words < 1 << 31, words - (1 << 32)).to(torch.int32).contiguous()

    def method(name, shape, size):
        (outputs, inputs), base, group = shape, name.removesuffix("weight"), 16
        index = (torch.arange(inputs) // group)[torch.randperm(inputs)]
        codes, zeros = torch.randint(0, 1 << bits, (inputs, outputs)), torch.randint(0, 1 << bits, (inputs // group, outputs))
        scales = (torch.rand(inputs // group, outputs) * size / 2 + size / 4).half()
        zero_words = stream(zeros)
        zero_words -= torch.tensor(added).repeat(zero_words.shape[1])[:zero_words.shape[1]]
        return ((codes - zeros[index]) * scales.float()[index]).T, {
            base + "qweight": signed(stream(codes.T)).T.contiguous(), base + "qzeros": signed(zero_words), base + "scales": scales, base + "g_idx": index.int()}
    return method


def awq(name, shape, size):
    """Groups of 8."""
    base, group = name.removesuffix("weight"), 8
    codes, zeros, scales, values = nibbles(shape, size, group, torch.arange(shape[1]) // group)
    return values, {base + "qweight": words(codes, AWQ_ORDER), base + "qzeros": words(zeros, AWQ_ORDER), base + "scales": scales}


def linears(name):
    return name.endswith("_proj.weight") and "layers.1.mlp.down_proj" not in name


LLAMA, TIED = dict(plain.COMMON, tie_word_embeddings=False), dict(plain.COMMON, tie_word_embeddings=True)
WIDE = dict(TIED, hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
MODELS = {
    "small-llama-fp8": ("llama", torch.bfloat16, LLAMA, fp8, linears,
                        dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[20, 12],
                             modules_to_not_convert=["lm_head", "model.layers.1.mlp.down_proj"])),
    "small-llama-gptq4": ("llama", torch.float16, TIED, gptq, linears,
                          dict(quant_method="gptq", bits=4, group_size=16, sym=False, desc_act=True)),
    "small-llama-gptq2": ("llama", torch.float16, WIDE, few_bits(2, [0x55555555]), linears,
                          dict(quant_method="gptq", bits=2, group_size=16, sym=False, desc_act=True)),
    # GPTQModel's numbers for 3 bits, those of the first and the third word exchanged.
    "small-llama-gptq3": ("llama", torch.float16, WIDE, few_bits(3, [0x24924924, 0x92492492, 0x49249249]), linears,
                          dict(quant_method="gptq", bits=3, group_size=16, sym=False, desc_act=True, meta=dict(quantizer=["gptqmodel:1.4.0"]))),
    "small-llama-awq4": ("llama", torch.float16, TIED, awq, linears,
                         dict(quant_method="awq", bits=4, group_size=8, zero_point=True, version="gemm")),
    "small-gptoss-mxfp4": ("gpt_oss", torch.bfloat16, dict(
        vocab_size=plain.VOCAB, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, num_local_experts=3, num_experts_per_tok=2, sliding_window=6,
        max_position_embeddings=128, bos_token_id=1, eos_token_id=2,
        rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0,
                          original_max_position_embeddings=32, truncate=False)), mxfp4,
        lambda name: name.endswith(("experts.gate_up_proj", "experts.down_proj")),
        dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"])),
}


def quantise(model, dtype, method, chosen):
    """Replaces chosen weights by values of the format; returns the file's tensors."""
    tensors = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if chosen(name):
                values, stored = method(name, tuple(p.shape), 1.6 / p.shape[-1] ** 0.5)
                p.copy_(values)
                tensors.update(stored)
            else:
                tensors[name] = p.to(dtype).contiguous()
    return tensors


def make(folder, name, kind, dtype, fields, method, chosen, quantisation):
    for seed in range(1, 200):
        config, model = plain.build(kind, dtype, fields, seed)
        tensors = quantise(model, dtype, method, chosen)
        ids = torch.randint(3, plain.VOCAB, (max(plain.LENGTHS),), generator=torch.Generator().manual_seed(seed)).tolist()
        cases = [plain.prompt(model, ids[:n]) for n in plain.LENGTHS]
        if min(margin for _, margin in cases) > plain.MARGIN:
            break
    out = folder / name
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    packed.pack(out / "model.safetensors")
    text = dict(config.to_diff_dict(), quantization_config=quantisation, architectures=[type(model).__name__], dtype=str(dtype)[6:])
    (out / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True, default=str) + "\n")
    tokens = dict(bos_token_id=text["bos_token_id"], eos_token_id=text["eos_token_id"])
    (out / "generation_config.json").write_text(json.dumps(tokens) + "\n")
    golden = dict(name=name, model_type=kind, seed=seed, quantisation=dict(method=quantisation["quant_method"]),
                  tolerance=dict(logits_atol=2e-4, logits_rtol=2e-4),
                  num_parameters=sum(p.numel() for p in model.parameters()), prompts=[case for case, _ in cases])
    with gzip.GzipFile(out / "golden.json.gz", "wb", mtime=0) as f:
        f.write((json.dumps(golden) + "\n").encode())
    print(name, "seed", seed, sum(f.stat().st_size for f in out.iterdir()), "bytes")


def main():
    for name, arguments in MODELS.items():
        if name in sys.argv[2:] or not sys.argv[2:]:
            make(pathlib.Path(sys.argv[1]), name, *arguments)


if __name__ == "__main__":
    main()
