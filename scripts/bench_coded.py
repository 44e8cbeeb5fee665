"""Compares coded with plain bfloat16 weights in turn: see bench-coded.sh."""

import argparse
import json
import os
import statistics
import struct
import subprocess


def words(count, scale):
    """So many bfloat16 numbers of a normal distribution, as bytes."""
    import numpy as np

    rng = np.random.default_rng(count)
    out = []
    for begin in range(0, count, 1 << 22):
        v = rng.standard_normal(min(1 << 22, count - begin), dtype=np.float32) * np.float32(scale)
        out.append(((v.view(np.uint32) + 0x8000) >> 16).astype("<u2").tobytes())
    return b"".join(out)


def make(folder, hidden, inner, layers, vocab):
    """Writes a Llama of normal weights, each matrix with a scale of its own."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": hidden // 128, "num_key_value_heads": hidden // 512,
        "head_dim": 128, "vocab_size": vocab, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config, f)
    kv = hidden // 4
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "lm_head.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for i in range(layers):
        p = f"model.layers.{i}."
        shapes |= {
            p + "input_layernorm.weight": (hidden,), p + "post_attention_layernorm.weight": (hidden,),
            p + "self_attn.q_proj.weight": (hidden, hidden), p + "self_attn.k_proj.weight": (kv, hidden),
            p + "self_attn.v_proj.weight": (kv, hidden), p + "self_attn.o_proj.weight": (hidden, hidden),
            p + "mlp.gate_proj.weight": (inner, hidden), p + "mlp.up_proj.weight": (inner, hidden),
            p + "mlp.down_proj.weight": (hidden, inner),
        }
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for k, shape in enumerate(shapes.values()):
            if len(shape) == 1:
                f.write(b"\x80\x3f" * shape[0])
            else:
                f.write(words(shape[0] * shape[1], 0.02 * (1 + k % 5 / 3)))


def bench(serve, model, threads, compress, more):
    out = subprocess.run(
        [serve, "bench", model, "--json", "--no-probe", "--threads", str(threads), "--compress", compress, *more],
        capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"serve bench --compress {compress}: {out.stderr.strip()}")
    return json.loads(out.stdout)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("serve")
    args.add_argument("work")
    args.add_argument("--model", default="")
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--threads", default="1,2")
    args.add_argument("--prompt", type=int, default=512)
    args.add_argument("--decode", type=int, default=64)
    args.add_argument("--json", default="")
    a = args.parse_args()
    model = a.model
    if not model:
        model = f"{a.work}/normal"
        make(model, 2048, 8192, 10, 8192)
    with open("/proc/cpuinfo") as f:
        processor = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "unknown")
    print(f"{processor}, load {os.getloadavg()[0]:.1f}")
    rows = []
    for threads in a.threads.split(","):
        for what, key, more in (("generated tokens", "decode_tokens_per_second", ["--prompt-tokens", "4", "--decode-tokens", str(a.decode)]),
                                ("prompt", "prompt_tokens_per_second", ["--prompt-tokens", str(a.prompt), "--decode-tokens", "0"])):
            rates = {"none": [], "exact": []}
            for i in range(a.rounds):
                for compress in ("none", "exact") if i % 2 == 0 else ("exact", "none"):
                    got = bench(a.serve, model, threads, compress, more)
                    if got["compress"] != compress:
                        raise SystemExit(f"--compress {compress}: serve bench ran with {got['compress']}")
                    rates[compress].append(got[key])
            ratio = statistics.median(c / p for c, p in zip(rates["exact"], rates["none"]))
            plain, coded = statistics.median(rates["none"]), statistics.median(rates["exact"])
            rows.append({"threads": int(threads), "what": what, "plain": plain, "coded": coded, "ratio": ratio, "rounds": rates})
            print(f"{threads} threads, {what}: plain {plain:.2f}, coded {coded:.2f} tokens/s, ratio of pairs {ratio:.3f}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f, indent=1)


main()
