"""Measures what 900 idle and slow connections cost 100 fast ones, and what stays behind when they leave.

usage: check_connections.py SERVE [SECONDS [ROUNDS]]
Needs nothing but Python's library, and Linux for the count of descriptors.
"""
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

FAST, IDLE, SLOW_BODIES, SLOW_READERS = 100, 500, 200, 200
TOKENS = 16


def start(serve):
    p = subprocess.Popen([serve, "--port", "0", "--admin-addr", ":0", "--log-level", "info"], stderr=subprocess.PIPE, text=True)
    found, seen = {}, []
    for line in p.stderr:
        seen.append(line)
        for what in ("serving", "profiles"):
            m = re.search(rf"msg={what}\b.* at=http://(127\.0\.0\.1):(\d+)", line)
            if m:
                found[what] = int(m.group(2))
        if len(found) == 2:
            threading.Thread(target=lambda: [None for _ in p.stderr], daemon=True).start()
            return p, found["serving"], found["profiles"]
    sys.exit("the server ended:\n" + "".join(seen))


def post(path, body):
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path, len(data)), data


async def fast(port, until, counts, i):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head, data = post(b"/v1/completions", {"prompt": f"The boat {i}", "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0})
    while time.monotonic() < until:
        writer.write(head + data)
        await writer.drain()
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", answer)
        if not answer.startswith(b"HTTP/1.1 200") or not length:
            raise AssertionError(answer)
        await reader.readexactly(int(length.group(1)))
        counts[i] += TOKENS
    writer.close()


def cpu(pid):
    """Seconds that the server has computed."""
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(server, port, seconds):
    """Tokens of the fast clients together, per second and per second of the server's CPU time."""
    counts = [0] * FAST
    begin, before = time.monotonic(), cpu(server.pid)
    await asyncio.gather(*(fast(port, begin + seconds, counts, i) for i in range(FAST)))
    return sum(counts) / (time.monotonic() - begin), sum(counts) / (cpu(server.pid) - before)


async def idle(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await writer.drain()
    await reader.readuntil(b"\r\n\r\n")
    return writer, None


async def slow_body(port):
    """A body that comes byte by byte."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head, data = post(b"/v1/completions", {"prompt": "a" * 1000, "max_tokens": 1})
    writer.write(head)

    async def trickle():
        try:
            for b in data[:-1]:
                writer.write(bytes([b]))
                await writer.drain()
                await asyncio.sleep(1)
        except OSError:
            pass  # the server has disconnected it
    return writer, asyncio.create_task(trickle())


async def slow_reader(port):
    """A stream that is read a little at a time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    head, data = post(b"/v1/completions", {"prompt": "The river", "max_tokens": 64, "stream": True})
    writer.write(head + data)

    async def sip():
        while await reader.read(64):
            await asyncio.sleep(1)
    return writer, asyncio.create_task(sip())


async def crowd(port):
    kinds = [idle] * IDLE + [slow_body] * SLOW_BODIES + [slow_reader] * SLOW_READERS
    members = []
    for i in range(0, len(kinds), 50):
        members += await asyncio.gather(*(kind(port) for kind in kinds[i:i + 50]))
    return members


async def settle(port):
    """Waits until the streams of slow readers are computed, so that their tokens are not missing elsewhere."""
    while True:
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode())
        busy = sum(float(n) for n in re.findall(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)$", text, re.M))
        if busy == 0:
            return
        await asyncio.sleep(0.5)


async def leave(members):
    for writer, task in members:
        if task:
            task.cancel()
        writer.close()
    await asyncio.gather(*(task for _, task in members if task), return_exceptions=True)


async def upkeep(pid, seconds=3):
    """The share of one processor that the server takes when no fast client asks."""
    begin, before = time.monotonic(), cpu(pid)
    await asyncio.sleep(seconds)
    return (cpu(pid) - before) / (time.monotonic() - begin)


def held(pid, admin):
    """Goroutines, descriptors and MiB that the server holds."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{admin}/debug/pprof/goroutine?debug=1").read().decode()
    status = open(f"/proc/{pid}/status").read()
    return (int(re.search(r"total (\d+)", text).group(1)), len(os.listdir(f"/proc/{pid}/fd")),
            int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) // 1024)


async def main(serve, seconds, rounds):
    server, port, admin = start(serve)
    try:
        await measure(server, port, 2)  # warm
        before, ratios = None, []
        for i in range(rounds):
            alone = await measure(server, port, seconds)
            if before is None:
                await asyncio.sleep(2)
                before = held(server.pid, admin)
            members = await crowd(port)
            await settle(port)
            share = await upkeep(server.pid)
            beside = await measure(server, port, seconds)
            ratios.append([b / a for a, b in zip(alone, beside)])
            print(f"round {i + 1}: alone {alone[0]:.0f} tokens/s, beside {len(members)} idle and slow connections {beside[0]:.0f}: {ratios[-1][0]:.3f},"
                  f" by CPU time {ratios[-1][1]:.3f}; by themselves they cost {100 * share:.1f} %% of a processor; held then: %d goroutines, %d descriptors, %d MiB" % held(server.pid, admin), flush=True)
            await leave(members)
        for _ in range(30):  # net/http notices a connection that has closed when it reads
            await asyncio.sleep(1)
            after = held(server.pid, admin)
            if after[0] <= before[0] + 5 and after[1] <= before[1] + 5:
                break
        print("held before and after: %s, %s (goroutines, descriptors, MiB)" % (before, after))
        ratio, by_cpu = (statistics.median(column) for column in zip(*ratios))
        print(f"median ratio {ratio:.3f}, by CPU time {by_cpu:.3f}, goal 0.95")
        leaks = after[0] > before[0] + 5 or after[1] > before[1] + 5 or after[2] > 1.5 * before[2] + 64
        return 1 if leaks or ratio < 0.95 else 0
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 5, int(sys.argv[3]) if len(sys.argv) > 3 else 3)))
