"""A server for the checks of clients: started on a free port, with a key, and its log kept."""
import re, subprocess, sys, threading

KEY = "check-key"


def start(serve, *flags):
    """The server's process, its address, and the lines of its log; port 0 lets it choose, and its log says which."""
    p = subprocess.Popen([serve, "--port", "0", "--api-key", KEY, *flags], stderr=subprocess.PIPE, text=True)
    log = []
    for line in p.stderr:
        log.append(line)
        found = re.search(r"at=(http://127\.0\.0\.1:\d+)", line)
        if found:
            threading.Thread(target=lambda: log.extend(p.stderr), daemon=True).start()
            return p, found.group(1), log
    sys.exit("the server ended:\n" + "".join(log))


def expect(what, ok, seen=None):
    if not ok:
        raise AssertionError(f"{what}: {seen!r}")
    print("ok", what)
