"""Uses a server as users of the official OpenAI client do. Called by check-openai-client.sh."""
import io, json, signal, sys, tempfile, time
from typing import Literal

import openai

from checked_server import KEY, expect, start


def refused(what, error, code, call):
    try:
        got = call()
    except error as e:
        expect(f"{what}: {error.__name__}", e.code == code, e.body)
    else:
        raise AssertionError(f"{what}: no {error.__name__}, but {got!r}")


HELLO = [{"role": "user", "content": "Hi"}]


def models(client):
    listed = client.models.list().data
    expect("models.list has one model", len(listed) == 1, listed)
    name = listed[0].id
    expect("models.retrieve", client.models.retrieve(name).id == name)
    return name


def chats(client, name):
    r = client.chat.completions.create(model=name, messages=HELLO, max_tokens=8, seed=1)
    said = r.choices[0].message
    expect("chat", said.role == "assistant" and isinstance(said.content, str) and r.usage.completion_tokens <= 8, r)
    expect("chat: an end and a sum", r.choices[0].finish_reason in ("stop", "length")
           and r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens, r)
    chunks = list(client.chat.completions.create(model=name, messages=HELLO, max_tokens=8, seed=1, stream=True,
                                                 stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    expect("chat, streamed, says the same", text == said.content, (text, said.content))
    expect("chat, streamed: the first chunk has the role", chunks[0].choices[0].delta.role == "assistant", chunks[0])
    expect("chat, streamed: the last chunk has the usage", chunks[-1].usage == r.usage or chunks[-1].usage.completion_tokens == r.usage.completion_tokens, chunks[-1])
    r = client.chat.completions.create(model=name, messages=HELLO, max_tokens=4, n=2, logprobs=True, top_logprobs=3)
    tokens = r.choices[1].logprobs.content
    expect("chat: logprobs of two choices", len(r.choices) == 2 and tokens and all(len(t.top_logprobs) == 3 and t.logprob <= 0 and t.bytes for t in tokens), r)
    with client.chat.completions.create(model=name, messages=HELLO, max_tokens=500, stream=True) as stream:
        next(iter(stream))
    expect("chat: a stream that is left early", True)


TOOLS = [{"type": "function", "function": {"name": "weather", "description": "What it is like.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def tools(client, name):
    """The demo model knows no calls: what is offered to it is not taken, and nothing breaks."""
    for choice in "auto", "none":
        r = client.chat.completions.create(model=name, messages=HELLO, max_tokens=4, tools=TOOLS, tool_choice=choice)
        said = r.choices[0].message
        expect(f"tools, {choice}", isinstance(said.content, str) and not said.tool_calls and r.choices[0].finish_reason in ("stop", "length"), r)
    refused("a call that is forced", openai.BadRequestError, None,
            lambda: client.chat.completions.create(model=name, messages=HELLO, tools=TOOLS, tool_choice="required"))
    refused("a tool without a name", openai.BadRequestError, None,
            lambda: client.chat.completions.create(model=name, messages=HELLO, tools=[{"type": "function", "function": {}}]))


def responses(client, name):
    r = client.responses.create(model=name, input="Hi", max_output_tokens=8, temperature=0)
    said = r.output_text
    expect("response", r.status in ("completed", "incomplete") and said and r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens <= r.usage.input_tokens + 8, r)
    expect("response, retrieved", client.responses.retrieve(r.id) == r)
    expect("response: its input", [i.content[0].text for i in client.responses.input_items.list(r.id)] == ["Hi"])
    events = list(client.responses.create(model=name, input="Hi", max_output_tokens=8, temperature=0, stream=True))
    expect("response, streamed, says the same", "".join(e.delta for e in events if e.type == "response.output_text.delta") == said, events)
    expect("response, streamed: the events are numbered", [e.sequence_number for e in events] == list(range(len(events))), events)
    again = list(client.responses.retrieve(events[0].response.id, stream=True, starting_after=2))
    expect("response, streamed again", again == events[3:], again)
    with client.responses.stream(model=name, input="Hi", temperature=0) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    expect("responses.stream", final.status == "completed" and final.output_text, final)
    second = client.responses.create(model=name, input="And you?", previous_response_id=final.id, max_output_tokens=4)
    expect("response after another", second.usage.input_tokens > r.usage.input_tokens and second.previous_response_id == final.id, second)
    refused("a response after none", openai.BadRequestError, "previous_response_not_found", lambda: client.responses.create(model=name, input="Hi", previous_response_id="resp_x"))
    client.responses.delete(r.id)
    refused("a deleted response", openai.NotFoundError, None, lambda: client.responses.retrieve(r.id))
    expect("a response that has ended, cancelled", client.responses.cancel(second.id).id == second.id)
    refused("a response in the background", openai.BadRequestError, None, lambda: client.responses.create(model=name, input="Hi", background=True))
    refused("a hosted tool", openai.BadRequestError, None, lambda: client.responses.create(model=name, input="Hi", tools=[{"type": "web_search"}]))


def parsed_responses(client, name):
    import pydantic

    class Place(pydantic.BaseModel):
        city: Literal["Oslo", "Rome"]
        hot: bool

    r = client.responses.parse(model=name, input="Where?", text_format=Place)
    expect("responses.parse", isinstance(r.output_parsed, Place), r)
    with client.responses.stream(model=name, input="Where?", text_format=Place) as stream:
        r = stream.get_final_response()
    expect("responses.parse, streamed", isinstance(r.output_parsed, Place), r)
    r = client.responses.create(model=name, input="Hi", max_output_tokens=4, include=["message.output_text.logprobs"], top_logprobs=2)
    expect("response: logprobs", [len(p.top_logprobs) for p in r.output[0].content[0].logprobs] == [2] * 4, r)


def completions(client, name):
    r = client.completions.create(model=name, prompt="The boat", max_tokens=6, temperature=0, logprobs=2, echo=True)
    c = r.choices[0]
    expect("completion with echo", c.text.startswith("The boat"), r)
    expect("completion: logprobs", c.logprobs.token_logprobs[0] is None and len(c.logprobs.tokens) == len(c.logprobs.text_offset), r)
    text = "".join(x.choices[0].text for x in client.completions.create(model=name, prompt="The boat", max_tokens=6, temperature=0, stream=True))
    expect("completion, streamed, says the same", "The boat" + text == c.text, (text, c.text))
    r = client.completions.create(model=name, prompt=[[5, 6, 7], [8]], max_tokens=3, extra_body={"return_token_ids": True, "ignore_eos": True})
    expect("completion of two lists of ids", [len(c.token_ids) for c in r.choices] == [3, 3], r)
    r = client.completions.create(model=name, prompt="The boat", max_tokens=64, seed=3, stop=["e"])
    expect("completion: ends before a stop string", "e" not in r.choices[0].text, r)


def errors(client, name, url):
    refused("unknown model", openai.NotFoundError, "model_not_found", lambda: client.chat.completions.create(model="nope", messages=HELLO))
    refused("bad temperature", openai.BadRequestError, None, lambda: client.chat.completions.create(model=name, messages=HELLO, temperature=9))
    refused("too long", openai.BadRequestError, "context_length_exceeded", lambda: client.completions.create(model=name, prompt="river " * 5000))
    other = openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
    refused("wrong key", openai.AuthenticationError, "invalid_api_key", lambda: other.models.list())
    other.close()


def batches(client, name):
    lines = [{"custom_id": f"c{i}", "method": "POST", "url": "/v1/chat/completions", "body": {"model": name, "messages": HELLO, "max_tokens": 4}} for i in range(9)]
    lines.append({**lines[0], "custom_id": "bad", "body": {"model": "nope", "messages": HELLO}})
    file = client.files.create(file=io.BytesIO("\n".join(map(json.dumps, lines)).encode()), purpose="batch")
    expect("files: listed", [f.id for f in client.files.list(purpose="batch")] == [file.id] and client.files.retrieve(file.id).bytes == file.bytes)
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"})
    for _ in range(600):
        batch = client.batches.retrieve(batch.id)
        if batch.status not in ("validating", "in_progress", "finalizing"):
            break
        time.sleep(0.1)
    expect("batch: completed", batch.status == "completed" and (batch.request_counts.completed, batch.request_counts.failed) == (9, 1), batch)
    out = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    expect("batch: results", sorted(r["custom_id"] for r in out) == [f"c{i}" for i in range(9)] and all(r["response"]["status_code"] == 200 for r in out), out)
    failed = json.loads(client.files.content(batch.error_file_id).text)
    expect("batch: a line that failed", failed["custom_id"] == "bad" and failed["response"]["status_code"] == 404, failed)
    expect("batches: listed", [b.id for b in client.batches.list(limit=1)] == [batch.id])
    refused("batch: cancelled too late", openai.BadRequestError, None, lambda: client.batches.cancel(batch.id))
    expect("files: deleted", client.files.delete(file.id).deleted)


def main():
    store = tempfile.TemporaryDirectory()
    server, url, log = start(sys.argv[1], "--store", store.name)
    try:
        print("openai", openai.__version__, "talks to", url)
        client = openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0, timeout=60)
        name = models(client)
        chats(client, name)
        tools(client, name)
        completions(client, name)
        responses(client, name)
        parsed_responses(client, name)
        batches(client, name)
        errors(client, name, url)
        client.close()
    except BaseException:
        server.kill()
        print("the server's log:\n" + "".join(log), file=sys.stderr)
        raise
    server.send_signal(signal.SIGTERM)
    status = server.wait(60)
    expect("SIGTERM ends the server with status 0", status == 0, (status, log))


main()
