#!/usr/bin/env python3
"""Makes testdata/golden/infer/models/small-deepseek-v4-published: a tiny DeepSeek-V4 in the form in which it is published.

    scripts/make-deepseek-v4-published.py testdata/golden/infer/models

Linear maps are FP8 in blocks and experts FP4, with scales that are powers of two in tensors called scale; names are those
of the published files. transformers reads the folder and widens it, and golden.json is what its float32 arithmetic makes
of that.
"""
import gzip
import json
import pathlib
import runpy
import sys
import types

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))
family = types.SimpleNamespace(**runpy.run_path(str(here / "make-family-fixtures.py")))
NAME, BLOCK = "small-deepseek-v4-published", 16
CONFIG = dict(
    model_type="deepseek_v4", architectures=["DeepseekV4ForCausalLM"], vocab_size=60, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1,
    head_dim=16, qk_rope_head_dim=4, q_lora_rank=32, o_groups=2, o_lora_rank=16, sliding_window=5, index_n_heads=4, index_head_dim=8, index_topk=3, hc_mult=2,
    hc_sinkhorn_iters=20, moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, num_hash_layers=1, compress_ratios=[0, 4, 128, 0],
    compress_rate_csa=3, compress_rate_hca=5, rope_theta=10000.0, compress_rope_theta=40000.0, scoring_func="sqrtsoftplus", swiglu_limit=10.0, num_nextn_predict_layers=1,
    rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=32, beta_slow=1), max_position_embeddings=128, rms_norm_eps=1e-6,
    bos_token_id=1, eos_token_id=2, tie_word_embeddings=False, torch_dtype="bfloat16", expert_dtype="fp4",
    quantization_config=dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", scale_fmt="ue8m0", weight_block_size=[BLOCK, BLOCK]))
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def fp8(weight):
    """E4M3 in square blocks, of which transformers takes whole ones only."""
    rows, columns = -(-weight.shape[0] // BLOCK), -(-weight.shape[1] // BLOCK)
    spread = lambda t: t.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:weight.shape[0], :weight.shape[1]]
    tops = torch.stack([torch.stack([weight[r * BLOCK:][:BLOCK, c * BLOCK:][:, :BLOCK].abs().max() for c in range(columns)]) for r in range(rows)])
    scales = (2 ** (tops / 448).log2().ceil()).to(torch.float8_e8m0fnu)
    return (weight / spread(scales.float())).to(torch.float8_e4m3fn), scales


def fp4(weight):
    """E2M1 in groups of 32 columns, two in a byte, the even one in the low half."""
    groups = weight.unflatten(1, (-1, 32))
    scales = (2 ** (groups.abs().amax(-1) / 6).log2().ceil()).to(torch.float8_e8m0fnu)
    scaled = (groups / scales.float()[..., None]).flatten(1)
    codes = (scaled.abs()[..., None] - E2M1).abs().argmin(-1) | (scaled < 0).long() << 3
    return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8).view(torch.int8), scales


def published(model, folder):
    """Tensors with the names of the published files."""
    with torch.no_grad():
        model.to(torch.bfloat16).save_pretrained(folder)
    from safetensors.torch import load_file
    names = {"model.embed_tokens.weight": "embed.weight", "model.hc_head.hc_fn": "hc_head_fn", "model.hc_head.hc_base": "hc_head_base", "model.hc_head.hc_scale": "hc_head_scale"}
    tensors = {}
    for name, t in load_file(folder / "model.safetensors").items():
        name = names.get(name, name.removeprefix("model.")).replace("attn.norm.weight", "attn.kv_norm.weight")
        module = name.removesuffix(".weight")
        if ".experts." in name and "shared" not in name:
            tensors[name], tensors[module + ".scale"] = fp4(t.float())
        elif module.endswith((".wq_a", ".wq_b", ".attn.wkv", ".wo_a", ".wo_b")) or "shared_experts" in name:
            tensors[name], tensors[module + ".scale"] = fp8(t.float())
        else:
            tensors[name] = t.float() if "hc_" in name or "attn_sink" in name or name.endswith(".ape") else t
    tensors["mtp.0.attn.wq_a.weight"], tensors["mtp.0.enorm.weight"] = torch.zeros(2, 2, dtype=torch.bfloat16), torch.ones(4, dtype=torch.bfloat16)
    return tensors


def main():
    out = pathlib.Path(sys.argv[1]) / NAME
    out.mkdir(parents=True, exist_ok=True)
    config = {k: v for k, v in CONFIG.items() if k not in ("quantization_config", "expert_dtype")}
    globals_of = family.base.prompt.__wrapped__.__globals__
    globals_of["layers_of"] = lambda m: m.model.layers
    for seed in range(1, 60):
        save_file(published(family.build(config, torch.bfloat16, seed), out), out / "model.safetensors", metadata={"format": "pt"})
        (out / "config.json").write_text(json.dumps(CONFIG, indent=1, sort_keys=True) + "\n")
        model = AutoModelForCausalLM.from_pretrained(out, quantization_config=FineGrainedFP8Config(dequantize=True), dtype=torch.float32, attn_implementation="eager",
                                                     experts_implementation="eager").float().eval()
        ids = torch.randint(3, CONFIG["vocab_size"], (max(family.LENGTHS),), generator=torch.Generator().manual_seed(seed)).tolist()
        with family.Choices() as choices:
            cases = [family.base.prompt(model, ids[:n]) for n in family.LENGTHS]
        if min(margin for _, margin in cases) >= family.MARGIN and choices.margin >= family.CHOICE_MARGIN:
            break
    else:
        sys.exit("every seed has a choice that is nearly a tie")
    golden = dict(name=NAME, architecture="DeepseekV4ForCausalLM", model_type="deepseek_v4", seed=seed, quantisation=dict(method="fp8"), tolerance=dict(logits_atol=2e-4, logits_rtol=2e-4),
                  num_parameters=sum(p.numel() for p in model.parameters()), prompts=[case for case, _ in cases])
    family.packed.pack(out / "model.safetensors")
    (out / "golden.json.gz").write_bytes(gzip.compress((json.dumps(family.arch.shorter(golden)) + "\n").encode(), mtime=0))
    print(NAME, "seed", seed, sum(f.stat().st_size for f in out.iterdir()), "bytes")


main()
