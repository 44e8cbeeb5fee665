"""Measures start-up and anonymous memory of a server under a limit. Called by check-memory-contract.sh."""
import glob, json, os, re, socket, statistics, subprocess, sys, threading, time, urllib.request

serve, model = sys.argv[1], sys.argv[2]
limit = int(sys.argv[3]) if len(sys.argv) > 3 else 1024
runs = int(sys.argv[4]) if len(sys.argv) > 4 else 3


def evict(folder):
    """Asks the system to forget the model's pages; without the right to, it may keep them."""
    for name in glob.glob(os.path.join(folder, "*")):
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def anonymous(pid):
    """RssAnon in KiB."""
    return int(re.search(r"RssAnon:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))


def one():
    evict(model)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    start = time.perf_counter()
    p = subprocess.Popen([serve, "--model", model, "--port", str(port), "--max-memory", f"cpu={limit}MiB", "--log-level", "error"])
    try:
        while True:
            try:
                urllib.request.urlopen(url + "/health", timeout=5).read()
                break
            except OSError:
                if p.poll() is not None:
                    sys.exit("the server ended")
                time.sleep(0.002)
        health = time.perf_counter() - start
        peak, done = 0, threading.Event()

        def watch():
            nonlocal peak
            while not done.is_set():
                peak = max(peak, anonymous(p.pid))
                time.sleep(0.02)

        watcher = threading.Thread(target=watch)
        watcher.start()
        body = {"prompt": list(range(100, 228)), "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=600).read()
        answered = time.perf_counter() - start
        done.set()
        watcher.join()
        return health, answered, peak / 1024
    finally:
        p.terminate()
        p.wait(60)


results = [one() for _ in range(runs)]
health, answered, peak = (statistics.median(r[i] for r in results) for i in range(3))
worst = max(r[2] for r in results)
print(f"exec to /health {health*1000:.0f} ms, to a whole answer {answered:.2f} s, RssAnon {peak:.0f} MiB (largest {worst:.0f}) of {limit} MiB; median of {runs}")
sys.exit(worst > limit)
