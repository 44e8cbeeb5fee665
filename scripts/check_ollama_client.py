"""Uses a server as users of Ollama's Python client do. Called by check-ollama-client.sh."""
import pathlib, re, shutil, signal, sys, tempfile

import ollama

from checked_server import KEY, expect, start

# How the demo model would write calls.
TEMPLATE = """{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}
<tool_call>
{"name": {{ c.function.name | tojson }}, "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
HELLO = [{"role": "user", "content": "Hi"}]
COLD = {"temperature": 0, "num_predict": 8, "num_ctx": 4096, "num_gpu": 1}
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}


def weather(city: str) -> str:
    """What it is like.

    Args:
      city: where
    """
    return "rain in " + city


def answers(client, name):
    r = client.chat(model=name, messages=HELLO, options=COLD)
    expect("chat", r.done and r.message.role == "assistant" and r.message.content and r.eval_count <= 8 and r.total_duration > 0 and r.prompt_eval_count > 0, r)
    parts = list(client.chat(model=name, messages=HELLO, options=COLD, stream=True))
    expect("a streamed chat says the same", "".join(p.message.content for p in parts) == r.message.content and parts[-1].done and parts[-1].eval_count == r.eval_count, parts)
    g = client.generate(model=name, prompt="The boat", options=COLD, raw=True)
    expect("generate", g.response and g.done_reason in ("stop", "length"), g)
    expect("a streamed generate says the same", "".join(p.response for p in client.generate(model=name, prompt="The boat", options=COLD, raw=True, stream=True)) == g.response)
    r = client.chat(model=name, messages=HELLO, format=CITY, options={"temperature": 0})
    expect("a schema", re.fullmatch(r'\s*\{\s*"city"\s*:\s*"(Oslo|Rome)"\s*\}\s*', r.message.content), r)
    r = client.embed(model=name, input=["a", "b"])
    expect("embed", len(r.embeddings) == 2 and abs(sum(x * x for x in r.embeddings[0]) - 1) < 1e-4)


def loop(client, name):
    """A call as the model would make it, its result, and the answer. A stream is left early at the end."""
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Oslo"}}}]}
    done = HELLO + [call, {"role": "tool", "tool_name": "weather", "content": weather("Oslo")}]
    r = client.chat(model=name, messages=done, tools=[weather], options=COLD)
    expect("the answer to a result", r.done and r.prompt_eval_count > 0, r)
    next(iter(client.generate(model=name, prompt="The boat", raw=True, stream=True)))
    expect("a stream that is left early", True)


def lists(client, name):
    expect("list", [m.model for m in client.list().models] == [name])
    expect("ps", [m.model for m in client.ps().models] == [name] and client.ps().models[0].context_length > 0)
    show = client.show(name)
    expect("show", show.modelinfo["general.architecture"] == show.details.family and "tools" in show.capabilities and show.template, show)


def refused(what, status, call):
    try:
        got = call()
    except ollama.ResponseError as e:
        expect(f"{what}: {e.status_code} {e.error}", e.status_code == status and e.error and not e.error.startswith("{"))
    else:
        raise AssertionError(f"{what}: no error, but {got!r}")


def refusals(client, name, base):
    refused("an unknown model", 404, lambda: client.chat(model="none", messages=HELLO))
    expect("pull of a served model", client.pull(name).status == "success")
    expect("pull of a served model, streamed", [p.status for p in client.pull(name, stream=True)] == ["success"])
    refused("pull of another model", 501, lambda: client.pull("other"))
    refused("delete", 501, lambda: client.delete(name))
    refused("an option that is not supported", 400, lambda: client.chat(model=name, messages=HELLO, options={"mirostat": 2}))
    refused("images", 400, lambda: client.generate(model=name, prompt="x", images=[b"\x89PNG"]))
    refused("an error of a stream", 404, lambda: list(client.chat(model="none", messages=HELLO, stream=True)))
    refused("no key", 401, lambda: ollama.Client(host=base).chat(model=name, messages=HELLO))


def main(serve):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder, "tools")
        shutil.copytree("loader/demo/model", folder)
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        p, base, log = start(serve, "--model", str(folder))
        try:
            client = ollama.Client(host=base, headers={"Authorization": "Bearer " + KEY})
            name = client.list().models[0].model
            answers(client, name)
            loop(client, name)
            lists(client, name)
            refusals(client, name, base)
        finally:
            p.send_signal(signal.SIGTERM)
            status = p.wait(timeout=60)
    expect("the server ends by SIGTERM", status == 0, "".join(log))


if __name__ == "__main__":
    main(sys.argv[1])
