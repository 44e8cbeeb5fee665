"""Runs serve bench and its peers in turn and prints medians and ratios: see bench-peers.sh."""

import argparse
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

PEERS, BIN, SIZE = os.environ["PEERS_DIR"], os.environ["PEERS_BIN"], os.environ["SIZE"]
MODEL = f"{PEERS}/hf/{SIZE}"
RUN = shlex.split(os.environ.get("RUN", ""))
NO_AMX = {"HEFT_CPU": os.environ.get("HEFT_CPU", "avx512bf16"), "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}

TORCH = """
import json, sys, time, torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(int(sys.argv[2]))
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
ids = torch.randint(0, model.config.vocab_size, (1, 512))
with torch.inference_mode():
    for _ in range(2):
        start = time.perf_counter()
        model(ids, logits_to_keep=1)
        took = time.perf_counter() - start
print(json.dumps(512 / took))
"""


def call(command, amx=False):
    env = os.environ if amx else {**os.environ, **NO_AMX}
    done = subprocess.run(RUN + command, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def heft(serve, kind, threads, fmt, weights="promoted", amx=False):
    tokens = ["--prompt-tokens", "512", "--decode-tokens", "0"] if kind == "prefill" else ["--prompt-tokens", "0", "--decode-tokens", "32"]
    out = call([serve, "bench", "--model", MODEL, "--json", "--threads", str(threads), "--weights", weights] + tokens
               + (["--quantize", fmt] if fmt != "bf16" else []), amx)
    if kind == "prefill":
        return out["prompt_tokens_per_second"], out["prompt_roof_share"]
    return out["decode_tokens_per_second"], out["decode_roof_share"]


def llama(kind, threads, fmt):
    tokens = ["-p", "512", "-n", "0"] if kind == "prefill" else ["-p", "0", "-n", "32"]
    out = call([f"{BIN}/llama-bench", "-m", f"{PEERS}/gguf/{SIZE}-{fmt}.gguf", "-t", str(threads), "-r", "1", "-o", "json"] + tokens)
    return out[0]["avg_ts"], None


def torch(threads):
    return call([os.environ["TORCH_PYTHON"], "-c", TORCH, MODEL, str(threads)]), None


def rows(args):
    """Name, heft's run and the peer's run of each row."""
    s, out = args.serve, []
    if "decode" in args.only:
        for threads in (1, 2):
            out.append((f"decode bf16 mapped, {threads} thread", lambda t=threads: heft(s, "decode", t, "bf16", "mapped"), lambda t=threads: llama("decode", t, "bf16")))
            for fmt in ("bf16", "q8_0", "q4_0"):
                out.append((f"decode {fmt}, {threads} thread", lambda t=threads, f=fmt: heft(s, "decode", t, f), lambda t=threads, f=fmt: llama("decode", t, f)))
    if "prefill" in args.only:
        for fmt in ("bf16", "q8_0", "q4_0"):
            out.append((f"prefill 512 {fmt}, 2 thread", lambda f=fmt: heft(s, "prefill", 2, f), lambda f=fmt: llama("prefill", 2, f)))
    if "torch" in args.only and os.environ.get("TORCH_PYTHON"):
        out.append(("prefill 512 bf16, 2 thread; torch", lambda: heft(s, "prefill", 2, "bf16"), lambda: torch(2)))
    if "amx" in args.only and "amx_tile" in open("/proc/cpuinfo").read():
        out.append(("prefill 512 bf16 with AMX; own AVX-512", lambda: heft(s, "prefill", 2, "bf16", amx=True), lambda: heft(s, "prefill", 2, "bf16")))
    return out


class Server:
    """A server that answers on a port of its own, until close."""

    def __init__(self, command):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(command + ["--port", str(port)], env={**os.environ, **NO_AMX}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(3000):
            try:
                if urllib.request.urlopen(self.url + "/health", timeout=1).status == 200:
                    return
            except OSError:
                time.sleep(0.02)
        sys.exit(f"{command[0]} does not answer")

    def decode(self):
        out = call([sys.executable, os.environ["CLIENT"], "--url", self.url, "--streams", "8", "--prompt-tokens", "128", "--max-tokens", "64", "--rounds", "1"])
        return out["decode_tok_s"], None

    def close(self):
        self.process.terminate()
        self.process.wait()


def measure(name, ours, theirs, rounds):
    a, b, shares, ratios = [], [], [], []
    for _ in range(rounds):
        one, share = ours()
        other, _ = theirs()
        a.append(one), b.append(other), ratios.append(one / other)
        if share is not None:
            shares.append(share)
    m = statistics.median
    row = {"row": name, "heft": m(a), "peer": m(b), "ratio": m(ratios), "lowest": min(ratios), "highest": max(ratios), "share": m(shares) if shares else None}
    share = f"{100 * row['share']:.0f} %" if shares else ""
    print(f"| {name} | {row['heft']:.1f} | {row['peer']:.1f} | {row['ratio']:.2f} | {row['lowest']:.2f} to {row['highest']:.2f} | {share} |", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="decode,prefill,server,torch,amx")
    parser.add_argument("--row", default="", help="only rows whose names have this in them")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    args.only = args.only.split(",")
    print("| tokens/s, medians | heft | peer | ratio | of rounds | share of roof |\n|---|---|---|---|---|---|")
    out = [measure(name, ours, theirs, args.rounds) for name, ours, theirs in rows(args) if args.row in name]
    if "server" in args.only:
        own = Server([args.serve, "--model", MODEL, "--served-model-name", "m", "--threads", "2", "--max-model-len", "1024"])
        other = Server([f"{BIN}/llama-server", "-m", f"{PEERS}/gguf/{SIZE}-bf16.gguf", "-t", "2", "-tb", "2", "-c", "8192", "--parallel", "8", "--host", "127.0.0.1", "--log-disable"])
        try:
            out.append(measure("8 streams decoding bf16, 2 thread; llama-server", own.decode, other.decode, args.rounds))
        finally:
            own.close()
            other.close()
    if args.json:
        with open(args.json, "w") as f:
            json.dump(out, f, indent=1)


main()
