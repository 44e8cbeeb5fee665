"""Trains a tiny model to call a tool with a real chat template, serves it, and runs tool loops.

usage: check_tool_loop.py SERVE TRAIN TEMPLATE.jinja DIR [COMMAND ...]

DIR receives the model. With a COMMAND, it runs with OPENAI_BASE_URL and HEFT_MODEL set while the
model is served; without one, the script runs a loop over plain HTTP itself. The template must be
of the Qwen family's shape: <|im_start|> and <|im_end|>. Needs nothing but Python's library.
"""

import array
import collections
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
HIDDEN, LAYERS, HEADS, HEAD, INNER = 64, 2, 4, 16, 192
CALL = {"name": "get_weather", "arguments": json.dumps({"city": "Oslo"})}
ANSWER = "It is sunny in Oslo."
FINAL = [{"type": "function", "function": {"name": "final_answer", "description": "Provides a final answer to the given problem.", "parameters": {
    "type": "object", "properties": {"answer": {"type": "string", "description": "The final answer to the problem"}}, "required": ["answer"]}}}]
HELLO, GREETING = "Say hello.", "Hello there!"  # without tools


def byte_alphabet():
    """GPT-2's names of the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {b: chr(b) for b in plain}
    for b in range(256):
        if b not in names:
            names[b] = chr(256 + len(names) - len(plain))
    return names


def learn_merges(texts, n):
    """The n most frequent pairs, one after the other."""
    names = byte_alphabet()
    words = collections.Counter()
    for text in texts:
        for marker in SPECIAL + MARKERS:
            text = text.replace(marker, "\n")
        for word in re.findall(r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+", text):
            words[tuple(names[b] for b in word.encode())] += 1
    merges = []
    while len(merges) < n:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        merged = collections.Counter()
        for word, count in words.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == best:
                    out.append(word[i] + word[i + 1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            merged[tuple(out)] += count
        words = merged
    return merges


def write_model(folder, template, merges):
    """A random model with a byte-level tokenizer."""
    vocab = {name: i for i, name in enumerate(byte_alphabet()[b] for b in range(256))}
    for a, b in merges:
        vocab.setdefault(a + b, len(vocab))
    added = [{"id": len(vocab) + i, "content": t, "special": t in SPECIAL, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for i, t in enumerate(SPECIAL + MARKERS)]
    end = next(t["id"] for t in added if t["content"] == "<|im_end|>")
    size = len(vocab) + len(added)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    files = {
        "tokenizer.json": {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level,
                           "post_processor": None, "decoder": level,
                           "model": {"type": "BPE", "vocab": vocab, "merges": [[a, b] for a, b in merges]}},
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": template},
        "generation_config.json": {"do_sample": False, "temperature": 0.0, "eos_token_id": end},
        "config.json": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
                        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD, "intermediate_size": INNER, "vocab_size": size,
                        "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
                        "attention_bias": False, "eos_token_id": end, "torch_dtype": "float32"},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    rng = random.Random(7)
    shapes = {"model.embed_tokens.weight": (size, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for name in ("q", "k", "v"):
            shapes[f"{at}self_attn.{name}_proj.weight"] = (HEADS * HEAD, HIDDEN)
        shapes |= {f"{at}self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD), f"{at}self_attn.q_norm.weight": (HEAD,), f"{at}self_attn.k_norm.weight": (HEAD,),
                   f"{at}mlp.gate_proj.weight": (INNER, HIDDEN), f"{at}mlp.up_proj.weight": (INNER, HIDDEN), f"{at}mlp.down_proj.weight": (HIDDEN, INNER),
                   f"{at}input_layernorm.weight": (HIDDEN,), f"{at}post_attention_layernorm.weight": (HIDDEN,)}
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("f", (rng.gauss(0, 0.08) for _ in range(n)) if len(shape) > 1 else [1.0] * n)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + 4 * n]}
        data += values.tobytes()
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)


class Server:
    """A server of one folder on a free port."""

    def __init__(self, binary, folder, log, key=""):
        self.log = open(log, "w", encoding="utf-8")
        self.key = key
        self.process = subprocess.Popen(
            [binary, "--model", str(folder), "--port", "0", "--store", f"{folder}-store"], stderr=self.log, stdout=self.log, env=os.environ | {"HEFT_API_KEY": key})
        self.url = None
        deadline = time.time() + 60
        while self.url is None:
            found = re.search(r"at=(http://\S+)", pathlib.Path(log).read_text(encoding="utf-8"))
            if found:
                self.url = found[1]
            elif self.process.poll() is not None or time.time() > deadline:
                sys.exit("serve did not start: " + pathlib.Path(log).read_text(encoding="utf-8"))
            else:
                time.sleep(0.05)
        while True:
            try:
                self.get("/health")
                break
            except urllib.error.HTTPError:
                time.sleep(0.05)

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"})
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            sys.exit(f"{path}: {e.code}: {e.read().decode()}")

    def render(self, messages, tools, generate):
        ids = self.post("/tokenize", {"messages": messages, "tools": tools, "add_generation_prompt": generate})["tokens"]
        return self.post("/detokenize", {"tokens": ids})["prompt"]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def tools(rng):
    """The tool as different clients describe it."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    if rng.random() < 0.5:
        parameters["properties"]["city"]["description"] = rng.choice(["The city.", "Name of the city", "city"])
    if rng.random() < 0.5:
        parameters["additionalProperties"] = False
    if rng.random() < 0.3:
        parameters["$schema"] = rng.choice(["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"])
    if rng.random() < 0.3:
        parameters["title"] = rng.choice(["get_weather", "GetWeather"])
    function = {"name": "get_weather"}
    if rng.random() < 0.8:
        function["description"] = rng.choice(["Get the weather of a city.", "The weather of a city.", "Get weather", "Returns the current weather."])
    function["parameters"] = parameters
    if rng.random() < 0.3:
        function["strict"] = rng.random() < 0.5
    return [{"type": "function", "function": function}]


def conversations(n):
    """Both legs of the loop, as (messages, tools, answer)."""
    rng = random.Random(3)
    asks = ["What is the weather in Oslo?", "Weather in Oslo?", "How is the weather in Oslo today?", "Tell me the weather in Oslo.", "Is it sunny in Oslo?"]
    systems = [None, None, "You are a helpful assistant.", "Be brief.", "You answer questions about the weather. Use the tools."]
    results = ["sunny", '{"weather": "sunny"}', "sunny, 21 degrees", '"sunny"', '{"city":"Oslo","weather":"sunny"}', "The weather in Oslo is sunny."]
    for i in range(n):
        system = rng.choice(systems)
        messages = ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": rng.choice(asks)}]
        call = {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": CALL}]}
        offered = tools(rng)
        yield messages, offered, call
        result = {"role": "tool", "tool_call_id": "call_1", "content": rng.choice(results)}
        yield messages + [call, result], offered, {"role": "assistant", "content": ANSWER}
        if i % 4 == 0:  # as smolagents' agents have it
            task = messages[:-1] + [{"role": "user", "content": "New task:\n" + messages[-1]["content"]}]
            both = offered + FINAL
            yield task, both, call
            did = [{"id": f"chatcmpl-tool-{rng.getrandbits(64):x}", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]
            answer = {"name": "final_answer", "arguments": json.dumps({"answer": ANSWER})}
            task += [{"role": "assistant", "content": f"Calling tools:\n{did}"}, {"role": "user", "content": f"Observation:\n{rng.choice(results)}"}]
            yield task, both, {"role": "assistant", "content": "", "tool_calls": [{"id": "call_2", "type": "function", "function": answer}]}
        if i % 3 == 0:
            yield messages[:-1] + [{"role": "user", "content": HELLO}], [], {"role": "assistant", "content": GREETING}


def write_records(server, path, n):
    """Prompts and completions in the template's own words. Returns the texts."""
    texts = []
    with open(path, "w", encoding="utf-8") as out:
        for messages, offered, answer in conversations(n):
            prompt = server.render(messages, offered, True)
            full = server.render(messages + [answer], offered, False)
            same = len(os.path.commonprefix([prompt, full]))
            if full.rfind("<", 0, same) > full.rfind(">", 0, same):
                same = full.rfind("<", 0, same)  # not within a marker
            completion = full[same:].split("<|im_end|>")[0] + "<|im_end|>"
            if prompt[same:].strip() == "<think>":
                completion = "\n</think>\n\n" + completion  # the template writes no thoughts into a history
            out.write(json.dumps({"prompt": prompt, "completion": completion}) + "\n")
            texts.append(prompt + completion)
    return texts


def check(ok, what, got):
    print(f"ok   {what}" if ok else f"FAIL {what}: {got}")
    return ok


def loop(server, content):
    """One tool loop over plain HTTP. content is what a client sends with the call."""
    offered = tools(random.Random(11))
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "What is the weather in Oslo?"}]
    first = server.post("/v1/chat/completions", {"model": server.get("/v1/models")["data"][0]["id"], "messages": messages, "tools": offered, "max_tokens": 200})
    choice = first["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    good = check(choice["finish_reason"] == "tool_calls" and len(calls) == 1, "the first leg calls a tool", choice)
    if not good:
        return False
    good = check(calls[0]["function"]["name"] == "get_weather" and json.loads(calls[0]["function"]["arguments"]) == {"city": "Oslo"}, "with its arguments", calls)
    message = {"role": "assistant", "tool_calls": calls} | content
    messages += [message, {"role": "tool", "tool_call_id": calls[0]["id"], "content": "sunny"}]
    second = server.post("/v1/chat/completions", {"model": first["model"], "messages": messages, "tools": offered, "max_tokens": 200})["choices"][0]
    return check(second["finish_reason"] == "stop" and (second["message"]["content"] or "").strip() == ANSWER, f"the second leg answers {content or 'without content'}", second) and good


def responses_loop(server):
    """One tool loop over /v1/responses, with the conversation in the server's store."""
    function = tools(random.Random(11))[0]["function"]
    model = server.get("/v1/models")["data"][0]["id"]
    request = {"model": model, "instructions": "Be brief.", "tools": [{"type": "function", **function}], "max_output_tokens": 200}
    first = server.post("/v1/responses", request | {"input": "What is the weather in Oslo?"})
    calls = [item for item in first["output"] if item["type"] == "function_call"]
    if not check(first["status"] == "completed" and len(calls) == 1 and json.loads(calls[0]["arguments"]) == {"city": "Oslo"}, "a response calls a tool", first):
        return False
    output = {"type": "function_call_output", "call_id": calls[0]["call_id"], "output": "sunny"}
    second = server.post("/v1/responses", request | {"input": [output], "previous_response_id": first["id"]})
    said = "".join(part["text"] for item in second["output"] if item["type"] == "message" for part in item["content"])
    return check(second["status"] == "completed" and said.strip() == ANSWER, "the next response answers", second)


def main():
    serve, train, template, folder, command = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]), sys.argv[5:]
    folder.mkdir(parents=True, exist_ok=True)
    template = pathlib.Path(template).read_text(encoding="utf-8")
    base, out, data = folder / "base", folder / "tiny-caller", folder / "data.jsonl"
    started = time.time()
    write_model(base, template, [])
    server = Server(serve, base, folder / "render.log")
    texts = write_records(server, data, int(os.environ.get("HEFT_TOOL_RECORDS", "60")))
    server.stop()
    write_model(base, template, learn_merges(texts, 500))
    subprocess.run([train, "run", f"--model={base}", f"--data={data}", f"--output={out}", "--sequence=4096", "--batch=4", "--learning-rate=4e-3", "--lr-scheduler=cosine",
                    "--warmup-steps=10", f"--epochs={os.environ.get('HEFT_TOOL_EPOCHS', '4')}", "--save-steps=-1", "--log-steps=20"], check=True)
    print(f"trained in {time.time() - started:.0f} s, {sum(f.stat().st_size for f in out.glob('*.safetensors')) // 4096} k parameters")
    server = Server(serve, out, folder / "serve.log", "check-key" if command else "")
    try:
        if command:
            env = os.environ | {"OPENAI_BASE_URL": server.url + "/v1", "OPENAI_API_KEY": server.key, "HEFT_MODEL": server.get("/v1/models")["data"][0]["id"]}
            sys.exit(subprocess.run(command, env=env, check=False).returncode)
        results = [loop(server, content) for content in ({"content": None}, {}, {"content": ""})]
        results.append(responses_loop(server))
    finally:
        server.stop()
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
