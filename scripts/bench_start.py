"""Starts serve again and again, cold and warm, and times its first token: see bench-start.sh."""

import glob
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time

REPEATS = int(os.environ.get("REPEATS", "5"))
LIMIT = 300  # seconds


def shards(model):
    return glob.glob(os.path.join(model, "*.safetensors"))


def evict(model):
    os.sync()
    for name in shards(model):
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answer(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    return connection.getresponse()


def first_token(port):
    body = {"model": "m", "prompt": [1, 2, 3, 4, 5, 6, 7, 8], "max_tokens": 2, "stream": True, "temperature": 0, "ignore_eos": True}
    response = answer(port, "POST", "/v1/completions", json.dumps(body))
    for line in response:
        if line.startswith(b"data:"):
            return response
    sys.exit(f"no token: {response.status}")


def start(serve, model, flags):
    """Seconds from exec to health and to the first token."""
    port = free_port()
    begin = time.perf_counter()
    process = subprocess.Popen([serve, "--model", model, "--served-model-name", "m", "--port", str(port)] + flags, stderr=subprocess.DEVNULL)
    try:
        while True:
            if process.poll() is not None or time.perf_counter() - begin > LIMIT:
                sys.exit(f"serve did not start: {process.poll()}")
            try:
                if answer(port, "GET", "/health").status == 200:
                    break
            except OSError:
                time.sleep(0.002)
        health = time.perf_counter() - begin
        response = first_token(port)
        token = time.perf_counter() - begin
        response.read()
        return health, token
    finally:
        process.terminate()
        process.wait()


def main():
    serve, model, flags = sys.argv[1], sys.argv[2], sys.argv[3:]
    size = sum(os.path.getsize(f) for f in shards(model))
    cold, warm, rates = [], [], []
    for _ in range(REPEATS):
        evict(model)
        probe = json.loads(subprocess.run([serve, "devices", "--json", "--probe-file", max(shards(model), key=os.path.getsize)], capture_output=True, check=True).stdout)
        rates.append(probe["rates"]["disk"]["bytes_per_second"])
        evict(model)
        cold.append(start(serve, model, flags))
        warm.append(start(serve, model, flags))
    m = statistics.median
    bound = size / m(rates)
    print(f"{size / 1e9:.2f} GB, disk {m(rates) / 1e9:.2f} GB/s: {bound:.3f} s to read all")
    for name, runs in (("cold", cold), ("warm", warm)):
        token = m([t for _, t in runs])
        more = f", {token / bound:.2f} times reading all" if name == "cold" else ""
        print(f"{name}: health after {m([h for h, _ in runs]):.3f} s, first token after {token:.3f} s{more}")


main()
