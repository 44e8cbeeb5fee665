"""Writes dispatch/testdata/gguf: a small GGUF file for each architecture, with the tokens that transformers generates from
the weights that the gguf package dequantises. Run it from the root of the repository with a Python that has torch,
transformers and gguf: scripts/make-gguf-models.py [OUTPUT] [SEED] [MODEL...]

The files are written by the gguf package, with its names of tensors and keys. What llama.cpp's converter changes in the
weights (rows of queries and keys, norms, fused projections) is done here."""
import bz2
import json
import pathlib
import sys
import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from transformers import AutoConfig, AutoModelForCausalLM

OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "dispatch/testdata/gguf")
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 16
VOCAB, HIDDEN, LAYERS, HEADS, KV, HEAD, INNER, CONTEXT = 96, 64, 2, 4, 2, 16, 96, 128
BASE = dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV, head_dim=HEAD,
            intermediate_size=INNER, max_position_embeddings=CONTEXT, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
HALVES = {T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.IQ2_XXS: [0],
          T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0], T.IQ1_S: [0], T.TQ1_0: [52], T.TQ2_0: [64]}
rng = np.random.default_rng(SEED)


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def scaled(raw, t, scale):
    """Writes the scales of blocks. IQ1_M has its bits in the high ones of four words."""
    bits = scale.astype(np.float16).view(np.uint16)
    if t == T.IQ1_M:
        for i in range(4):
            raw[:, 49 + 2 * i] = raw[:, 49 + 2 * i] & 15 | (bits >> (4 * i) & 15).astype(np.uint8) << 4
        return
    for at in HALVES[t]:
        raw[:, at:at + 2] = bits.view(np.uint8).reshape(-1, 2)


def stored(w, t):
    """The bytes of w as type t, and the values that they stand for. Types that the package cannot write are random."""
    if t == T.F32:
        return w, w
    if t in (T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.MXFP4):
        raw = gguf.quantize(w, t)
    else:
        elements, size = gguf.GGML_QUANT_SIZES[t]
        raw = rng.integers(0, 256, (w.size // elements, size), dtype=np.uint8)
        scaled(raw, t, np.ones(len(raw)))
        spread = gguf.dequantize(raw.reshape(1, -1), t).std()
        scaled(raw, t, rng.uniform(0.7, 1.3, len(raw)) * w.std() / spread)
        raw = raw.reshape(*w.shape[:-1], -1)
    return raw, gguf.dequantize(raw, t).reshape(w.shape)


def four_bits(w, least):
    """The bytes of random values of NVFP4 with scales of blocks from least on, and their scales: one for w, or for each of a stack."""
    raw = rng.integers(0, 256, (w.size // 64, 36), dtype=np.uint8)
    raw[:, :4] = rng.integers(least, least + 16, (len(raw), 4))
    raw = raw.reshape(*w.shape[:-1], -1)
    values = gguf.dequantize(raw, T.NVFP4).reshape(w.shape)
    scales = (rng.uniform(0.7, 1.3, w.shape[0] if w.ndim == 3 else 1) * w.std() / values.std()).astype(np.float32)
    return raw, scales, values * scales.reshape(-1, *[1] * (w.ndim - 1))


class Writer:
    def __init__(self, name, arch, config, types):
        self.config, self.arch = config, arch
        self.file = gguf.GGUFWriter(OUT / f"{name}.gguf", gguf.MODEL_ARCH_NAMES[arch])
        self.names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
        self.types, self.count = types, 0

    def add(self, gguf_name, w, kind=None):
        """Adds a tensor and returns its values."""
        w = np.ascontiguousarray(w, dtype=np.float32)
        t = T.F32
        if kind is not None:
            t = kind
        elif w.ndim >= 2 and "ffn_gate_inp" not in gguf_name and "position" not in gguf_name and not gguf_name.endswith("bias"):
            t = self.types[self.count % len(self.types)]
            self.count += 1
        if t == T.NVFP4:
            scaled = self.count % 2 or w.ndim == 3  # others have blocks' scales alone
            raw, scales, values = four_bits(w, 0x30 if scaled else 0x18)
            if scaled:
                self.file.add_tensor(gguf_name.replace(".weight", ".scale"), scales)
                self.file.add_tensor(gguf_name.replace(".weight", ".input_scale"), scales * 2)
            else:
                values = values / scales[0]
        else:
            raw, values = stored(w, t)
        self.file.add_tensor(gguf_name, raw, raw_dtype=t)
        return values

    def name(self, hf):
        name = self.names.get_name(hf, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise ValueError(f"no name for {hf}")
        return name


def common(f, c):
    f.add_context_length(getattr(c, "max_position_embeddings", CONTEXT))
    f.add_embedding_length(c.hidden_size)
    f.add_block_count(c.num_hidden_layers)
    f.add_head_count(c.num_attention_heads)
    f.add_vocab_size(c.vocab_size)
    f.add_bos_token_id(1)
    f.add_eos_token_id(2)


def theta(c):
    return (getattr(c, "rope_parameters", None) or {}).get("rope_theta", getattr(c, "rope_theta", None) or 10000.0)


def llama_keys(f, c):
    common(f, c)
    f.add_feed_forward_length(c.intermediate_size)
    f.add_head_count_kv(c.num_key_value_heads)
    f.add_layer_norm_rms_eps(c.rms_norm_eps)
    f.add_rope_freq_base(theta(c))
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    f.add_key_length(head)
    f.add_value_length(head)
    f.add_rope_dimension_count(head)


def experts_keys(f, c, count, used, inner):
    f.add_expert_count(count)
    f.add_expert_used_count(used)
    f.add_expert_feed_forward_length(inner)


# Each architecture: (gguf's, config of transformers, keys, changes of a tensor: (writer, name, values) -> values or None).
def plain(w, name, v):
    return w.add(w.name(name), v)


def permuted(w, name, v):
    c = w.config
    if ".q_proj." in name or ".k_proj." in name:
        heads = c.num_attention_heads if ".q_proj." in name else c.num_key_value_heads
        return unpermute(w.add(w.name(name), permute(v, heads)), heads)
    return stacked(w, name, v)


def stacked(w, name, v):
    """Experts that transformers has as [experts, 2·inner, hidden] are gate and up in files."""
    if name.endswith("experts.gate_up_proj"):
        layer = name.split(".")[2]
        half = v.shape[1] // 2
        gate = w.add(f"blk.{layer}.ffn_gate_exps.weight", v[:, :half])
        up = w.add(f"blk.{layer}.ffn_up_exps.weight", v[:, half:])
        return np.concatenate([gate, up], axis=1)
    if name.endswith("experts.down_proj"):
        return w.add(f"blk.{name.split('.')[2]}.ffn_down_exps.weight", v)
    if name.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight")):
        return w.add(f"blk.{name.split('.')[2]}.ffn_gate_inp.weight", v)
    if name.endswith("e_score_correction_bias"):
        return w.add(f"blk.{name.split('.')[2]}.exp_probs_b.bias", v)
    return plain(w, name, v)


def granite_moe(w, name, v):
    """Experts are gate and up in files."""
    at = f"blk.{name.split('.')[2]}.ffn_" if name.count(".") > 2 else ""
    if name.endswith(("input_linear.weight", "experts.gate_up_proj")):
        half = v.shape[1] // 2
        return np.concatenate([w.add(at + "gate_exps.weight", v[:, :half]), w.add(at + "up_exps.weight", v[:, half:])], axis=1)
    if name.endswith(("output_linear.weight", "experts.down_proj")):
        return w.add(at + "down_exps.weight", v)
    if "router" in name:
        return w.add(at + "gate_inp.weight", v)
    return permuted(w, name, v)


def sections(f, c):
    """Models with images have positions in three dimensions, which are equal in text."""
    f.add_rope_dimension_sections([8, 4, 4, 0])


def gpt_oss(w, name, v):
    layer = name.split(".")[2] if name.count(".") > 2 else ""
    at = f"blk.{layer}.ffn_"
    if "experts.gate_up_proj" in name:
        out = v.copy()
        for k, part in enumerate(["gate_exps", "up_exps"]):
            x = v[..., k::2]
            if name.endswith("bias"):
                out[..., k::2] = w.add(at + part + ".bias", x)
            else:
                out[..., k::2] = w.add(at + part + ".weight", x.swapaxes(1, 2)).swapaxes(1, 2)
        return out
    if name.endswith("experts.down_proj_bias"):
        return w.add(at + "down_exps.bias", v)
    if name.endswith("experts.down_proj"):
        return w.add(at + "down_exps.weight", v.swapaxes(1, 2)).swapaxes(1, 2)
    if "router" in name:
        return w.add(at + "gate_inp." + name.split(".")[-1], v)
    if name.endswith("sinks"):
        return w.add(f"blk.{layer}.attn_sinks.weight", v)
    if name.endswith("post_attention_layernorm.weight"):
        return w.add(f"blk.{layer}.post_attention_norm.weight", v)
    return plain(w, name, v)


def gpt2(w, name, v):
    if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        return w.add(w.name(name), v.T).T
    return plain(w, name, v)


def one_more(w, name, v):
    """Norms whose weights lack 1 have it in files."""
    if name.endswith("norm.weight"):
        return w.add(w.name(name), v + 1) - 1
    return plain(w, name, v)


def hunyuan(w, name, v):
    """Some names that the gguf package lacks, and the base of rope with its factor."""
    layer = name.split(".")[2] if name.count(".") > 2 else ""
    for part, to in (("gate.wg", "ffn_gate_inp"), ("shared_mlp.gate_proj", "ffn_gate_shexp"), ("shared_mlp.up_proj", "ffn_up_shexp"), ("shared_mlp.down_proj", "ffn_down_shexp"),
                     ("query_layernorm", "attn_q_norm"), ("key_layernorm", "attn_k_norm")):
        if part in name:
            return w.add(f"blk.{layer}.{to}.weight", v)
    return stacked(w, name, v)


def neox(w, name, v):
    c = w.config
    if "query_key_value" in name:
        heads = c.num_attention_heads
        q = v.reshape(heads, 3, c.hidden_size // heads, *v.shape[1:]).swapaxes(0, 1).reshape(v.shape)
        got = w.add(w.name(name), q)
        return got.reshape(3, heads, c.hidden_size // heads, *v.shape[1:]).swapaxes(0, 1).reshape(v.shape)
    return plain(w, name, v)


def split_latent(w, name, v):
    """The expansion of latent attention in two: for each head its keys' part, transposed, and its values' part."""
    c = w.config
    if not name.endswith("kv_b_proj.weight"):
        return stacked(w, name, v)
    at, heads = f"blk.{name.split('.')[2]}.attn_", v.reshape(c.num_attention_heads, c.qk_nope_head_dim + c.v_head_dim, c.kv_lora_rank)
    k = w.add(at + "k_b.weight", heads[:, :c.qk_nope_head_dim].swapaxes(1, 2)).swapaxes(1, 2)
    return np.concatenate([k, w.add(at + "v_b.weight", heads[:, c.qk_nope_head_dim:])], axis=1).reshape(v.shape)


def mla_keys(f, c):
    """Newer files describe the compressed vector as one key head, and the heads by keys of their own."""
    f.add_head_count_kv(1)
    f.add_key_length(c.kv_lora_rank + c.qk_rope_head_dim)
    f.add_value_length(c.kv_lora_rank)
    f.add_key_length_mla(c.qk_nope_head_dim + c.qk_rope_head_dim)
    f.add_value_length_mla(c.v_head_dim)


def falcon(w, name, v):
    """Queries, keys and values of each key head are parts of one tensor in files."""
    c = w.config
    if "query_key_value" not in name:
        return plain(w, name, v)
    kv = c.num_kv_heads if c.new_decoder_architecture else 1
    dim, each = c.hidden_size // c.num_attention_heads, c.num_attention_heads // kv
    groups = v.reshape(kv, each + 2, dim, *v.shape[1:])
    parts = [groups[:, :each], groups[:, each:each + 1], groups[:, each + 1:]]
    got = w.add(w.name(name), np.concatenate([p.reshape(-1, *v.shape[1:]) for p in parts]))
    back, at = [], 0
    for p in parts:
        n = p.shape[0] * p.shape[1] * dim
        back.append(got[at:at + n].reshape(p.shape))
        at += n
    return np.concatenate(back, axis=1).reshape(v.shape)


def falcon_keys(f, c):
    common(f, c)
    f.add_feed_forward_length(c.ffn_hidden_size)
    f.add_head_count_kv(c.num_kv_heads if c.new_decoder_architecture else 1)
    f.add_layer_norm_eps(c.layer_norm_epsilon)


def deepseek_keys(f, c):
    common(f, c)
    f.add_feed_forward_length(c.intermediate_size)
    f.add_head_count_kv(c.num_key_value_heads)
    f.add_layer_norm_rms_eps(c.rms_norm_eps)
    f.add_rope_freq_base(theta(c))
    f.add_rope_dimension_count(c.qk_rope_head_dim)
    f.add_key_length(c.qk_nope_head_dim + c.qk_rope_head_dim)
    f.add_value_length(c.v_head_dim)
    if c.q_lora_rank:
        f.add_q_lora_rank(c.q_lora_rank)
    f.add_kv_lora_rank(c.kv_lora_rank)
    f.add_leading_dense_block_count(c.first_k_dense_replace)
    experts_keys(f, c, c.n_routed_experts, c.num_experts_per_tok, c.moe_intermediate_size)
    f.add_expert_shared_count(c.n_shared_experts)
    f.add_expert_weights_scale(c.routed_scaling_factor)
    f.add_expert_weights_norm(c.norm_topk_prob)
    f.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if c.model_type == "deepseek_v2":
        return
    f.add_expert_group_count(c.n_group)
    f.add_expert_group_used_count(c.topk_group)
    if c.rope_parameters.get("rope_type") != "yarn":
        return
    f.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    f.add_rope_scaling_factor(4.0)
    f.add_rope_scaling_orig_ctx_len(32)
    f.add_rope_scaling_yarn_log_mul(0.1)


def llama3_freqs(w):
    c = w.config
    p, d = c.rope_parameters, HEAD
    freqs = 1.0 / (p["rope_theta"] ** (torch.arange(0, d, 2, dtype=torch.float32) / d))
    low, high = p["original_max_position_embeddings"] / p["low_freq_factor"], p["original_max_position_embeddings"] / p["high_freq_factor"]
    factors = []
    for f in freqs:
        wave = 2 * np.pi / f
        if wave < high:
            factors.append(1)
        elif wave > low:
            factors.append(p["factor"])
        else:
            smooth = (p["original_max_position_embeddings"] / wave - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
            factors.append(1 / ((1 - smooth) / p["factor"] + smooth))
    w.add("rope_freqs.weight", np.array(factors, dtype=np.float32))


def rms_of(field):
    """The epsilon of torch's norms, beside the key that llama_keys writes."""
    def run(f, c):
        c.rms_norm_eps = getattr(c, field)
        f.add_layer_norm_eps(c.rms_norm_eps)
    return run


def stretched(f, c):
    p = c.rope_parameters
    f.add_rope_freq_base(p["rope_theta"] * p["alpha"] ** (HEAD / (HEAD - 2)))


A = gguf.MODEL_ARCH
NO_HEAD = {k: v for k, v in BASE.items() if k != "head_dim"}
NO_KV = {k: v for k, v in NO_HEAD.items() if k not in ("num_key_value_heads", "intermediate_size")}
FOURTH_FULL = ["sliding_attention"] * 3 + ["full_attention"]
FLOATS, SHORT = [T.F16, T.BF16, T.F32], [T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.IQ4_NL, T.BF16]
LONG = [T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_XS, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S]
BITS = [T.IQ1_S, T.TQ1_0, T.IQ1_M, T.TQ2_0]


def also(keys, *more):
    def run(f, c):
        keys(f, c)
        for m in more:
            m(f, c)
    return run


MODELS = {
    "llama": (A.LLAMA, dict(BASE, model_type="llama"), llama_keys, permuted, FLOATS),
    "llama-short": (A.LLAMA, dict(BASE, model_type="llama", tie_word_embeddings=True, rms_norm_eps=1e-5, rope_theta=500000.0), llama_keys, permuted, SHORT),
    "llama-long": (A.LLAMA, dict(BASE, model_type="llama", hidden_size=256, intermediate_size=256, head_dim=64), llama_keys, permuted, LONG),
    "llama-bits": (A.LLAMA, dict(BASE, model_type="llama", hidden_size=256, intermediate_size=256, head_dim=64), llama_keys, permuted, BITS),
    "llama-rope3": (A.LLAMA, dict(BASE, model_type="llama", rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                    high_freq_factor=4.0, original_max_position_embeddings=32)), llama_keys, permuted, [T.Q8_0]),
    "mixtral": (A.LLAMA, dict(BASE, model_type="mixtral", num_local_experts=4, num_experts_per_tok=2),
                also(llama_keys, lambda f, c: (f.add_expert_count(4), f.add_expert_used_count(2))), permuted, SHORT),
    "qwen3moe-nvfp4": (A.QWEN3MOE, dict(BASE, model_type="qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True),
                       also(llama_keys, lambda f, c: experts_keys(f, c, 4, 2, 64)), stacked, [T.BF16] + [T.NVFP4] * 20),
    "qwen2": (A.QWEN2, dict(BASE, model_type="qwen2"), llama_keys, plain, SHORT),
    "qwen3": (A.QWEN3, dict(BASE, model_type="qwen3", head_dim=32), llama_keys, plain, SHORT),
    "qwen3moe": (A.QWEN3MOE, dict(BASE, model_type="qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True),
                 also(llama_keys, lambda f, c: experts_keys(f, c, 4, 2, 64)), stacked, SHORT),
    "gemma2": (A.GEMMA2, dict(BASE, model_type="gemma2", query_pre_attn_scalar=HEAD, sliding_window=8, tie_word_embeddings=True),
               also(llama_keys, lambda f, c: (f.add_attn_logit_softcapping(50.0), f.add_final_logit_softcapping(30.0), f.add_sliding_window(8))), one_more, SHORT),
    "gemma3": (A.GEMMA3, dict(BASE, model_type="gemma3_text", query_pre_attn_scalar=HEAD, sliding_window=8, tie_word_embeddings=True, num_hidden_layers=7),
               also(llama_keys, lambda f, c: (f.add_rope_freq_base(1e6), f.add_sliding_window(8))), one_more, SHORT),
    "phi3": (A.PHI3, dict({k: v for k, v in BASE.items() if k != "head_dim"}, model_type="phi3", pad_token_id=0, sliding_window=16),
             also(llama_keys, lambda f, c: f.add_sliding_window(16)), plain, SHORT),
    "gpt-oss": (A.GPT_OSS, dict(BASE, model_type="gpt_oss", num_local_experts=4, num_experts_per_tok=2, sliding_window=8, intermediate_size=64, attention_bias=True,
                rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=32)),
                also(llama_keys, lambda f, c: (experts_keys(f, c, 4, 2, 64), f.add_sliding_window(8), f.add_rope_scaling_type(gguf.RopeScalingType.YARN),
                     f.add_rope_scaling_factor(4.0), f.add_rope_scaling_orig_ctx_len(32))), gpt_oss, [T.MXFP4, T.Q8_0, T.BF16]),
    "deepseek2": (A.DEEPSEEK2, dict(BASE, model_type="deepseek_v3", num_key_value_heads=HEADS, q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=32,
                  v_head_dim=32, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, n_group=2, topk_group=1, moe_intermediate_size=32, first_k_dense_replace=1,
                  routed_scaling_factor=1.5, norm_topk_prob=True, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, mscale=1.0, mscale_all_dim=1.0,
                  beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=32)), deepseek_keys, stacked, SHORT),
    "deepseek2-v2": (A.DEEPSEEK2, dict(BASE, model_type="deepseek_v2", num_key_value_heads=HEADS, q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=32,
                     v_head_dim=32, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32, first_k_dense_replace=1, routed_scaling_factor=1.0,
                     topk_method="greedy", norm_topk_prob=False), also(deepseek_keys, lambda f, c: f.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)), stacked, SHORT),
    "deepseek2-split": (A.DEEPSEEK2, dict(BASE, model_type="deepseek_v3", num_key_value_heads=HEADS, q_lora_rank=None, kv_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=32,
                        v_head_dim=32, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1, moe_intermediate_size=32, first_k_dense_replace=1,
                        routed_scaling_factor=2.5, norm_topk_prob=True), also(deepseek_keys, mla_keys), split_latent, SHORT),
    "granite": (A.GRANITE, dict(BASE, model_type="granite", attention_multiplier=0.25, embedding_multiplier=6.0, residual_multiplier=0.5, logits_scaling=4.0),
                also(llama_keys, lambda f, c: (f.add_attention_scale(0.25), f.add_embedding_scale(6.0), f.add_residual_scale(0.5), f.add_logit_scale(4.0))), permuted, SHORT),
    "granitemoe": (A.GRANITE_MOE, dict(BASE, model_type="granitemoe", intermediate_size=64, num_local_experts=4, num_experts_per_tok=2, attention_multiplier=0.25,
                   embedding_multiplier=6.0, residual_multiplier=0.5, logits_scaling=4.0),
                   also(llama_keys, lambda f, c: (f.add_attention_scale(0.25), f.add_embedding_scale(6.0), f.add_residual_scale(0.5), f.add_logit_scale(4.0), f.add_expert_count(4),
                        f.add_expert_used_count(2))), granite_moe, SHORT),
    "qwen2vl": (A.QWEN2VL, dict(BASE, model_type="qwen2"), also(llama_keys, sections), plain, SHORT),
    "qwen3vl": (A.QWEN3VL, dict(BASE, model_type="qwen3", head_dim=32), also(llama_keys, sections), plain, SHORT),
    "qwen3vlmoe": (A.QWEN3VLMOE, dict(BASE, model_type="qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True),
                   also(llama_keys, sections, lambda f, c: experts_keys(f, c, 4, 2, 64)), stacked, SHORT),
    "olmo2": (A.OLMO2, dict(BASE, model_type="olmo2"), llama_keys, plain, SHORT),
    "command-r": (A.COMMAND_R, dict({k: v for k, v in BASE.items() if k != "head_dim"}, model_type="cohere", logit_scale=0.25, tie_word_embeddings=True),
                  also(lambda f, c: setattr(c, "rms_norm_eps", 1e-5), llama_keys, lambda f, c: (f.add_layer_norm_eps(c.layer_norm_eps), f.add_logit_scale(0.25))), plain, SHORT),
    "stablelm": (A.STABLELM, dict({k: v for k, v in BASE.items() if k != "head_dim"}, model_type="stablelm", partial_rotary_factor=0.25, use_qkv_bias=True),
                 also(lambda f, c: setattr(c, "rms_norm_eps", 1e-5), llama_keys, lambda f, c: (f.add_layer_norm_eps(c.layer_norm_eps), f.add_rope_dimension_count(4),
                      f.add_parallel_residual(False))), plain, SHORT),
    "starcoder2": (A.STARCODER2, dict({k: v for k, v in BASE.items() if k != "head_dim"}, model_type="starcoder2", sliding_window=None),
                   also(lambda f, c: setattr(c, "rms_norm_eps", 1e-5), llama_keys, lambda f, c: f.add_layer_norm_eps(c.norm_epsilon)), plain, SHORT),
    "gemma": (A.GEMMA, dict(BASE, model_type="gemma", tie_word_embeddings=True), llama_keys, one_more, SHORT),
    "qwen2moe": (A.QWEN2MOE, dict(BASE, model_type="qwen2_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=96,
                 norm_topk_prob=False), also(llama_keys, lambda f, c: (experts_keys(f, c, 4, 2, 64), f.add_expert_shared_feed_forward_length(96))), stacked, SHORT),
    "olmoe": (A.OLMOE, dict({k: v for k, v in BASE.items() if k != "head_dim"}, model_type="olmoe", num_experts=4, num_experts_per_tok=2, norm_topk_prob=False),
              also(llama_keys, lambda f, c: (f.add_expert_count(4), f.add_expert_used_count(2))), stacked, SHORT),
    "smollm3": (A.SMOLLM3, dict({k: v for k, v in BASE.items() if k != "head_dim"}, model_type="smollm3", num_hidden_layers=5, pad_token_id=0), llama_keys, permuted, SHORT),
    "glm4": (A.GLM4, dict(BASE, model_type="glm4", partial_rotary_factor=0.5, attention_bias=True, pad_token_id=0),
             also(llama_keys, lambda f, c: f.add_rope_dimension_count(8)), plain, SHORT),
    "gpt2": (A.GPT2, dict(model_type="gpt2", vocab_size=VOCAB, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_positions=CONTEXT, n_inner=INNER, bos_token_id=1, eos_token_id=2),
             also(common, lambda f, c: (f.add_feed_forward_length(INNER), f.add_layer_norm_eps(c.layer_norm_epsilon))), gpt2, SHORT),
    "gptneox": (A.GPTNEOX, dict({k: v for k, v in BASE.items() if k not in ("head_dim", "num_key_value_heads")}, model_type="gpt_neox", rotary_pct=0.25, use_parallel_residual=True),
                also(common, lambda f, c: (f.add_feed_forward_length(INNER), f.add_layer_norm_eps(c.layer_norm_eps), f.add_rope_dimension_count(4), f.add_parallel_residual(True))),
                neox, SHORT),
    "seed-oss": (A.SEED_OSS, dict(BASE, model_type="seed_oss", attention_bias=True, attention_out_bias=False, mlp_bias=False, pad_token_id=0), llama_keys, plain, SHORT),
    "exaone4": (A.EXAONE4, dict(BASE, model_type="exaone4", num_hidden_layers=4, sliding_window=8, layer_types=FOURTH_FULL, pad_token_id=0),
                also(llama_keys, lambda f, c: (f.add_sliding_window(8), f.add_sliding_window_pattern([t != "full_attention" for t in FOURTH_FULL]))), plain, SHORT),
    "cohere2": (A.COHERE2, dict(NO_HEAD, model_type="cohere2", num_hidden_layers=4, logit_scale=0.25, sliding_window=8, layer_types=FOURTH_FULL, tie_word_embeddings=True),
                also(lambda f, c: setattr(c, "rms_norm_eps", 1e-5), llama_keys, lambda f, c: (f.add_layer_norm_eps(c.layer_norm_eps), f.add_logit_scale(0.25),
                     f.add_sliding_window(8))), plain, SHORT),
    "olmo3": (A.OLMO2, dict(NO_HEAD, model_type="olmo3", num_hidden_layers=4, sliding_window=8, layer_types=FOURTH_FULL, pad_token_id=0, rope_parameters=dict(
              full_attention=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32, attention_factor=1.2, beta_fast=32.0, beta_slow=1.0),
              sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
              also(llama_keys, lambda f, c: (f.add_sliding_window(8), f.add_sliding_window_pattern([t != "full_attention" for t in FOURTH_FULL]),
                   f.add_rope_scaling_type(gguf.RopeScalingType.YARN), f.add_rope_scaling_factor(4.0), f.add_rope_scaling_orig_ctx_len(32),
                   f.add_rope_scaling_attn_factors(1.2))), plain, SHORT),
    "ernie4_5": (A.ERNIE4_5, dict(BASE, model_type="ernie4_5", use_bias=False, pad_token_id=0), llama_keys, plain, SHORT),
    "minimax-m2": (A.MINIMAXM2, dict(BASE, model_type="minimax_m2", intermediate_size=64, num_local_experts=4, num_experts_per_tok=2, pad_token_id=0,
                   rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
                   also(llama_keys, lambda f, c: (experts_keys(f, c, 4, 2, 64), f.add_rope_dimension_count(8), f.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID))),
                   stacked, SHORT),
    "glm4moe": (A.GLM4_MOE, dict(BASE, model_type="glm4_moe", num_hidden_layers=3, use_qk_norm=True, attention_bias=True, n_group=1, topk_group=1, n_shared_experts=1, n_routed_experts=8,
                num_experts_per_tok=2, moe_intermediate_size=32, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.5, pad_token_id=0,
                rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
                also(llama_keys, lambda f, c: (experts_keys(f, c, 8, 2, 32), f.add_rope_dimension_count(8), f.add_expert_shared_count(1), f.add_leading_dense_block_count(1),
                     f.add_expert_weights_scale(1.5), f.add_expert_weights_norm(True), f.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID))), stacked, SHORT),
    "arcee": (A.ARCEE, dict(BASE, model_type="arcee"), llama_keys, permuted, SHORT),
    "phi2": (A.PHI2, dict(NO_HEAD, model_type="phi", partial_rotary_factor=0.5), also(rms_of("layer_norm_eps"), llama_keys, lambda f, c: f.add_rope_dimension_count(8)), plain, SHORT),
    "nemotron": (A.NEMOTRON, dict(BASE, model_type="nemotron", partial_rotary_factor=0.5), also(rms_of("norm_eps"), llama_keys, lambda f, c: f.add_rope_dimension_count(8)),
                 one_more, SHORT),
    "hunyuan-dense": (A.HUNYUAN_DENSE, dict(BASE, model_type="hunyuan_v1_dense", rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=100.0, factor=1.0)),
                      also(llama_keys, stretched), hunyuan, SHORT),
    "hunyuan-moe": (A.HUNYUAN_MOE, dict(BASE, model_type="hunyuan_v1_moe", num_experts=4, moe_topk=2, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=100.0, factor=1.0)),
                    also(llama_keys, stretched, lambda f, c: (experts_keys(f, c, 4, 2, INNER), f.add_expert_shared_feed_forward_length(INNER))), hunyuan, SHORT),
    "falcon-shared": (A.FALCON, dict(NO_KV, model_type="falcon", ffn_hidden_size=INNER), falcon_keys, falcon, SHORT),
    "falcon-grouped": (A.FALCON, dict(NO_KV, model_type="falcon", ffn_hidden_size=INNER, new_decoder_architecture=True, num_kv_heads=2), falcon_keys, falcon, SHORT),
    "olmo": (A.OLMO, dict(NO_HEAD, model_type="olmo"), also(lambda f, c: setattr(c, "rms_norm_eps", 1e-5), llama_keys, lambda f, c: f.add_layer_norm_eps(1e-5)), permuted, SHORT),
    "dots1": (A.DOTS1, dict(BASE, model_type="dots1", num_hidden_layers=3, n_shared_experts=1, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32,
              first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.5, pad_token_id=0),
              also(llama_keys, lambda f, c: (experts_keys(f, c, 8, 2, 32), f.add_expert_shared_count(1), f.add_leading_dense_block_count(1), f.add_expert_weights_scale(1.5),
                   f.add_expert_weights_norm(True), f.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID))), stacked, SHORT),
}


def write(name):
    arch, config, keys, change, types = MODELS[name]
    torch.manual_seed(SEED)
    c = AutoConfig.for_model(**config)
    model = AutoModelForCausalLM.from_config(c, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for n, p in list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if n.endswith("correction_bias")]:
            scale = 0.05 if "norm" in n or "ln_" in n or n.endswith("bias") else 0.25
            p.add_(torch.randn(p.shape) * scale)
    w = Writer(name, arch, c, types)
    keys(w.file, c)
    if getattr(c, "rope_parameters", None) and c.rope_parameters.get("rope_type") == "llama3":
        llama3_freqs(w)
    state = model.state_dict()
    tied = {"lm_head.weight"} if c.tie_word_embeddings else set()
    for n, v in state.items():
        if n in tied or n.endswith(("inv_freq", ".attn.bias", "masked_bias", "embed_scale", "original_inv_freq")):
            continue
        state[n].copy_(torch.from_numpy(np.array(change(w, n, v.numpy()), dtype=np.float32, copy=True)))
    w.file.write_header_to_file()
    w.file.write_kv_data_to_file()
    w.file.write_tensors_to_file()
    w.file.close()
    cases = []
    for length in (1, 7, 30):
        ids = [int(x) for x in rng.integers(3, VOCAB, length)]
        with torch.no_grad():
            out = model.generate(torch.tensor([ids]), max_new_tokens=16, do_sample=False, eos_token_id=None, pad_token_id=0)
            logits = model(torch.tensor([ids])).logits[0, -1]
        cases.append({"ids": ids, "greedy": out[0, length:].tolist(), "logits": [round(float(x), 5) for x in logits]})
    (OUT / f"{name}.json").write_text(json.dumps(cases) + "\n")
    data = bz2.compress((OUT / f"{name}.gguf").read_bytes())
    (OUT / f"{name}.gguf.bz2").write_bytes(data)
    (OUT / f"{name}.gguf").unlink()
    print(name, len(data), cases[1]["greedy"][:6])


OUT.mkdir(parents=True, exist_ok=True)
for model in sys.argv[3:] or MODELS:
    write(model)
