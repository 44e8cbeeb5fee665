"""Measures models that are bigger than their memory and prints goals and results: see bench-offload.sh."""

import argparse
import glob
import json
import os
import shlex
import shutil
import statistics
import subprocess
import time

PEERS, TOOLS = os.environ["PEERS_DIR"], os.environ["PEERS_TOOLS"]
RUN = shlex.split(os.environ.get("RUN", ""))
THREADS = ["--threads", os.environ["THREADS"]] if os.environ.get("THREADS") else []
MIB, GIB = 1 << 20, 1 << 30

# A mixture of 1.04T parameters, of which 32B are active.
CONFIG_1T = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64, "n_shared_experts": 1,
    "n_routed_experts": 384, "routed_scaling_factor": 2.827, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "n_group": 1, "topk_group": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 1, "norm_topk_prob": True, "hidden_act": "silu",
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "vocab_size": 163840, "tie_word_embeddings": False,
    "attention_bias": False, "torch_dtype": "bfloat16", "rope_theta": 50000.0, "scoring_func": "sigmoid",
}


class Open(Exception):
    """Says why a row is left open."""


def need(path, what):
    if not path or not os.path.exists(path):
        raise Open(f"no {what}")
    return path


def model(name):
    return need(PEERS and f"{PEERS}/hf/{name}", f"hf/{name} in PEERS_DIR")


def size_of(folder):
    return sum(os.path.getsize(f"{folder}/{f}") for f in os.listdir(folder) if f.endswith(".safetensors"))


def drop(folder):
    """Evicts a folder's files from the page cache."""
    for name in os.listdir(folder):
        fd = os.open(f"{folder}/{name}", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def call(command):
    done = subprocess.run(RUN + command, capture_output=True, text=True)
    if done.returncode:
        raise Open(f"{command[0]}: status {done.returncode}: {done.stderr.strip()[-200:]}")
    return json.loads(done.stdout)


def limited(limit):
    """The beginning of a command that runs in a control group of so many bytes."""
    return [need(TOOLS and f"{TOOLS}/memlimit.sh", "memlimit.sh in PEERS_TOOLS"), str(limit)]


class Bench:
    def __init__(self, serve, work, rounds, names):
        self.serve, self.work, self.rounds, self.names = serve, work, rounds, names

    def bench(self, folder, limit, *more, inside=(), compress="none"):
        return call([*inside, self.serve, "bench", folder, "--json", "--max-memory", f"cpu={limit}", "--cache-dir", self.work,
                     "--compress", compress, *THREADS, *more])

    def diskbw(self, folder):
        """The best rate of direct reads, in bytes per second."""
        largest = max((f"{folder}/{f}" for f in os.listdir(folder) if f.endswith(".safetensors")), key=os.path.getsize)
        out = call([need(PEERS and f"{PEERS}/bin/diskbw", "bin/diskbw in PEERS_DIR"), largest, "1024", "quick"])
        return 1e9 * max(v for k, v in out.items() if k.startswith("odirect") and k.endswith("gbs"))

    def model(self, name):
        return model(self.names.get(name, name))

    def half(self, name):
        """A model with half of its size as limit."""
        folder = self.model(name)
        return folder, size_of(folder) // 2

    def plan1t(self):
        path = f"{self.work}/config.json"
        with open(path, "w") as f:
            json.dump(CONFIG_1T, f)
        took, least = [], None
        for _ in range(self.rounds):
            start = time.perf_counter()
            call([self.serve, "plan", path, "--json", "--no-probe", "--max-memory", "cpu=20GiB"])
            took.append(time.perf_counter() - start)
        for gib in range(8, 40):
            plan = call([self.serve, "plan", path, "--json", "--no-probe", "--max-memory", f"cpu={gib}GiB"])
            missed = (1 - plan.get("expert_hit_rate", 0)) * plan.get("expert_bytes_per_token", 0)
            if plan["disk_bytes_per_token"] - missed < MIB:
                least = gib
                break
        yield "1T mixture planned from config.json", "< 50 ms", f"{1e3 * min(took):.0f} ms", min(took) < 0.05
        yield "1T mixture: what every token reads is in RAM", "from 22 GiB", f"from {least} GiB", least is not None and least <= 22

    def moe32(self):
        folder = self.model("moe")
        for limit, goal in ((400, 152), (600, 99), (900, 57)):
            out = self.bench(folder, limit * MIB, "--prompt-tokens", "8", "--decode-tokens", "64", "--no-probe")
            mib = out["disk_bytes_per_token"] / MIB
            yield f"32 experts, top-4, at {limit} MiB: MiB from disk per token", f"<= {goal}", f"{mib:.1f}", mib <= goal

    def stream(self):
        folder, limit = self.half("mid")
        shares = []
        for _ in range(self.rounds):
            disk = self.diskbw(folder)
            out = self.bench(folder, limit, "--prompt-tokens", "0", "--decode-tokens", "8", "--no-probe")
            shares.append(out["disk_bytes_per_second"] / max(disk, self.diskbw(folder)))
        share = statistics.median(shares)
        yield "streaming, share of the direct-read rate", ">= 95 %", f"{100 * share:.1f} % ({self.rounds} rounds)", share >= 0.95

    def batch8(self):
        folder, limit = self.half("mid")
        ratios, reads = [], []
        for _ in range(self.rounds):
            one, eight = (self.bench(folder, limit, "--prompt-tokens", "16", "--decode-tokens", "8", "--batch", n, "--max-model-len",
                                     "256", "--no-probe") for n in ("1", "8"))
            ratios.append(8 * one["decode_tokens_per_second"] / eight["decode_tokens_per_second"])
            reads.append(eight["disk_bytes_per_token"] / one["disk_bytes_per_token"])
        ratio, read = statistics.median(ratios), statistics.median(reads)
        yield "8 sequences instead of one: time of a step", "<= 1.15x", f"{ratio:.3f}x, {read:.3f}x the bytes", ratio <= 1.15

    def prompt2000(self):
        try:
            folder, limit = self.half("mid")
        except Open as why:
            yield "prompt of 2000 tokens: passes of reads", "<= 1.3", f"left open: {why}", None
            folder = None
        for n, goal in ((2000, 1.3), (4000, 2.1)) if folder else ():
            out = self.bench(folder, limit, "--prompt-tokens", str(n), "--decode-tokens", "4", "--no-probe", "--max-model-len", "4096")
            passes = out["prompt_disk_bytes"] / out["disk_bytes_per_token"]
            yield f"prompt of {n} tokens: passes of reads", f"<= {goal}", f"{passes:.2f}", passes <= goal
        # A pass of a mixture reads at most the weights on the disk that its cache does not hold.
        folder = self.model("moe")
        out = self.bench(folder, 600 * MIB, "--prompt-tokens", "2000", "--decode-tokens", "4", "--no-probe")
        plan = call([self.serve, "plan", folder, "--json", "--no-probe", "--compress", "none", "--max-memory", f"cpu={600 * MIB}"])
        disk = next(d["weights_bytes"] for d in plan["devices"] if d["device"] == "disk")
        passes = out["prompt_disk_bytes"] / disk
        yield "prompt of 2000 tokens, 32 experts at 600 MiB: passes of reads", "<= 1.3", f"{passes:.2f}", passes <= 1.3

    def plan(self):
        for name, how in (("mid", ""), ("big", ""), ("moe", "usual curve"), ("moe", "earlier run"), ("moe", "recorded routing")):
            folder, limit = self.half(name)
            if how != "earlier run":  # which the bench before has measured
                for file in glob.glob(f"{self.work}/hits-*.json"):
                    os.remove(file)
            if how == "recorded routing":
                self.bench(folder, limit, "--prompt-tokens", "8", "--decode-tokens", "200", "--no-probe", "--trace", f"{self.work}/routing")
            tokens = "64" if how else "16"
            out = self.bench(folder, limit, "--prompt-tokens", "8", "--decode-tokens", tokens)
            name += how and f", {how}"
            for key, within in (("memory_bytes", 0.05), ("disk_bytes_per_token", 0.05), ("tokens_per_second", 0.15),
                                ("first_token_seconds", 0.15)):
                p, m = out["predicted"][key], out["measured"][key]
                yield (f"{name}: {key}, measured by predicted", f"within {100 * within:.0f} %",
                       f"{m / p:.3f}" if p and m else "unknown", bool(p and m) and abs(m / p - 1) <= within)

    def over(self, name, limit, best):
        """A model in a control group, beside llama.cpp."""
        folder, inside = self.model(name), limited(limit)
        def measure(compress):
            drop(folder)
            return self.bench(folder, limit, "--prompt-tokens", "0", "--decode-tokens", "8", "--no-probe", inside=inside, compress=compress)

        measure("exact")  # the first start codes weights
        coded = measure("exact")
        yield (f"{name}: seconds per token, coded weights", "shown", f"{1 / coded['decode_tokens_per_second']:.2f}, reads "
               f"{coded['disk_bytes_per_token'] / 1e9:.2f} GB", True)
        auto = measure("auto")
        yield (f"{name}: seconds per token, default flags", "shown", f"{1 / auto['decode_tokens_per_second']:.2f}, reads "
               f"{auto['disk_bytes_per_token'] / 1e9:.2f} GB", True)
        out = measure("none")
        seconds, read = 1 / out["decode_tokens_per_second"], out["disk_bytes_per_token"]
        yield (f"{name}: seconds per token, as stored", "shown", f"{seconds:.2f}, reads {read / 1e9:.2f} GB of {size_of(folder) / 1e9:.2f}", True)
        try:
            bound = max(size_of(folder) - limit, 0) / self.diskbw(folder)
            yield f"{name}: by (bytes that cannot be resident / disk rate)", "<= 1.15", f"{seconds / bound:.2f}", seconds / bound <= 1.15
        except Open as why:
            yield f"{name}: by the bound of the disk", "<= 1.15", f"left open: {why}", None
        try:
            bin, gguf = need(PEERS and f"{PEERS}/bin/llama-bench", "bin/llama-bench"), need(f"{PEERS}/gguf/{name}-bf16.gguf", f"gguf/{name}-bf16.gguf")
            drop(f"{PEERS}/gguf")
            theirs = 1 / call([*inside, bin, "-m", gguf, "-p", "0", "-n", "3", "-r", "1", "-o", "json", *(["-t", THREADS[1]] if THREADS else [])])[0]["avg_ts"]
            yield f"{name}: times faster than llama.cpp", f">= {best}x", f"{theirs / seconds:.2f}x ({theirs:.2f} s)", theirs / seconds >= best
        except Open as why:
            yield f"{name}: times faster than llama.cpp", f">= {best}x", f"left open: {why}", None

    def big(self):
        yield from self.over("big", 4 * GIB, 3)

    def huge(self):
        if not (PEERS and os.path.exists(f"{PEERS}/hf/huge")) and shutil.disk_usage(PEERS or ".").free < 65e9:
            raise Open("fewer than 65 GB of disk are free for huge and its GGUF")
        yield from self.over("huge", 24 * GIB, 4)

    def moe128(self):
        folder = self.model("moe128")
        limit = size_of(folder) // 3
        self.bench(folder, limit, "--prompt-tokens", "8", "--decode-tokens", "128", "--no-probe", "--trace", f"{self.work}/routing128")
        out = self.bench(folder, limit, "--prompt-tokens", "8", "--decode-tokens", "96", "--trace", f"{self.work}/routing128")
        p, m = out["predicted"], out["measured"]
        missed, memory = out["disk_bytes_per_token"], out["memory_read_bytes_per_second"]
        bound = max(missed / out["disk_probe_bytes_per_second"], out["weight_bytes_per_token"] / memory)
        share = bound * out["decode_tokens_per_second"]
        yield "128 experts at a third of the size: share of the bound", ">= 90 %", f"{100 * share:.0f} %", share >= 0.9
        hits, replay = out["experts"]["hit_rate"], out["replay"]
        yield ("128 experts: hits beside the policy's replay", "within 3 points", f"{100 * hits:.1f} % and {100 * replay['heft']:.1f} %",
               abs(hits - replay["heft"]) <= 0.03)
        yield ("128 experts: misses beside LRU's", "fewer", f"{100 - 100 * hits:.1f} % and {100 - 100 * replay['lru']:.1f} %", hits > replay["lru"])
        busy = out["reads"]["busy_seconds"] / (out["decode_tokens"] / out["decode_tokens_per_second"])
        binds = missed / out["disk_probe_bytes_per_second"] >= out["weight_bytes_per_token"] / memory
        yield ("128 experts: a read in flight, of the time", ">= 90 % if misses bind", f"{100 * busy:.0f} %" + ("" if binds else ", misses do not bind"),
               busy >= 0.9 if binds else None)
        yield "128 experts: bytes per token, measured by predicted", "within 5 %", f"{m['disk_bytes_per_token'] / p['disk_bytes_per_token']:.3f}", None

    def pressure(self):
        raise Open("scripts/soak-pressure.sh measures it, for 10 minutes")


# The order in which they run: those that need quiet first.
ROWS = ("plan1t", "stream", "big", "batch8", "plan", "moe128", "moe32", "prompt2000", "huge", "pressure")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("serve")
    p.add_argument("work")
    p.add_argument("--only", default=",".join(ROWS))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--minutes", type=float, default=15)
    p.add_argument("--use", default="", help="other models for rows: NAME=FOLDER,… of PEERS_DIR/hf")
    p.add_argument("--json")
    a = p.parse_args()
    names = dict(pair.split("=", 1) for pair in a.use.split(",") if pair)
    bench, results, began = Bench(a.serve, a.work, a.rounds, names), [], time.monotonic()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print("| row | goal | measured | |\n|---|---|---|---|", flush=True)
    for row in a.only.split(","):
        if row not in ROWS:
            p.error(f"row {row}: want some of {', '.join(ROWS)}")
        try:
            if time.monotonic() - began > 60 * a.minutes:
                raise Open(f"the {a.minutes:g} minutes are over")
            for name, goal, measured, met in getattr(bench, row)():
                mark = {True: "met", False: "not met", None: ""}[met]
                print(f"| {name} | {goal} | {measured} | {mark} |", flush=True)
                results.append({"row": row, "name": name, "goal": goal, "measured": measured, "met": met})
        except Open as why:
            print(f"| {row} | | left open: {why} | |", flush=True)
            results.append({"row": row, "open": str(why)})
    print(f"load {os.getloadavg()[0]:.1f} at the end, after {(time.monotonic() - began) / 60:.1f} minutes")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f, indent=1)


main()
