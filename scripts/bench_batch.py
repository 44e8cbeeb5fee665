"""The measurements of bench-batch.sh."""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time


def write(path, lines, tokens):
    """Writes a file of requests; line i is the same in every file."""
    with open(path, "w") as f:
        for i in range(lines):
            body = {"model": "m", "prompt": [random.Random(i).randrange(3, 1000)], "max_tokens": tokens,
                    "temperature": 0, "ignore_eos": True}
            f.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) + "\n")


def run(serve, folder, model, lines, flags):
    """Answers a file, and returns the seconds and the texts by line."""
    out = os.path.join(folder, "out.jsonl")
    if os.path.exists(out):
        os.remove(out)
    begin = time.monotonic()
    subprocess.run([serve, "batch", os.path.join(folder, f"{lines}.jsonl"), "--model", model, "--served-model-name", "m",
                    "--max-batch", str(lines), "-o", out, *flags], check=True, stderr=subprocess.PIPE)
    took = time.monotonic() - begin
    with open(out) as f:
        results = [json.loads(line) for line in f]
    return took, {r["custom_id"]: r["response"]["body"]["choices"][0]["text"] for r in results}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("serve")
    p.add_argument("folder")
    p.add_argument("--model", required=True)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--tokens", type=int, default=8)
    p.add_argument("--lines", default="1,64,256")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    a, flags = p.parse_args(sys.argv[1:at]), sys.argv[at + 1:]
    sizes = [int(n) for n in a.lines.split(",")]
    for n in sizes:
        write(os.path.join(a.folder, f"{n}.jsonl"), n, a.tokens)
    rates, texts = {n: [] for n in sizes}, {}
    for _ in range(a.rounds):
        for n in sizes:
            took, answers = run(a.serve, a.folder, a.model, n, flags or ["--device-map", "disk"])
            rates[n].append(n * a.tokens / took)
            for line, text in answers.items():
                if texts.setdefault(line, text) != text:
                    sys.exit(f"line {line} has another answer in a file of {n} lines")
    one = statistics.median(rates[sizes[0]])
    for n in sizes:
        rate = statistics.median(rates[n])
        print(f"{n:4} lines: {rate:8.2f} tokens/s, {rate / one:6.1f} times the first ({min(rates[n]):.2f}-{max(rates[n]):.2f})")


main()
