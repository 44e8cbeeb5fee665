"""Times the Python tokenizers library and ours on the same text. Called by bench-tokenizers.sh."""
import glob, gzip, os, statistics, subprocess, sys, tempfile, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer

encode, folder, names = sys.argv[1], sys.argv[2], sys.argv[3:]
RUNS, SIZE = 5, 4_000_000

PROSE = ("Heft serves language models that are bigger than the memory they run on. It reads the config and the headers of a "
         "checkpoint, builds the skeleton of the model without a single weight, and plans where each layer lives; in 2026 "
         "that means 405 billion parameters, 30 GB of memory and one NVMe disk!\n\nfunc main() { fmt.Println(\"größe\") } "
         "// naïve café, 東京 и Москва, 🙂\n")


def text():
    n = len(PROSE.encode())
    return PROSE * (SIZE // n)


def read(path):
    return gzip.open(path + ".gz").read() if os.path.exists(path + ".gz") else open(path, "rb").read()


def python_rate(tokenizer, lines, size):
    start = time.perf_counter()
    for line in lines:
        tokenizer.encode(line, add_special_tokens=False)
    return size / 1e6 / (time.perf_counter() - start)


def ours_rate(file, corpus):
    return float(subprocess.check_output([encode, file, corpus], text=True))


body = text()
lines = [body[i:i + 2000] for i in range(0, len(body), 2000)]
size = len(body.encode())
print(f"{'vocabulary':28} {'tokenizers':>12} {'heft':>12} {'ratio':>7}   MB/s, medians of {RUNS}, texts of 2000 characters")
with tempfile.TemporaryDirectory() as temporary:
    corpus = os.path.join(temporary, "corpus")
    with open(corpus, "w", newline="") as f:
        f.write("\0".join(lines))
    for path in sorted(glob.glob(os.path.join(folder, "*", ""))):
        name = os.path.basename(path.rstrip("/"))
        if names and name not in names:
            continue
        file = os.path.join(temporary, "tokenizer.json")
        with open(file, "wb") as f:
            f.write(read(os.path.join(path, "tokenizer.json")))
        tokenizer = Tokenizer.from_file(file)
        pairs = [(python_rate(tokenizer, lines, size), ours_rate(file, corpus)) for _ in range(RUNS)]
        theirs, ours = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        print(f"{name:28} {theirs:12.2f} {ours:12.2f} {ours / theirs:6.1f}×", flush=True)
