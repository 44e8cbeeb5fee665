#!/usr/bin/env python3
"""Makes tiny checkpoints of model families in published formats with the libraries that write them.

    scripts/make-quantised-families.py testdata/golden/infer/models
    scripts/make-quantised-families.py DIR/infer/models SEED [FAMILY...]

The first form makes the committed fixtures, the second a model of each family in two formats that SEED chooses; HEFT_GOLDEN=DIR
go test ./dispatch/internal/test/... ./train/model -run Golden compares them. Most linear maps are quantised, experts of a layer alike; golden.json.gz is what
float32 arithmetic of transformers makes of the values that the libraries dequantise. It needs what make-published-fixtures.py needs.
"""
import gzip
import json
import pathlib
import random
import re
import runpy
import sys
import tempfile
import types

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import packed

here = pathlib.Path(__file__).parent
families = types.SimpleNamespace(**runpy.run_path(str(here / "make-family-fixtures.py")))
published = types.SimpleNamespace(**runpy.run_path(str(here / "make-published-fixtures.py"), run_name="published"))

VOCAB = 96
BASE = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LATENT = dict(q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=32, num_key_value_heads=4)
ROUTED = dict(n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, n_group=2, topk_group=1, moe_intermediate_size=32, first_k_dense_replace=1,
              routed_scaling_factor=2.5, norm_topk_prob=True)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
LOCAL = dict(intermediate_size=32, num_local_experts=4, num_experts_per_tok=2)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4,
             layer_types=["linear_attention", "full_attention"])
WINDOWS = dict(sliding_window=8, layer_types=["sliding_attention", "full_attention"])
ROPE = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)


def base(model_type, without=(), **more):
    return {k: v for k, v in dict(BASE, model_type=model_type).items() if k not in without and k not in more} | more


CONFIGS = {name: base(name) for name in "qwen2 phi3 olmo2 granite smollm3 seed_oss hunyuan_v1_dense ernie4_5".split()} | {
    "qwen3": base("qwen3", tie_word_embeddings=True),
    "mistral": base("mistral", sliding_window=None),
    "gemma2": base("gemma2", sliding_window=8, query_pre_attn_scalar=16, tie_word_embeddings=True),
    "gemma3_text": base("gemma3_text", **WINDOWS, query_pre_attn_scalar=16, tie_word_embeddings=True),
    "glm4": base("glm4", partial_rotary_factor=0.5, attention_bias=True),
    "cohere2": base("cohere2", sliding_window=8),
    "exaone4": base("exaone4", **WINDOWS),
    "starcoder2": base("starcoder2", ("head_dim", "rms_norm_eps"), sliding_window=None),
    "gpt_neox": base("gpt_neox", ("head_dim", "num_key_value_heads", "rms_norm_eps"), rotary_pct=0.5),
    "lfm2": base("lfm2", ("rms_norm_eps",), layer_types=["conv", "full_attention"], conv_L_cache=3, conv_bias=False, norm_eps=1e-5, block_multiple_of=32,
                 block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=True),
    "mixtral": base("mixtral", **LOCAL),
    "minimax_m2": base("minimax_m2", **LOCAL, rotary_dim=8),
    "llama4_text": base("llama4_text", intermediate_size=32, intermediate_size_mlp=96, num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2, use_qk_norm=True),
    "qwen2_moe": base("qwen2_moe", **EXPERTS, shared_expert_intermediate_size=64),
    "qwen3_moe": base("qwen3_moe", **EXPERTS, norm_topk_prob=True),
    "glm4_moe": base("glm4_moe", **dict(ROUTED, n_group=1), use_qk_norm=True),
    "deepseek_v3": base("deepseek_v3", ("head_dim",), **LATENT, **ROUTED),
    "qwen3_next": base("qwen3_next", **EXPERTS, **DELTA, shared_expert_intermediate_size=32, norm_topk_prob=True, partial_rotary_factor=0.5),
    "qwen3_5_text": base("qwen3_5_text", **DELTA, rope_parameters=ROPE),
}
FORMATS = {name.removeprefix("small-llama-"): (m[3], m[5], m[1])
           for name, m in (published.MODELS | published.quantised.MODELS).items() if name.startswith("small-llama-")}
FIXTURES = [("qwen2_moe", "bnb-nf4", dict(num_hidden_layers=1))]  # whose experts' states have different lengths
LISTS = ("ignore", "modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules")


def fits(form, shape):
    rows, columns = shape
    return rows % 8 == 0 and columns % (32 if "mx" in form else 16) == 0


def is_linear(name, tensor):
    return tensor.dim() == 2 and name.endswith(".weight") and not re.search(r"embed|lm_head|norm|router|gate\.weight$|shared_expert_gate|conv", name)


@torch.no_grad()
def make(folder, name, family, form, seed, R, more=()):
    method, quantisation, dtype = FORMATS[form]
    config = CONFIGS[family] | dict(more, torch_dtype=str(dtype)[6:])
    for seed in range(seed, seed + 40):
        model, same = families.build(config, dtype, seed), {}
        values, stored, plain = {}, {}, []
        with tempfile.TemporaryDirectory() as temporary:
            temporary = pathlib.Path(temporary)
            file = temporary / "model.safetensors"
            model.to(dtype).save_pretrained(temporary)
            families.as_published(file, config, "published")
            for key, t in load_file(file).items():
                if is_linear(key, t) and fits(form, t.shape) and same.setdefault(re.sub(r"experts\.\d+", "experts", key), R.random() < 0.9):
                    v, parts = method(key, tuple(t.shape), 1.6 / t.shape[1] ** 0.5)
                    values[key] = v.float().contiguous()
                    stored.update(parts)
                    continue
                values[key], stored[key] = t.float(), t
                if is_linear(key, t):
                    plain.append(key.removesuffix(".weight"))
            save_file(values, file, metadata={"format": "pt"})
            (temporary / "config.json").write_text(json.dumps(config | dict(architectures=[type(model).__name__], torch_dtype="float32")))
            model = AutoModelForCausalLM.from_pretrained(temporary, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
        families.base.prompt.__wrapped__.__globals__["layers_of"] = lambda m: families.text_of(m).layers
        ids = torch.randint(3, VOCAB, (21,), generator=torch.Generator().manual_seed(seed)).tolist()
        if families.in_double(config) and not families.well_conditioned(model, ids, False):
            continue
        cases = [families.base.prompt(model, ids[:n]) for n in (1, 7, 21)]
        if min(margin for _, margin in cases) > families.MARGIN:
            break
    else:
        raise ValueError("all seeds have ties")
    out = folder / name
    out.mkdir(parents=True, exist_ok=True)
    save_file(stored, out / "model.safetensors", metadata={"format": "pt"})
    packed.pack(out / "model.safetensors")
    quantisation = quantisation | {field: plain for field in LISTS if field in quantisation}
    config |= dict(architectures=[type(model).__name__], quantization_config=quantisation)
    (out / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    (out / "generation_config.json").write_text(json.dumps({k: config[k] for k in ("bos_token_id", "eos_token_id")}) + "\n")
    golden = dict(name=name, model_type=family, seed=seed, quantisation=dict(method=quantisation["quant_method"]), tolerance=dict(logits_atol=2e-4, logits_rtol=2e-4),
                  num_parameters=families.text_parameters(model), prompts=[case for case, _ in cases])
    (out / "golden.json.gz").write_bytes(gzip.compress((json.dumps(golden) + "\n").encode(), mtime=0))
    print(name, "seed", seed, sum(f.stat().st_size for f in out.iterdir()), "bytes", flush=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    if len(sys.argv) == 2:
        for family, form, more in FIXTURES:
            make(folder, f"quantised-{family}-{form}".replace("_", "-"), family, form, 1, random.Random(1), more)
        return
    seed = int(sys.argv[2])
    for family in sys.argv[3:] or CONFIGS:
        R = random.Random(f"{family} {seed}")
        for form in R.sample(sorted(FORMATS), 2):
            try:
                make(folder, f"quantised-{family}-{form}-{seed}".replace("_", "-"), family, form, seed, R)
            except Exception as e:  # of this version of transformers
                print(f"{family} {form}: {type(e).__name__}: {str(e)[:200]}", file=sys.stderr)


if __name__ == "__main__":
    main()
