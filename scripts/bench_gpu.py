"""usage: bench_gpu.py OUT SECONDS [--simulator]   what bench-gpu.sh measures after the kernels, and its tables.

Makes a random Llama in OUT/model, runs OUT/build/serve-cuda bench on it, all on the GPU and with half of its blocks
on the CPU and on the disk, and generates with transformers and accelerate on the same folder. What is not there (torch,
a GPU for torch, time) is left out, and the table says why.
"""
import json
import pathlib
import re
import subprocess
import sys
import time

out, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
simulator = "--simulator" in sys.argv
end = time.monotonic() + seconds
result = {"simulator": simulator, "kernels": [], "torch": [], "serve": {}, "accelerate": {}, "left_out": []}


def left():
    return end - time.monotonic()


def leave_out(what, why):
    result["left_out"].append(f"{what}: {why}")


def kernels():
    """The lines of go test -bench: name, runs, then pairs of value and unit."""
    for line in (out / "kernels.log").read_text().splitlines():
        words = line.split()
        if not line.startswith("Benchmark") or len(words) < 4:
            continue
        row = {"name": re.sub(r"^Benchmark|-\d+$", "", words[0])}
        for value, unit in zip(words[2::2], words[3::2]):
            row[unit] = float(value)
        result["kernels"].append(row)


def torch_kernels():
    try:
        import torch
    except ImportError as e:
        return leave_out("torch's products", e)
    device = "cuda" if torch.cuda.is_available() and not simulator else "cpu"
    if device == "cpu" and not simulator:
        return leave_out("torch's products", "torch sees no GPU")
    for row in result["kernels"]:
        shape = re.fullmatch(r"Linear/(\d+)x(\d+)/rows-(\d+)", row["name"])
        if not shape or left() < 200 and not simulator:
            continue
        outputs, inputs, rows = map(int, shape.groups())
        w = torch.randn(outputs, inputs, dtype=torch.bfloat16, device=device)
        x = torch.randn(rows, inputs, dtype=torch.bfloat16, device=device)
        wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        for _ in range(3):
            x @ w.T
        wait()
        began, n = time.monotonic(), 0
        while n < 10 or time.monotonic() - began < 0.1:
            x @ w.T
            n += 1
            if n % 10 == 0:
                wait()
        wait()
        took = (time.monotonic() - began) / n
        result["torch"].append({"name": row["name"], "MB/s": w.nbytes / took / 1e6, "Gop/s": 2 * outputs * inputs * rows / took / 1e9})


def make_model():
    """A random Llama of some 1.2 billion weights, or a tiny one for the simulator."""
    import torch
    from safetensors.torch import save_file

    hidden, inner, layers, vocab = (64, 128, 4, 128) if simulator else (2048, 8192, 16, 32000)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": hidden,
              "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": hidden // 32 if simulator else 32,
              "num_key_value_heads": 2 if simulator else 8, "vocab_size": vocab, "max_position_embeddings": 2048,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
    folder = out / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}
    for i in range(layers):
        at = f"model.layers.{i}."
        for name, shape in {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (hidden, hidden),
                            "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden),
                            "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}.items():
            shapes[at + name + ".weight"] = shape
    torch.manual_seed(1)
    tensors = {k: torch.ones(s, dtype=torch.bfloat16) if len(s) == 1 else torch.randn(s, dtype=torch.bfloat16) * 0.02 for k, s in shapes.items()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder, layers


def maps(layers):
    """Device maps by name. Blocks go to the GPU, or the first half of them."""
    split = {f"model.layers.{i}": 0 for i in range(layers // 2)}
    return {"all on the GPU": {"": 0}, "half on the cpu": {"": "cpu", **split}, "half on the disk": {"": "disk", **split}}


def serve(folder, layers):
    prompt, decode = (16, 4) if simulator else (512, 64)
    for name, device_map in maps(layers).items():
        for streams in (["none"] if name == "all on the GPU" else ["none", "1"]):
            label = name + (", prompts streamed" if streams == "1" else "")
            if left() < 60:
                leave_out(f"serve bench, {label}", "no time is left")
                continue
            command = [str(out / "build/serve-cuda"), "bench", str(folder), "--json", "--no-probe", "--cache-dir", "none", "--prompt-tokens", str(prompt),
                       "--decode-tokens", str(decode), "--max-model-len", "1024", "--device-map", json.dumps(device_map), "--stream-prompts", streams, "--gpu-kernels", "fast"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=left())
            except subprocess.TimeoutExpired:
                leave_out(f"serve bench, {label}", "no time is left")
                continue
            (out / "serve.log").open("a").write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
            if done.returncode:
                sys.exit(f"bench-gpu: serve bench, {label}: {done.stderr[-2000:]}")
            result["serve"][label] = json.loads(done.stdout)


def accelerate(folder, layers):
    try:
        import accelerate  # noqa: F401  device_map needs it
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as e:
        return leave_out("transformers with accelerate", e)
    if not simulator and not torch.cuda.is_available():
        return leave_out("transformers with accelerate", "torch sees no GPU")
    prompt, decode = (16, 4) if simulator else (512, 64)
    for name, device_map in maps(layers).items():
        if left() < 45:
            leave_out(f"accelerate, {name}", "no time is left")
            continue
        named = {"model.embed_tokens": device_map[""], "model.norm": device_map[""], "model.rotary_emb": device_map[""], "lm_head": device_map[""]}
        named.update({f"model.layers.{i}": device_map.get(f"model.layers.{i}", device_map[""]) for i in range(layers)})
        if simulator:
            named = {"": "cpu"}
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map=named, offload_folder=str(out / "offload"))
        ids = torch.randint(3, 100, (1, prompt), device="cpu" if simulator else "cuda")
        times = []
        for n in (1, 1, 1 + decode):  # the first run warms up
            began = time.monotonic()
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0)
            times.append(time.monotonic() - began)
        result["accelerate"][name] = {"prompt_tokens_per_second": prompt / times[1], "decode_tokens_per_second": decode / max(times[2] - times[1], 1e-9)}
        del model


def table():
    lines = ["The simulated driver: these numbers mean nothing."] if simulator else []
    peers = {row["name"]: row for row in result["torch"]}
    for row in result["kernels"]:
        line = f"{row['name']:32} {row.get('MB/s', 0) / 1e3:10.2f} GB/s {row.get('Gop/s', 0):12.1f} Gop/s"
        if row["name"] in peers:
            line += f"   torch {peers[row['name']]['MB/s'] / 1e3:10.2f} GB/s {peers[row['name']]['Gop/s']:12.1f} Gop/s"
        lines.append(line)
    for name, r in result["serve"].items():
        rates = {k: v for k, v in r.items() if k.endswith("per_second") and isinstance(v, (int, float))}
        lines.append(f"serve, {name}: {json.dumps(rates)}")
    for name, r in result["accelerate"].items():
        lines.append(f"accelerate, {name}: {json.dumps(r)}")
    lines += [f"left out: {what}" for what in result["left_out"]]
    (out / "gpu.txt").write_text("\n".join(lines) + "\n")


kernels()
torch_kernels()
try:
    folder, layers = make_model()
except ImportError as e:
    leave_out("serve bench and accelerate", f"no model can be made: {e}")
else:
    serve(folder, layers)
    accelerate(folder, layers)
(out / "gpu.json").write_text(json.dumps(result, indent=1) + "\n")
table()
