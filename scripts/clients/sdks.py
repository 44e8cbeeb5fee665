"""Clients of APIs: openai, anthropic, ollama, litellm, instructor, llm and lm-eval."""

import json
import os
import tempfile

from matrix import ANSWER, ASK, BASE, FUNCTION, GREETING, HELLO, HOST, KEY, MODEL, PARAMETERS, PLACE, Weather, counted, greeted, place, rejected, same

SAY = [{"role": "user", "content": HELLO}]
TOOL = {"type": "function", "function": FUNCTION}


class OpenAI:
    name = package = "openai"
    out = {}

    def client(self, key=KEY):
        import openai

        return openai.OpenAI(base_url=BASE, api_key=key, max_retries=0)

    def chat(self):
        greeted(self.client().chat.completions.create(model=MODEL, messages=SAY).choices[0].message.content)

    def stream(self):
        chunks = self.client().chat.completions.create(model=MODEL, messages=SAY, stream=True)
        greeted("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
        with self.client().chat.completions.stream(model=MODEL, messages=SAY) as events:
            greeted(events.get_final_completion().choices[0].message.content)

    def tools(self):
        for stream in (False, True):
            weather = Weather()
            messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": ASK}]
            for _ in range(4):
                request = {"model": MODEL, "messages": messages, "tools": [TOOL], "temperature": 0}
                if stream:
                    with self.client().chat.completions.stream(**request) as events:
                        message = events.get_final_completion().choices[0].message
                else:
                    message = self.client().chat.completions.create(**request).choices[0].message
                if not message.tool_calls:
                    break
                messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
                for call in message.tool_calls:
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": weather.look(**json.loads(call.function.arguments))})
            weather.check(message.content)

    def structured(self):
        Place = place()
        got = self.client().chat.completions.parse(model=MODEL, messages=SAY, response_format=Place).choices[0].message.parsed
        same(type(got), Place)
        with self.client().chat.completions.stream(model=MODEL, messages=SAY, response_format=Place) as events:
            same(events.get_final_completion().choices[0].message.parsed, got)

    def responses(self):
        greeted(self.client().responses.create(model=MODEL, input=HELLO).output_text)
        same(type(self.client().responses.parse(model=MODEL, input=HELLO, text_format=place()).output_parsed).__name__, "Place")
        for stream in (False, True):
            for stored in (False, True):
                self.responses_loop(stream, stored)

    def responses_loop(self, stream, stored):
        """A loop with the conversation in the server's store, or sent each time."""
        weather, client = Weather(), self.client()
        items, previous = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": ASK}], None
        for _ in range(4):
            request = {"model": MODEL, "input": items, "tools": [{"type": "function", "strict": False} | FUNCTION], "temperature": 0, "store": stored,
                       "previous_response_id": previous}
            if stream:
                with client.responses.stream(**request) as events:
                    response = events.get_final_response()
            else:
                response = client.responses.create(**request)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                break
            outputs = [{"type": "function_call_output", "call_id": c.call_id, "output": weather.look(**json.loads(c.arguments))} for c in calls]
            if stored:
                items, previous = outputs, response.id
            else:
                items = items + [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output] + outputs
        weather.check(response.output_text)

    def errors(self):
        rejected(404, lambda: self.client().chat.completions.create(model="nope", messages=SAY))
        rejected(401, lambda: self.client("wrong").chat.completions.create(model=MODEL, messages=SAY))

    def usage(self):
        request = {"model": MODEL, "messages": SAY}
        u = self.client().chat.completions.create(**request).usage
        counted(u.prompt_tokens, u.completion_tokens, u.total_tokens)
        last = list(self.client().chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))[-1].usage
        same((last.prompt_tokens, last.completion_tokens), (u.prompt_tokens, u.completion_tokens))
        r = self.client().responses.create(model=MODEL, input=HELLO).usage
        same((r.input_tokens, r.output_tokens), (u.prompt_tokens, u.completion_tokens))


class Anthropic:
    name = package = "anthropic"
    out = {"responses": "Anthropic's API has no responses"}

    def client(self, key=KEY):
        import anthropic

        return anthropic.Anthropic(base_url=HOST, api_key=key, max_retries=0)

    def create(self, **more):
        return self.client().messages.create(**{"model": MODEL, "max_tokens": 200, "messages": SAY, "extra_body": {"temperature": 0}} | more)

    def chat(self):
        greeted(self.create().content[0].text)

    def stream(self):
        with self.client().messages.stream(model=MODEL, max_tokens=200, messages=SAY) as stream:
            greeted("".join(stream.text_stream))

    def tools(self):
        tool = {"name": "get_weather", "description": FUNCTION["description"], "input_schema": PARAMETERS}
        for stream in (False, True):
            weather, messages = Weather(), [{"role": "user", "content": ASK}]
            for _ in range(4):
                if stream:
                    with self.client().messages.stream(model=MODEL, max_tokens=200, messages=messages, tools=[tool]) as events:
                        message = events.get_final_message()
                else:
                    message = self.create(messages=messages, tools=[tool])
                calls = [block for block in message.content if block.type == "tool_use"]
                if not calls:
                    break
                same(message.stop_reason, "tool_use")
                messages += [{"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in message.content]},
                             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": c.id, "content": weather.look(**c.input)} for c in calls]}]
            weather.check("".join(block.text for block in message.content if block.type == "text"))

    def structured(self):
        r = self.create(extra_body={"output_config": {"format": {"type": "json_schema", "schema": PLACE}}})
        place().model_validate_json(r.content[0].text)

    def errors(self):
        rejected(404, lambda: self.create(model="nope"))
        rejected(401, lambda: self.client("wrong").messages.create(model=MODEL, max_tokens=9, messages=SAY))

    def usage(self):
        u = self.create().usage
        counted(u.input_tokens + (u.cache_read_input_tokens or 0), u.output_tokens)
        same(self.client().messages.count_tokens(model=MODEL, messages=SAY).input_tokens, u.input_tokens + (u.cache_read_input_tokens or 0))


class Ollama:
    name = package = "ollama"
    out = {"responses": "Ollama's API has no responses"}

    def client(self, key=KEY):
        import ollama

        return ollama.Client(host=HOST, headers={"Authorization": f"Bearer {key}"})

    def chat(self):
        greeted(self.client().chat(model=MODEL, messages=SAY).message.content)

    def stream(self):
        greeted("".join(part.message.content or "" for part in self.client().chat(model=MODEL, messages=SAY, stream=True)))

    def tools(self):
        import ollama

        for stream in (False, True):
            weather = Weather()
            look, messages = weather.function(), [{"role": "user", "content": ASK}]
            for _ in range(4):
                answer = self.client().chat(model=MODEL, messages=messages, tools=[look], stream=stream)
                calls, content = [], ""
                for part in answer if stream else [answer]:
                    content += part.message.content or ""
                    calls += part.message.tool_calls or []
                if not calls:
                    break
                messages.append(ollama.Message(role="assistant", content=content, tool_calls=calls))
                for call in calls:
                    messages.append({"role": "tool", "tool_name": call.function.name, "content": look(**call.function.arguments)})
            weather.check(content)

    def structured(self):
        place().model_validate_json(self.client().chat(model=MODEL, messages=SAY, format=place().model_json_schema()).message.content)

    def errors(self):
        rejected(404, lambda: self.client().chat(model="nope", messages=SAY))
        rejected(401, lambda: self.client("wrong").chat(model=MODEL, messages=SAY))

    def usage(self):
        r = self.client().chat(model=MODEL, messages=SAY)
        counted(r.prompt_eval_count, r.eval_count)


class LiteLLM:
    name = package = "litellm"
    out = {}

    def ask(self, **more):
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it downloads prices
        import litellm

        litellm.suppress_debug_info = True
        return litellm.completion(**{"model": f"openai/{MODEL}", "api_base": BASE, "api_key": KEY, "messages": SAY, "max_retries": 0} | more)

    def chat(self):
        greeted(self.ask().choices[0].message.content)
        greeted(self.ask(model=f"anthropic/{MODEL}", api_base=HOST, max_tokens=200).choices[0].message.content)
        greeted(self.ask(model=f"ollama_chat/{MODEL}", api_base=HOST).choices[0].message.content)
        greeted(self.ask(model=f"hosted_vllm/{MODEL}").choices[0].message.content)

    def stream(self):
        for model, base in ((f"openai/{MODEL}", BASE), (f"anthropic/{MODEL}", HOST)):
            greeted("".join(c.choices[0].delta.content or "" for c in self.ask(model=model, api_base=base, stream=True, max_tokens=200)))

    def tools(self):
        for model, base in ((f"openai/{MODEL}", BASE), (f"anthropic/{MODEL}", HOST)):
            weather, messages = Weather(), [{"role": "user", "content": ASK}]
            for _ in range(4):
                message = self.ask(model=model, api_base=base, messages=messages, tools=[TOOL], max_tokens=200).choices[0].message
                if not message.tool_calls:
                    break
                messages.append(message.model_dump(exclude_none=True))
                for call in message.tool_calls:
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": weather.look(**json.loads(call.function.arguments))})
            weather.check(message.content)

    def structured(self):
        place().model_validate_json(self.ask(response_format=place()).choices[0].message.content)

    def responses(self):
        import litellm

        r = litellm.responses(model=f"openai/{MODEL}", api_base=BASE, api_key=KEY, input=HELLO)
        greeted(r.output[-1].content[0].text)

    def errors(self):
        rejected(404, lambda: self.ask(model="openai/nope"))
        rejected(401, lambda: self.ask(api_key="wrong"))

    def usage(self):
        u = self.ask().usage
        counted(u.prompt_tokens, u.completion_tokens, u.total_tokens)


class Instructor:
    name = package = "instructor"
    out = {"tools": "it runs no tools; its tool modes are in structured"}

    def client(self, mode="JSON_SCHEMA", key=KEY):
        import instructor
        import openai

        return instructor.from_openai(openai.OpenAI(base_url=BASE, api_key=key, max_retries=0), mode=getattr(instructor.Mode, mode))

    def chat(self):
        greeted(self.client().chat.completions.create(model=MODEL, messages=SAY, response_model=None).choices[0].message.content)

    def stream(self):
        for mode in ("JSON_SCHEMA", "TOOLS"):
            parts = list(self.client(mode).chat.completions.create_partial(model=MODEL, messages=SAY, response_model=place(), max_retries=1))
            if parts[-1].city not in ("Oslo", "Rome") or not isinstance(parts[-1].hot, bool):
                raise AssertionError(parts)

    def structured(self):
        for mode in ("JSON_SCHEMA", "TOOLS", "TOOLS_STRICT"):
            got = self.client(mode).chat.completions.create(model=MODEL, messages=SAY, response_model=place(), max_retries=1)
            same(got.city in ("Oslo", "Rome") and isinstance(got.hot, bool), True, mode)

    def responses(self):
        got = self.client("RESPONSES_TOOLS").responses.create(model=MODEL, input=HELLO, response_model=place(), max_retries=1)
        same(got.city in ("Oslo", "Rome"), True)

    def errors(self):
        ask = lambda model, key: self.client(key=key).chat.completions.create(model=model, messages=SAY, response_model=place(), max_retries=1)
        rejected(404, lambda: ask("nope", KEY))
        rejected(401, lambda: ask(MODEL, "wrong"))

    def usage(self):
        _, completion = self.client().chat.completions.create_with_completion(model=MODEL, messages=SAY, response_model=place(), max_retries=1)
        same(completion.usage.total_tokens, completion.usage.prompt_tokens + completion.usage.completion_tokens)
        same(completion.usage.completion_tokens > 3, True)


class LLM:
    name = package = "llm"
    out = {}

    def model(self, name=MODEL, responses=False):
        import llm
        from llm.default_plugins import openai_models

        os.environ["LLM_USER_PATH"] = tempfile.gettempdir()
        kind = openai_models.Responses if responses else openai_models.Chat
        model = kind("heft", model_name=name, api_base=BASE, supports_schema=True, supports_tools=True)
        model.needs_key = "heft"  # without it, it sends none
        return model

    def chat(self):
        greeted(self.model().prompt(HELLO, key=KEY, stream=False).text())

    def stream(self):
        greeted("".join(self.model().prompt(HELLO, key=KEY, stream=True)))

    def tools(self):
        for stream in (False, True):
            weather = Weather()
            weather.check(self.model().chain(ASK, tools=[weather.function()], key=KEY, stream=stream).text())

    def structured(self):
        place().model_validate_json(self.model().prompt(HELLO, schema=place(), key=KEY, stream=False).text())

    def responses(self):
        for stream in (False, True):
            greeted(self.model(responses=True).prompt(HELLO, key=KEY, stream=stream).text())
            weather = Weather()
            weather.check(self.model(responses=True).chain(ASK, tools=[weather.function()], key=KEY, stream=stream).text())

    def errors(self):
        rejected(404, lambda: self.model("nope").prompt(HELLO, key=KEY).text())
        rejected(401, lambda: self.model().prompt(HELLO, key="wrong").text())

    def usage(self):
        for stream in (False, True):
            r = self.model().prompt(HELLO, key=KEY, stream=stream)
            r.text()
            counted(r.usage().input, r.usage().output)


class LMEval:
    """Tasks of our own, as sets of tasks are downloaded: a generation, and the choice of the more probable answer."""

    name = "lm-eval"
    package = "lm_eval"
    out = {"stream": "it does not stream", "tools": "it calls no tools", "structured": "it constrains nothing", "responses": "it has no responses",
           "usage": "it reads no usage"}

    def evaluate(self, kind, path, model=MODEL, **task):
        import lm_eval
        from lm_eval.tasks import TaskManager

        os.environ["HF_DATASETS_OFFLINE"] = "1"
        with tempfile.TemporaryDirectory() as folder:
            data = os.path.join(folder, "data.jsonl")
            with open(data, "w", encoding="utf-8") as f:
                f.write(json.dumps({"ask": HELLO, "answer": GREETING, "choices": [GREETING, "Goodbye"], "right": 0}) + "\n")
            config = {"task": "heft", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": data}, "cache_dir": folder}, "test_split": "test"} | task
            arguments = {"model": model, "base_url": f"{BASE}/{path}", "num_concurrent": 1, "max_retries": 1} | \
                ({"tokenizer_backend": None} if kind == "local-chat-completions" else {"tokenizer_backend": "remote", "auth_token": KEY})
            got = lm_eval.simple_evaluate(kind, model_args=arguments, tasks=[config], task_manager=TaskManager(include_defaults=False), bootstrap_iters=0,
                                          apply_chat_template=kind == "local-chat-completions")
            return got["results"]["heft"]

    def chat(self):
        generate = {"output_type": "generate_until", "doc_to_text": "{{ask}}", "doc_to_target": "{{answer}}", "metric_list": [{"metric": "exact_match"}],
                    "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 40, "do_sample": False}}
        same(self.evaluate("local-chat-completions", "chat/completions", **generate)["exact_match,none"], 1.0)
        choose = {"output_type": "multiple_choice", "doc_to_text": "<|im_start|>user\n{{ask}}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
                  "doc_to_target": "{{right}}", "doc_to_choice": "{{choices}}", "target_delimiter": "", "metric_list": [{"metric": "acc"}]}
        same(self.evaluate("local-completions", "completions", **choose)["acc,none"], 1.0)

    def errors(self):
        generate = {"output_type": "generate_until", "doc_to_text": "{{ask}}", "doc_to_target": "{{answer}}", "metric_list": [{"metric": "exact_match"}]}
        rejected(404, lambda: self.evaluate("local-chat-completions", "chat/completions", "nope", **generate))
        os.environ["OPENAI_API_KEY"] = "wrong"
        try:
            rejected(401, lambda: self.evaluate("local-chat-completions", "chat/completions", **generate))
        finally:
            os.environ["OPENAI_API_KEY"] = KEY


CLIENTS = [OpenAI, Anthropic, Ollama, LiteLLM, Instructor, LLM, LMEval]
