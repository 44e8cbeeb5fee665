"""Decodes with one GGUF file by Heft and by llama.cpp in turn, and prints processor time and wall time per token and their ratios.
Processor time is comparable on a busy machine. usage: bench_gguf.py SERVE FILE.gguf [THREADS [ROUNDS]]

SERVE is a binary of cmd/serve; HEFT_CPU chooses its kernels. llama.cpp is that of the PyPI package xllamacpp, which is built for AVX2
(pip install xllamacpp). The difference of 200 and 20 tokens is measured, so that the prompt does not count."""
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
import xllamacpp

SERVE, MODEL = sys.argv[1], sys.argv[2]
THREADS, ROUNDS = [int(x) for x in sys.argv[3:5]] + [1, 5][len(sys.argv[3:5]):]
PROMPT, LONG, SHORT = "The history of computing begins with", 200, 20


def llama():
    p = xllamacpp.CommonParams()
    p.model.path, p.n_gpu_layers, p.n_ctx, p.n_parallel, p.port, p.verbosity = MODEL, 0, 1024, 1, 0, 0
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = THREADS
    server = xllamacpp.Server(p)

    def run(n):
        server.handle_completions({"prompt": PROMPT, "max_tokens": n, "temperature": 0, "ignore_eos": True, "cache_prompt": False})

    def used():
        r = resource.getrusage(resource.RUSAGE_SELF)
        return r.ru_utime + r.ru_stime
    return run, used


def heft():
    process = subprocess.Popen([SERVE, "--model", MODEL, "--port", "0", "--threads", str(THREADS)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    url = next(m.group(0) for m in (re.search(r"http://127.0.0.1:\d+", line) for line in process.stderr) if m)
    threading.Thread(target=lambda: [None for _ in process.stderr], daemon=True).start()
    name = json.load(urllib.request.urlopen(url + "/v1/models"))["data"][0]["id"]

    def run(n):
        body = json.dumps({"model": name, "prompt": PROMPT, "max_tokens": n, "temperature": 0, "ignore_eos": True}).encode()
        urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", data=body, headers={"Content-Type": "application/json"})).read()

    def used():
        fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return process, run, used


def measure(run, used, n):
    before, start = used(), time.time()
    run(n)
    return used() - before, time.time() - start


def token(run, used):
    long, short = measure(run, used, LONG), measure(run, used, SHORT)
    return [1e3 * (a - b) / (LONG - SHORT) for a, b in zip(long, short)]


process, *ours = heft()
try:
    theirs = llama()
    time.sleep(3)  # weights are promoted
    for side in ours, theirs:
        token(*side)
    ratios = []
    for i in range(ROUNDS):
        a, b = token(*theirs), token(*ours)
        ratios.append(a[0] / b[0])
        print(f"round {i}: processor ms a token: llama.cpp {a[0]:.2f}, heft {b[0]:.2f}, ratio {ratios[-1]:.2f}; wall ms: {a[1]:.2f}, {b[1]:.2f}, ratio {a[1] / b[1]:.2f}", flush=True)
    print(f"median ratio of processor time: {statistics.median(ratios):.2f}", flush=True)
finally:
    process.kill()
os._exit(0)
