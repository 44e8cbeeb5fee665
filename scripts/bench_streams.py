"""Decodes several streams at once on an OpenAI-compatible server and prints how fast: see bench-peers.sh.

A round sends one prompt of random token ids a stream to /v1/completions. What counts is the phase in which all decode:
from the last stream's first token to the end of the first stream that is done.
"""

import argparse
import http.client
import json
import random
import statistics
import threading
import time
import urllib.parse


def stream(url, prompt, tokens, times):
    """Appends the time of each token of one completion."""
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=300)
    body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "stream": True, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"{response.status}: {response.read()[:300]}")
    for line in response:
        if line.startswith(b"data: {") and json.loads(line[6:]).get("choices"):
            times.append(time.perf_counter())
    connection.close()


def measure(url, streams, prompt_tokens, tokens):
    """Tokens a second of all streams while all decode, and the seconds to each one's first."""
    times = [[] for _ in range(streams)]
    prompts = [[random.randrange(100, 20000) for _ in range(prompt_tokens)] for _ in range(streams)]
    threads = [threading.Thread(target=stream, args=(url, p, tokens, t)) for p, t in zip(prompts, times)]
    begin = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    first, last = max(t[0] for t in times), min(t[-1] for t in times)
    count = sum(first < x <= last for t in times for x in t)
    return count / (last - first) if last > first else 0.0, [t[0] - begin for t in times]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    url = urllib.parse.urlparse(args.url)
    measure(url, 1, 8, 4)
    rates, first = [], []
    for _ in range(args.rounds):
        rate, waits = measure(url, args.streams, args.prompt_tokens, args.max_tokens)
        rates.append(rate)
        first += waits
    print(json.dumps({"decode_tok_s": statistics.median(rates), "ttft_p50_s": statistics.median(first)}))


main()
