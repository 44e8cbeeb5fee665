"""Frameworks of agents: langchain and langgraph, llama-index, pydantic-ai, openai-agents and smolagents."""

import asyncio
import contextlib
import io
import os

from matrix import ANSWER, ASK, BASE, FUNCTION, HELLO, HOST, KEY, MODEL, Weather, counted, greeted, place, rejected, same

os.environ.setdefault("LANGSMITH_TRACING", "false")


def finished(call):
    """Runs a coroutine function."""
    return asyncio.run(call())


class LangChain:
    """langchain-openai with tool loops by langgraph."""

    name = package = "langchain-openai"
    out = {}

    def model(self, name=MODEL, key=KEY, **more):
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model=name, base_url=BASE, api_key=key, temperature=0, max_retries=0, **more)

    def loop(self, model):
        from langchain_core.tools import tool
        from langgraph.graph import START, MessagesState, StateGraph
        from langgraph.prebuilt import ToolNode, tools_condition

        weather = Weather()
        look = tool(weather.function())
        bound = model.bind_tools([look])
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [bound.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode([look]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        weather.check(str(graph.compile().invoke({"messages": [("user", ASK)]})["messages"][-1].text))

    def chat(self):
        greeted(self.model().invoke(HELLO).content)

    def stream(self):
        greeted("".join(str(c.text) for c in self.model().stream(HELLO)))

    def tools(self):
        for stream in (False, True):
            self.loop(self.model(streaming=stream))

    def structured(self):
        for method in ("json_schema", "function_calling"):
            same(type(self.model().with_structured_output(place(), method=method).invoke(HELLO)).__name__, "Place", method)

    def responses(self):
        for stream in (False, True):
            greeted(str(self.model(use_responses_api=True, streaming=stream).invoke(HELLO).text))
            self.loop(self.model(use_responses_api=True, streaming=stream))

    def errors(self):
        rejected(404, lambda: self.model("nope").invoke(HELLO))
        rejected(401, lambda: self.model(key="wrong").invoke(HELLO))

    def usage(self):
        u = self.model().invoke(HELLO).usage_metadata
        counted(u["input_tokens"], u["output_tokens"], u["total_tokens"])


class LangChainAnthropic(LangChain):
    name = package = "langchain-anthropic"
    out = {"responses": "Anthropic's API has no responses"}

    def model(self, name=MODEL, key=KEY, **more):
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=name, base_url=HOST, api_key=key, max_tokens=200, max_retries=0, **more)


class LlamaIndex:
    name = "llama-index"
    package = "llama-index-llms-openai-like"
    out = {}

    def model(self, name=MODEL, key=KEY):
        from llama_index.llms.openai_like import OpenAILike

        return OpenAILike(model=name, api_base=BASE, api_key=key, is_chat_model=True, is_function_calling_model=True, context_window=8192, temperature=0, max_retries=0,
                          max_tokens=200)

    def say(self):
        from llama_index.core.llms import ChatMessage

        return [ChatMessage(role="user", content=HELLO)]

    def chat(self):
        greeted(self.model().chat(self.say()).message.content)

    def stream(self):
        greeted("".join(part.delta or "" for part in self.model().stream_chat(self.say())))

    def tools(self):
        from llama_index.core.agent.workflow import FunctionAgent

        for stream in (False, True):
            weather = Weather()
            agent = FunctionAgent(tools=[weather.function()], llm=self.model(), system_prompt="Be brief.", streaming=stream)

            async def run():
                return str(await agent.run(ASK))

            weather.check(finished(run))

    def structured(self):
        from llama_index.core.prompts import PromptTemplate

        same(type(self.model().structured_predict(place(), PromptTemplate(HELLO))).__name__, "Place")

    def responses(self):
        from llama_index.llms.openai_like import OpenAILikeResponses

        model = OpenAILikeResponses(model=MODEL, api_base=BASE, api_key=KEY, context_window=8192, is_function_calling_model=True, temperature=0, max_output_tokens=200)
        greeted(model.chat(self.say()).message.content)

    def errors(self):
        rejected(404, lambda: self.model("nope").chat(self.say()))
        rejected(401, lambda: self.model(key="wrong").chat(self.say()))

    def usage(self):
        u = self.model().chat(self.say()).raw.usage
        counted(u.prompt_tokens, u.completion_tokens, u.total_tokens)


class PydanticAI:
    name = "pydantic-ai"
    package = "pydantic-ai-slim"
    out = {}

    def agent(self, name=MODEL, key=KEY, responses=False, **more):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        kind = OpenAIResponsesModel if responses else OpenAIChatModel
        return Agent(kind(name, provider=OpenAIProvider(base_url=BASE, api_key=key)), model_settings={"temperature": 0}, instructions="Be brief.", retries=0, **more)

    async def streamed(self, agent, ask):
        async with agent.run_stream(ask) as result:
            return await result.get_output()

    def loop(self, responses):
        for stream in (False, True):
            weather = Weather()
            agent = self.agent(responses=responses, tools=[weather.function()])
            weather.check(finished(lambda: self.streamed(agent, ASK)) if stream else agent.run_sync(ASK).output)

    def chat(self):
        greeted(self.agent().run_sync(HELLO).output)

    def stream(self):
        greeted(finished(lambda: self.streamed(self.agent(), HELLO)))

    def tools(self):
        self.loop(False)

    def structured(self):
        from pydantic_ai import NativeOutput, ToolOutput

        for output in (NativeOutput, ToolOutput):
            same(type(self.agent(output_type=output(place())).run_sync(HELLO).output).__name__, "Place", output.__name__)

    def responses(self):
        greeted(self.agent(responses=True).run_sync(HELLO).output)
        self.loop(True)

    def errors(self):
        rejected(404, lambda: self.agent("nope").run_sync(HELLO))
        rejected(401, lambda: self.agent(key="wrong").run_sync(HELLO))

    def usage(self):
        u = self.agent().run_sync(HELLO)
        u = u.usage() if callable(u.usage) else u.usage
        counted(u.input_tokens, u.output_tokens, u.total_tokens)


class Agents:
    """openai-agents, whose default is the API of responses."""

    name = package = "openai-agents"
    out = {}

    def agent(self, name=MODEL, key=KEY, responses=False, tools=(), **more):
        from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, function_tool, set_tracing_disabled
        from openai import AsyncOpenAI

        set_tracing_disabled(True)
        kind = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
        model = kind(model=name, openai_client=AsyncOpenAI(base_url=BASE, api_key=key, max_retries=0))
        return Agent(name="weather", instructions="Be brief.", model=model, tools=[function_tool(t) for t in tools],
                     model_settings=ModelSettings(temperature=0, include_usage=True), **more)

    def run(self, agent, ask, stream=False):
        from agents import Runner

        async def run():
            if not stream:
                return await Runner.run(agent, ask)
            result = Runner.run_streamed(agent, ask)
            async for _ in result.stream_events():
                pass
            return result

        return finished(run)

    def loop(self, responses):
        for stream in (False, True):
            weather = Weather()
            weather.check(self.run(self.agent(responses=responses, tools=[weather.function()]), ASK, stream).final_output)

    def chat(self):
        greeted(self.run(self.agent(), HELLO).final_output)

    def stream(self):
        greeted(self.run(self.agent(), HELLO, True).final_output)

    def tools(self):
        self.loop(False)

    def structured(self):
        for responses in (False, True):
            same(type(self.run(self.agent(output_type=place(), responses=responses), HELLO).final_output).__name__, "Place")

    def responses(self):
        for stream in (False, True):
            greeted(self.run(self.agent(responses=True), HELLO, stream).final_output)
        self.loop(True)

    def errors(self):
        rejected(404, lambda: self.run(self.agent("nope"), HELLO))
        rejected(401, lambda: self.run(self.agent(key="wrong"), HELLO))

    def usage(self):
        for stream in (False, True):
            u = self.run(self.agent(), HELLO, stream).context_wrapper.usage
            counted(u.input_tokens, u.output_tokens, u.total_tokens)


class SmolAgents:
    """Its agents force calls and end with one of final_answer."""

    name = package = "smolagents"
    out = {"responses": "it has no responses"}

    def model(self, name=MODEL, key=KEY):
        from smolagents import OpenAIModel

        return OpenAIModel(model_id=name, api_base=BASE, api_key=key, temperature=0, client_kwargs={"max_retries": 0})

    def say(self):
        from smolagents import ChatMessage, MessageRole

        return [ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": HELLO}])]

    def chat(self):
        greeted(self.model().generate(self.say()).content)

    def stream(self):
        greeted("".join(delta.content or "" for delta in self.model().generate_stream(self.say())))

    def tools(self):
        from smolagents import Tool, ToolCallingAgent

        class Look(Tool):
            name, description, output_type = FUNCTION["name"], FUNCTION["description"], "string"
            inputs = {"city": {"type": "string", "description": "The city."}}

            def __init__(self, weather):
                super().__init__()
                self.weather = weather

            def forward(self, city):
                return self.weather.look(city)

        for stream in (False, True):
            weather = Weather()
            agent = ToolCallingAgent(tools=[Look(weather)], model=self.model(), max_steps=3, stream_outputs=stream)
            agent.prompt_templates["system_prompt"] = "Be brief."
            with contextlib.redirect_stdout(io.StringIO()):
                answer = agent.run(ASK)
            weather.check(str(answer))

    def structured(self):
        schema = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": place().model_json_schema()}}
        place().model_validate_json(self.model().generate(self.say(), response_format=schema).content)

    def errors(self):
        rejected(404, lambda: self.model("nope").generate(self.say()))
        rejected(401, lambda: self.model(key="wrong").generate(self.say()))

    def usage(self):
        u = self.model().generate(self.say()).token_usage
        counted(u.input_tokens, u.output_tokens, u.total_tokens)


CLIENTS = [LangChain, LangChainAnthropic, LlamaIndex, PydanticAI, Agents, SmolAgents]
