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


def main():
    failed = 0
    for package, check in (("openai", openai_loop), ("langgraph", langgraph_agent), ("pydantic-ai-slim", pydantic_agent)):
        for stream in (False, True):
            name = f"{package} {importlib.metadata.version(package)}{', streamed' if stream else ''}"
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
