"""Uses a server as users of Anthropic's client do. Called by check-anthropic-client.sh."""
import pathlib, shutil, signal, sys, tempfile

import anthropic

from checked_server import KEY, expect, start

COLD = {"temperature": 0}  # a field that newer versions of the client do not name
HELLO = [{"role": "user", "content": "Hi"}]
TOOLS = [{"name": "weather", "description": "What it is like.", "input_schema": {
    "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}}]
# How the demo model would write calls; the grammar of forced calls makes it.
TEMPLATE = """{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}
<tool_call>
{"name": {{ c.function.name | tojson }}, "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""


def refused(what, error, kind, call):
    try:
        got = call()
    except error as e:
        expect(f"{what}: {error.__name__}", e.body["type"] == "error" and e.body["error"]["type"] == kind and e.request_id == e.body["request_id"], e.body)
    else:
        raise AssertionError(f"{what}: no {error.__name__}, but {got!r}")


def creates(client, name):
    r = client.messages.create(model=name, max_tokens=8, messages=HELLO, system="Be brief.", extra_body=COLD)
    expect("create", r.role == "assistant" and r.content[0].type == "text" and r.stop_reason in ("end_turn", "max_tokens") and r.usage.output_tokens <= 8 and r._request_id, r)
    n = client.messages.count_tokens(model=name, messages=HELLO, system="Be brief.")
    expect("count_tokens", n.input_tokens == r.usage.input_tokens, (n, r.usage))
    with client.messages.stream(model=name, max_tokens=8, messages=HELLO, system="Be brief.", extra_body=COLD) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    expect("stream says the same", text == r.content[0].text == final.content[0].text and final.stop_reason == r.stop_reason and final.usage == r.usage, (text, r, final))
    r = client.messages.create(model=name, max_tokens=64, messages=[{"role": "user", "content": "The boat"}], stop_sequences=["e"], extra_body=COLD)
    expect("stop_sequences", r.stop_reason != "stop_sequence" or r.stop_sequence == "e" and "e" not in r.content[0].text, r)
    with client.messages.stream(model=name, max_tokens=500, messages=HELLO) as stream:
        next(iter(stream))
    expect("a stream that is left early", True)


def loop(client, name):
    """A forced call, its result, and the answer."""
    asked = dict(model=name, max_tokens=400, tools=TOOLS, extra_body=COLD)
    r = client.messages.create(**asked, messages=HELLO, tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True})
    call = r.content[-1]
    expect("a forced call", r.stop_reason == "tool_use" and call.type == "tool_use" and call.input["city"] in ("Oslo", "Rome"), r)
    with client.messages.stream(**asked, messages=HELLO, tool_choice={"type": "any", "disable_parallel_tool_use": True}) as stream:
        names = [e.type for e in stream]
        final = stream.get_final_message()
    expect("a forced call, streamed", final.content[-1].input == call.input and "input_json" in names, (names, final))
    done = HELLO + [{"role": "assistant", "content": [b.model_dump() for b in final.content]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": final.content[-1].id, "content": "rain", "cache_control": {"type": "ephemeral"}}]}]
    r = client.messages.create(**{**asked, "max_tokens": 8}, messages=done)
    expect("the answer to a result", r.usage.input_tokens + r.usage.cache_read_input_tokens > 0 and r.stop_reason, r)
    r = client.beta.messages.create(model=name, max_tokens=400, messages=HELLO, betas=["none-2099-01-01"], extra_body=COLD,
                                    output_config={"format": {"type": "json_schema", "schema": TOOLS[0]["input_schema"]}})
    expect("a schema, with an unknown beta", r.content[0].text.startswith("{"), r)


def errors(client, name, url):
    ask = lambda **more: client.messages.create(**{"model": name, "max_tokens": 4, "messages": HELLO, **more})
    refused("unknown model", anthropic.NotFoundError, "not_found_error", lambda: ask(model="nope"))
    refused("bad temperature", anthropic.BadRequestError, "invalid_request_error", lambda: ask(extra_body={"temperature": 9}))
    refused("too long", anthropic.BadRequestError, "invalid_request_error", lambda: ask(messages=[{"role": "user", "content": "river " * 5000}]))
    refused("an image", anthropic.BadRequestError, "invalid_request_error", lambda: ask(messages=[{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]}]))
    refused("a hosted tool", anthropic.BadRequestError, "invalid_request_error", lambda: ask(tools=[{"type": "web_search_20250305", "name": "web_search"}]))
    with anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0) as other:
        refused("wrong key", anthropic.AuthenticationError, "authentication_error", lambda: other.messages.count_tokens(model=name, messages=HELLO))


def main():
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree("loader/demo/model", folder, dirs_exist_ok=True)
        pathlib.Path(folder, "chat_template.jinja").write_text(TEMPLATE)
        server, url, log = start(sys.argv[1], "--model", folder)
        try:
            print("anthropic", anthropic.__version__, "talks to", url)
            with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, timeout=60) as client:
                name = pathlib.Path(folder).name
                creates(client, name)
                loop(client, name)
                errors(client, name, url)
        except BaseException:
            server.kill()
            print("the server's log:\n" + "".join(log), file=sys.stderr)
            raise
        server.send_signal(signal.SIGTERM)
        expect("SIGTERM ends the server with status 0", server.wait(60) == 0, log)


main()
