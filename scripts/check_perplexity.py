"""Compares the perplexity of a text under a server of a GGUF file with llama.cpp's llama-perplexity: chunks of 512 tokens, of
which the second half counts. usage: check_perplexity.py FILE.gguf URL TEXT LLAMA_PERPLEXITY"""
import json
import math
import re
import subprocess
import sys
import urllib.request

CHUNK = 512
MOST = 0.005  # of the difference

path, url, text, binary = sys.argv[1:]


def ask(where, body):
    request = urllib.request.Request(url + where, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


with open(text, encoding="utf-8") as f:
    # llama.cpp drops one line break at the end of the file.
    tokens = ask("/tokenize", {"prompt": f.read().removesuffix("\n"), "add_special_tokens": True})["tokens"]
chunks = len(tokens) // CHUNK
total = count = 0
for k in range(chunks):
    ids = tokens[k * CHUNK:(k + 1) * CHUNK]
    choice = ask("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0})["choices"][0]
    for i in range(CHUNK // 2 + 1, CHUNK):
        total -= choice["prompt_logprobs"][i][str(ids[i])]["logprob"]
        count += 1
got = math.exp(total / count)
printed = subprocess.run([binary, "-m", path, "-f", text, "-c", str(CHUNK)], capture_output=True, text=True, check=True)
want = float(re.search(r"Final estimate: PPL = ([0-9.]+)", printed.stdout + printed.stderr).group(1))
print(f"perplexity of {chunks} chunks of {CHUNK} tokens: {got:.4f}, llama.cpp {want:.4f}, {100 * (got / want - 1):+.3f} %")
sys.exit(abs(got / want - 1) > MOST)
