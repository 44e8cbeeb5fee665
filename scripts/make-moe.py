#!/usr/bin/env python3
"""Make a mixture of experts whose routing is like that of text, to measure caches of experts with.

usage: make-moe.py OUT [--experts 128] [--top 8] [--layers 24] [--inner 256]

The routing follows from the weights: the residual stream is the token's embedding plus a part of the
previous token's, which the first layer's attention copies (a window of two tokens, equal scores).
Routers are random; those of the hottest eighth are longer. The script searches for the part and the
length with which 30 % of a token's experts repeat the last token's and the hottest eighth of each
layer takes 40 % of all requests, for random tokens, and prints both. It needs numpy.
"""
import argparse, json, os, struct
import numpy as np

HIDDEN, HEADS, VOCAB = 512, 8, 4096


def routed(rng, experts, top, layers, part, hot, tokens=500):
    """Shares of repeated experts and of the hottest eighth, and what made them."""
    ids = rng.integers(0, VOCAB, tokens)
    embed = rng.standard_normal((VOCAB, HIDDEN), dtype=np.float32)
    routers = rng.standard_normal((layers, experts, HIDDEN), dtype=np.float32)
    for r in routers:
        r[rng.permutation(experts)[: experts // 8]] *= hot
    now, last = embed[ids[1:]], embed[ids[:-1]]
    x = now + part * (now + last) / 2
    repeated = hottest = 0
    for r in routers:
        chosen = np.argpartition(-(x @ r.T), top, axis=1)[:, :top]
        used = np.zeros((len(x), experts), bool)
        np.put_along_axis(used, chosen, True, axis=1)
        repeated += (used[1:] & used[:-1]).sum() / used[1:].sum()
        counts = np.sort(used.sum(0))
        hottest += counts[-(experts // 8):].sum() / counts.sum()
    return repeated / layers, hottest / layers, embed, routers


def search(a):
    """The part and the length, by halving one after the other."""
    part, hot = 1.0, 1.3
    for _ in range(6):
        low, high = 1.0, 3.0
        for _ in range(8):
            hot = (low + high) / 2
            _, h, _, _ = routed(np.random.default_rng(3), a.experts, a.top, min(a.layers, 4), part, hot)
            low, high = (hot, high) if h < 0.40 else (low, hot)
        low, high = 0.0, 8.0
        for _ in range(8):
            part = (low + high) / 2
            r, _, _, _ = routed(np.random.default_rng(3), a.experts, a.top, min(a.layers, 4), part, hot)
            low, high = (part, high) if r < 0.30 else (low, part)
    return part, hot


def bf16(x):
    """Rounds to nearest, ties to even."""
    b = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((b + 0x7FFF + ((b >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def tensors(a, part, embed, routers):
    rng = np.random.default_rng(4)
    small = lambda *shape: rng.standard_normal(shape, dtype=np.float32) * np.float32(1e-3)
    eye, zero, ones = np.eye(HIDDEN, dtype=np.float32), np.zeros((HIDDEN, HIDDEN), np.float32), np.ones(HIDDEN, np.float32)
    yield "model.embed_tokens.weight", embed
    for i in range(a.layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", ones
        for n in "qk":
            yield p + f"self_attn.{n}_proj.weight", zero
        yield p + "self_attn.v_proj.weight", eye
        yield p + "self_attn.o_proj.weight", eye * np.float32(part) if i == 0 else small(HIDDEN, HIDDEN)
        yield p + "post_attention_layernorm.weight", ones
        yield p + "block_sparse_moe.gate.weight", routers[i] / np.float32(HIDDEN**0.5)
        for e in range(a.experts):
            q = p + f"block_sparse_moe.experts.{e}."
            yield q + "w1.weight", small(a.inner, HIDDEN)
            yield q + "w3.weight", small(a.inner, HIDDEN)
            yield q + "w2.weight", small(HIDDEN, a.inner)
    yield "model.norm.weight", ones
    yield "lm_head.weight", small(VOCAB, HIDDEN)


def write(out, shard, part):
    """Writes a shard of (name, shape, bytes) and returns its name."""
    name = f"model-{part:05d}.safetensors"
    header, at = {}, 0
    for n, shape, b in shard:
        header[n] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + len(b)]}
        at += len(b)
    h = json.dumps(header, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(os.path.join(out, name), "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for _, _, b in shard:
            f.write(b)
    return name


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    for name, n in (("experts", 128), ("top", 8), ("layers", 24), ("inner", 256)):
        p.add_argument("--" + name, type=int, default=n)
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    part, hot = search(a)
    repeated, hottest, embed, routers = routed(np.random.default_rng(5), a.experts, a.top, a.layers, part, hot)
    print(f"{100 * repeated:.1f} % of a token's experts repeat the last token's; the hottest eighth takes {100 * hottest:.1f} % of the requests")
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": HIDDEN, "intermediate_size": a.inner,
              "num_hidden_layers": a.layers, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "vocab_size": VOCAB,
              "num_local_experts": a.experts, "num_experts_per_tok": a.top, "sliding_window": 2, "max_position_embeddings": 4096,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    with open(os.path.join(a.out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    shard, files, size, total = [], {}, 0, 0
    for name, x in list_end(tensors(a, part, embed, routers)):
        if name is None or size > 5e8:
            file = write(a.out, shard, len(set(files.values())) + 1)
            files.update({n: file for n, _, _ in shard})
            shard, size = [], 0
        if name is not None:
            b = bf16(x)
            shard.append((name, x.shape, b))
            size, total = size + len(b), total + len(b)
    with open(os.path.join(a.out, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": files}, f)


def list_end(items):
    """The items, then one that says that there are no more."""
    yield from items
    yield None, None


if __name__ == "__main__":
    main()
