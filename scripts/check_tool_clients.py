"""Runs tool loops of Python clients against a server with the tiny model that calls get_weather.

Reads OPENAI_BASE_URL, OPENAI_API_KEY and HEFT_MODEL. check-tool-clients.sh starts the server.
"""

import asyncio
import importlib.metadata
import json
import os
import sys
import traceback

os.environ.setdefault("LANGSMITH_TRACING", "false")
MODEL, BASE, KEY = os.environ["HEFT_MODEL"], os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
ASK, ANSWER = "What is the weather in Oslo?", "It is sunny in Oslo."


class Weather:
    """The tool, and what it was asked."""

    def __init__(self):
        self.asked = []

    def look(self, city):
        self.asked.append(city)
        return "sunny"

    def check(self, answer):
        if self.asked != ["Oslo"]:
            raise AssertionError(f"the tool was asked for {self.asked}, want ['Oslo']")
        if answer.strip() != ANSWER:
            raise AssertionError(f"the answer is {answer!r}, want {ANSWER!r}")


def langgraph_agent(stream):
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    weather = Weather()

    @tool
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return weather.look(city)

    model = ChatOpenAI(model=MODEL, base_url=BASE, api_key=KEY, temperature=0, streaming=stream).bind_tools([get_weather])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([get_weather]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    state = graph.compile().invoke({"messages": [("user", ASK)]})
    weather.check(state["messages"][-1].content)


def ollama_chat(stream):
    import ollama

    weather = Weather()
    client = ollama.Client(host=BASE.removesuffix("/v1"), headers={"Authorization": f"Bearer {KEY}"})

    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return weather.look(city)

    def ask():
        answer = client.chat(model=MODEL, messages=messages, tools=[get_weather], options={"temperature": 0}, stream=stream)
        calls, content = [], ""
        for part in answer if stream else [answer]:
            content += part.message.content or ""
            calls += part.message.tool_calls or []
        return ollama.Message(role="assistant", content=content, tool_calls=calls or None)

    messages = [{"role": "user", "content": ASK}]
    messages.append(ask())
    for call in messages[-1].tool_calls:
        messages.append({"role": "tool", "tool_name": call.function.name, "content": get_weather(**call.function.arguments)})
    weather.check(ask().content)


def pydantic_agent(stream):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    weather = Weather()
    agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE, api_key=KEY)), model_settings={"temperature": 0}, instructions="Be brief.")

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return weather.look(city)

    async def streamed():
        async with agent.run_stream(ASK) as result:
            return await result.get_output()

    weather.check(asyncio.run(streamed()) if stream else agent.run_sync(ASK).output)


def openai_loop(stream):
    from openai import OpenAI

    weather = Weather()
    client = OpenAI(base_url=BASE, api_key=KEY)
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.",
              "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": ASK}]
    for _ in range(4):
        if stream:
            with client.chat.completions.stream(model=MODEL, messages=messages, tools=tools, temperature=0) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(model=MODEL, messages=messages, tools=tools, temperature=0).choices[0].message
        if not message.tool_calls:
            return weather.check(message.content)
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        for call in message.tool_calls:
            arguments = json.loads(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": weather.look(**arguments)})
    raise AssertionError("the loop does not end")


RESPONSES_TOOL = {"type": "function", "name": "get_weather", "description": "Get the weather of a city.", "strict": False,
                  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def responses_loop(stream, stored):
    """/v1/responses, with the conversation in the server's store or sent each time."""
    from openai import OpenAI

    weather = Weather()
    client = OpenAI(base_url=BASE, api_key=KEY)
    items, previous = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": ASK}], None
    for _ in range(4):
        request = {"model": MODEL, "input": items, "tools": [RESPONSES_TOOL], "temperature": 0, "store": stored, "previous_response_id": previous}
        if stream:
            with client.responses.stream(**request) as events:
                response = events.get_final_response()
        else:
            response = client.responses.create(**request)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return weather.check(response.output_text)
        outputs = [{"type": "function_call_output", "call_id": c.call_id, "output": weather.look(**json.loads(c.arguments))} for c in calls]
        if stored:
            items, previous = outputs, response.id
        else:
            items = items + [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output] + outputs
    raise AssertionError("the loop does not end")


def langchain_responses(stream):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    weather = Weather()
    model = ChatOpenAI(model=MODEL, base_url=BASE, api_key=KEY, temperature=0, use_responses_api=True).bind_tools([RESPONSES_TOOL])
    messages = [HumanMessage(ASK)]
    for _ in range(4):
        if stream:
            message = None
            for chunk in model.stream(messages):
                message = chunk if message is None else message + chunk
        else:
            message = model.invoke(messages)
        if not message.tool_calls:
            return weather.check(message.text if isinstance(message.text, str) else message.text())
        messages.append(message)
        for call in message.tool_calls:
            messages.append(ToolMessage(weather.look(**call["args"]), tool_call_id=call["id"]))
    raise AssertionError("the loop does not end")


def pydantic_responses(stream):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    weather = Weather()
    agent = Agent(OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=BASE, api_key=KEY)), model_settings={"temperature": 0}, instructions="Be brief.")

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return weather.look(city)

    async def streamed():
        async with agent.run_stream(ASK) as result:
            return await result.get_output()

    weather.check(asyncio.run(streamed()) if stream else agent.run_sync(ASK).output)


def agents(stream):
    from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    weather = Weather()

    @function_tool
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return weather.look(city)

    async def run():
        model = OpenAIResponsesModel(model=MODEL, openai_client=AsyncOpenAI(base_url=BASE, api_key=KEY))
        agent = Agent(name="weather", instructions="Be brief.", model=model, tools=[get_weather], model_settings=ModelSettings(temperature=0))
        if not stream:
            return (await Runner.run(agent, ASK)).final_output
        result = Runner.run_streamed(agent, ASK)
        async for _ in result.stream_events():
            pass
        return result.final_output

    weather.check(asyncio.run(run()))


def main():
    failed = 0
    clients = (("openai", "", openai_loop), ("ollama", "", ollama_chat), ("langgraph", "", langgraph_agent), ("pydantic-ai-slim", "", pydantic_agent),
               ("openai", ", responses stored", lambda stream: responses_loop(stream, True)), ("openai", ", responses", lambda stream: responses_loop(stream, False)),
               ("langchain-openai", ", responses", langchain_responses), ("pydantic-ai-slim", ", responses", pydantic_responses), ("openai-agents", ", responses", agents))
    for package, how, check in clients:
        for stream in (False, True):
            name = f"{package} {importlib.metadata.version(package)}{how}{', streamed' if stream else ''}"
            try:
                check(stream)
                print(f"ok   {name}")
            except Exception:
                failed += 1
                traceback.print_exc()
                print(f"FAIL {name}")
    sys.exit(min(failed, 1))


if __name__ == "__main__":
    main()
