"""Serves golden models and compares greedy tokens over HTTP. Called by check-golden-http.sh."""
import glob, gzip, json, os, re, subprocess, sys, threading, urllib.request

import packed

serve, folder = sys.argv[1], sys.argv[2]
PLACEMENTS = [["auto"], ["cpu"], ["disk"], ["auto", "--max-memory", "cpu=100KB"]]


def read(path):
    if os.path.exists(path + ".gz"):
        return json.load(gzip.open(path + ".gz"))
    return json.load(open(path))


def start(model, placement):
    """The server's process and address; port 0 lets it choose, and its log says which."""
    p = subprocess.Popen([serve, "--model", model, "--port", "0", "--precision", "high", "--device-map", *placement],
                         stderr=subprocess.PIPE, text=True)
    log = []
    for line in p.stderr:
        log.append(line)
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if found:
            threading.Thread(target=lambda: [None for _ in p.stderr], daemon=True).start()
            return p, "http://127.0.0.1:" + found.group(1)
    sys.exit(f"{model} {placement}: the server ended:\n" + "".join(log))


def tokens(url, ids, count):
    body = {"prompt": ids, "max_tokens": count, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as r:
        return json.load(r)["choices"][0]["token_ids"]


def check(model, golden, placement):
    p, url = start(model, placement)
    try:
        for prompt in golden["prompts"]:
            got = tokens(url, prompt["input_ids"], len(prompt["greedy_ids"]))
            if got != prompt["greedy_ids"]:
                return f"prompt of {len(prompt['input_ids'])}: got {got}, want {prompt['greedy_ids']}"
    finally:
        p.terminate()
        p.wait(30)
    return None


passed = failed = 0
for model in sorted(glob.glob(os.path.join(folder, "*", ""))):
    if not glob.glob(os.path.join(model, "golden.json*")):
        continue
    golden = read(os.path.join(model, "golden.json"))
    with packed.unpacked(model) as plain:
        for placement in PLACEMENTS:
            wrong = check(plain, golden, placement)
            name = os.path.basename(model.rstrip("/")) + " " + " ".join(placement)
            if wrong:
                failed += 1
                print("FAIL", name, wrong)
            else:
                passed += 1
                print("ok  ", name, flush=True)
print(f"golden over HTTP: {passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
