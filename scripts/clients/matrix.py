"""The cells of the client matrix, and how they are run. check-clients.sh starts the server and runs main.

A client is a class with a method per cell of CELLS, each of which raises if the client does not get what the server's
tiny model says. A cell that the client does not have is in its `out`, with the reason.
"""

import importlib.metadata
import json
import os
import sys
import time
import traceback

CELLS = ("chat", "stream", "tools", "structured", "responses", "errors", "usage")
MODEL, BASE, KEY = (os.environ.get(name, "") for name in ("HEFT_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY"))
JAVASCRIPT = ["openai-node", "anthropic-node", "ollama-node", "ai @ai-sdk/openai-compatible", "ai @ai-sdk/openai", "ai @ai-sdk/anthropic"]  # of matrix.mjs
HOST = BASE.removesuffix("/v1")
HELLO, GREETING = "Say hello.", "Hello there!"
ASK, ANSWER = "What is the weather in Oslo?", "It is sunny in Oslo."
PLACE = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "hot": {"type": "boolean"}}, "required": ["city", "hot"],
         "additionalProperties": False}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "Get the weather of a city.", "parameters": PARAMETERS}


class Weather:
    """The tool, and what it was asked."""

    def __init__(self):
        self.asked = []

    def look(self, city):
        self.asked.append(city)
        return "sunny"

    def function(self):
        """The tool as a Python function, which many clients describe by its signature."""

        def get_weather(city: str) -> str:
            """Get the weather of a city."""
            return self.look(city)

        return get_weather

    def check(self, answer):
        same(self.asked, ["Oslo"], "the tool was asked for")
        same(answer.strip(), ANSWER, "the answer")


def same(got, want, what="the text"):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def greeted(text):
    same((text or "").strip(), GREETING)


def counted(prompt, completion, total=None):
    """Checks the tokens of a greeting: the model has a token for each of few letters."""
    if not (5 < prompt < 40 and 1 < completion <= 12 and total in (None, prompt + completion)):
        raise AssertionError(f"usage: got {prompt} and {completion} tokens, {total} in total")


def place():
    """The type of a structured answer."""
    from typing import Literal

    import pydantic

    class Place(pydantic.BaseModel):
        """A place."""

        city: Literal["Oslo", "Rome"]
        hot: bool

    return Place


def rejected(status, call):
    """Checks that a call fails with a status of HTTP, which clients wrap in errors of their own."""
    try:
        got = call()
    except Exception as e:  # of any client
        seen, texts = e, []
        while seen is not None:
            if str(status) in (str(getattr(seen, "status_code", "")), str(getattr(seen, "code", ""))):
                return
            texts.append(str(seen))
            seen = seen.__cause__ or seen.__context__
        if not any(str(status) in text for text in texts):
            raise AssertionError(f"want status {status}, got {texts}") from e
        return
    raise AssertionError(f"want status {status}, got the answer {got!r}")


def run(clients, out):
    """Runs the clients that are installed here and appends a line of JSON for each cell to the file out."""
    for client in clients:
        try:
            version = importlib.metadata.version(client.package)
        except importlib.metadata.PackageNotFoundError:
            continue  # it is in another environment; table fails if it is in none
        for cell in CELLS:
            started, state, detail = time.time(), "pass", ""
            if cell in client.out:
                state, detail = "out", client.out[cell]
            else:
                try:
                    getattr(client(), cell)()
                except Exception as e:
                    traceback.print_exc()
                    state, detail = "FAIL", f"{type(e).__name__}: {e}"[:300]
            print(f"{state:5} {client.name} {version} {cell} {time.time() - started:.1f} s", flush=True)
            with open(out, "a", encoding="utf-8") as f:
                f.write(json.dumps({"client": client.name, "version": version, "cell": cell, "state": state, "detail": detail}) + "\n")


def table(path, names):
    """Prints the table. Returns whether every cell of every client is there and passes or is out of scope."""
    rows, reasons, bad = {}, {}, []
    with open(path, encoding="utf-8") as f:
        for line in f:
            r = json.loads(line)
            rows.setdefault((r["client"], r["version"]), {})[r["cell"]] = r["state"]
            if r["state"] == "out":
                reasons.setdefault(r["detail"], []).append(f"{r['client']} {r['cell']}")
            elif r["state"] != "pass":
                bad.append(f"{r['client']} {r['cell']}: {r['detail']}")
    print(f"\n{'client':38}" + "".join(f"{cell:12}" for cell in CELLS))
    for (client, version), cells in rows.items():
        print(f"{client + ' ' + version:38}" + "".join(f"{cells.get(cell, 'MISSING'):12}" for cell in CELLS))
    print("\nout of scope:")
    for reason, cells in reasons.items():
        print(f"  {', '.join(cells)}: {reason}")
    bad += [f"{client[0]}: there is no {cell}" for client, cells in rows.items() for cell in CELLS if cell not in cells]
    bad += [f"{name} did not run" for name in names if name not in {client for client, _ in rows}]
    passed = sum(state == "pass" for cells in rows.values() for state in cells.values())
    print(f"\n{len(rows)} clients, {passed} cells pass, {len(bad)} fail")
    for line in bad:
        print("FAIL", line)
    return not bad


def main():
    import frameworks
    import sdks

    clients = sdks.CLIENTS + frameworks.CLIENTS
    if sys.argv[1] == "table":
        sys.exit(0 if table(sys.argv[2], [] if os.environ.get("HEFT_CLIENTS") else [c.name for c in clients] + JAVASCRIPT) else 1)
    names = os.environ.get("HEFT_CLIENTS", "")  # some of them, or with ! all others
    chosen = names.removeprefix("!").split(",")
    run([c for c in clients if not names or (c.name in chosen) != names.startswith("!")], sys.argv[2])


if __name__ == "__main__":
    main()
