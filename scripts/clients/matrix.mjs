// The cells of the JavaScript clients, as matrix.py has those of Python: appends a line of JSON for each to the file
// of its argument. Reads OPENAI_BASE_URL, OPENAI_API_KEY, HEFT_MODEL and HEFT_NODE_MODULES.
import { createRequire } from "node:module";
import { appendFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const modules = process.env.HEFT_NODE_MODULES; // the folder that holds node_modules
const require = createRequire(join(modules, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const version = (name) => JSON.parse(readFileSync(join(modules, "node_modules", name, "package.json"))).version;

const { OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: apiKey, HEFT_MODEL: model } = process.env;
const host = baseURL.replace(/\/v1$/, "");
const [hello, greeting, ask, answer] = ["Say hello.", "Hello there!", "What is the weather in Oslo?", "It is sunny in Oslo."];
const say = [{ role: "user", content: hello }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const description = "Get the weather of a city.";
const schema = { type: "object", properties: { city: { enum: ["Oslo", "Rome"] }, hot: { type: "boolean" } }, required: ["city", "hot"], additionalProperties: false };
const cells = ["chat", "stream", "tools", "structured", "responses", "errors", "usage"];

const same = (got, want, what = "the text") => {
  if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
};
const greeted = (text) => same((text ?? "").trim(), greeting);
const isPlace = (p) => same(["Oslo", "Rome"].includes(p?.city) && typeof p?.hot === "boolean", true, JSON.stringify(p));
const counted = (prompt, completion) => same(prompt > 5 && prompt < 40 && completion > 1 && completion <= 12, true, `usage of ${prompt} and ${completion} tokens`);

async function rejected(status, call) {
  let got;
  try {
    got = await call();
  } catch (error) {
    for (let e = error; e; e = e.cause ?? e.lastError) if ((e.status ?? e.statusCode ?? e.status_code) === status) return;
    throw error;
  }
  throw new Error(`want status ${status}, got ${JSON.stringify(got)}`);
}

class Weather {
  asked = [];
  look = ({ city }) => {
    this.asked.push(city);
    return "sunny";
  };
  check(text) {
    same(this.asked, ["Oslo"], "the tool was asked for");
    same((text ?? "").trim(), answer, "the answer");
  }
}

const place = async () => {
  const { z } = await load("zod");
  return z.object({ city: z.enum(["Oslo", "Rome"]), hot: z.boolean() });
};

async function openai(key = apiKey) {
  return new (await load("openai")).default({ baseURL, apiKey: key, maxRetries: 0 });
}

const openaiNode = {
  name: "openai-node", package: "openai", out: {},
  async chat() {
    greeted((await (await openai()).chat.completions.create({ model, messages: say })).choices[0].message.content);
  },
  async stream() {
    let text = "";
    for await (const c of await (await openai()).chat.completions.create({ model, messages: say, stream: true })) text += c.choices[0]?.delta.content ?? "";
    greeted(text);
  },
  async tools() {
    for (const stream of [false, true]) {
      const weather = new Weather();
      const runner = (await openai()).chat.completions.runTools({
        model, stream, temperature: 0, messages: [{ role: "user", content: ask }],
        tools: [{ type: "function", function: { name: "get_weather", description, parse: JSON.parse, function: weather.look, parameters } }],
      });
      weather.check(await runner.finalContent());
    }
  },
  async structured() {
    const { zodResponseFormat } = await load("openai/helpers/zod");
    const got = await (await openai()).chat.completions.parse({ model, messages: say, response_format: zodResponseFormat(await place(), "place") });
    isPlace(got.choices[0].message.parsed);
  },
  async responses() {
    const client = await openai();
    greeted((await client.responses.create({ model, input: hello })).output_text);
    const { zodTextFormat } = await load("openai/helpers/zod");
    isPlace((await client.responses.parse({ model, input: hello, text: { format: zodTextFormat(await place(), "place") } })).output_parsed);
    for (const stored of [false, true]) {
      const weather = new Weather();
      let [input, previous, last] = [[{ role: "user", content: ask }], null, null];
      for (let turn = 0; turn < 4; turn++) {
        const events = client.responses.stream({ model, input, previous_response_id: previous, store: stored, temperature: 0,
          tools: [{ type: "function", name: "get_weather", description, parameters, strict: false }] });
        last = await events.finalResponse();
        const calls = last.output.filter((item) => item.type === "function_call");
        if (calls.length === 0) break;
        const outputs = calls.map((c) => ({ type: "function_call_output", call_id: c.call_id, output: weather.look(JSON.parse(c.arguments)) }));
        [input, previous] = stored ? [outputs, last.id] : [[...input, ...last.output, ...outputs], null];
      }
      weather.check(last.output_text);
    }
  },
  async errors() {
    await rejected(404, async () => (await openai()).chat.completions.create({ model: "nope", messages: say }));
    await rejected(401, async () => (await openai("wrong")).chat.completions.create({ model, messages: say }));
  },
  async usage() {
    const { usage } = await (await openai()).chat.completions.create({ model, messages: say });
    counted(usage.prompt_tokens, usage.completion_tokens);
  },
};

async function anthropic(key = apiKey) {
  return new (await load("@anthropic-ai/sdk")).default({ baseURL: host, apiKey: key, maxRetries: 0 });
}

const anthropicNode = {
  name: "anthropic-node", package: "@anthropic-ai/sdk", out: { responses: "Anthropic's API has no responses" },
  async chat() {
    greeted((await (await anthropic()).messages.create({ model, max_tokens: 200, messages: say })).content[0].text);
  },
  async stream() {
    greeted(await (await anthropic()).messages.stream({ model, max_tokens: 200, messages: say }).finalText());
  },
  async tools() {
    for (const stream of [false, true]) {
      const weather = new Weather();
      const runner = (await anthropic()).beta.messages.toolRunner({
        model, stream, max_tokens: 200, messages: [{ role: "user", content: ask }],
        tools: [{ type: "custom", name: "get_weather", description, input_schema: parameters, parse: (input) => input, run: weather.look }],
      });
      const last = await runner.runUntilDone();
      weather.check(last.content.filter((b) => b.type === "text").map((b) => b.text).join(""));
    }
  },
  async structured() {
    const got = await (await anthropic()).messages.create({ model, max_tokens: 200, messages: say, output_config: { format: { type: "json_schema", schema } } });
    isPlace(JSON.parse(got.content[0].text));
  },
  async errors() {
    await rejected(404, async () => (await anthropic()).messages.create({ model: "nope", max_tokens: 9, messages: say }));
    await rejected(401, async () => (await anthropic("wrong")).messages.create({ model, max_tokens: 9, messages: say }));
  },
  async usage() {
    const { usage } = await (await anthropic()).messages.create({ model, max_tokens: 200, messages: say });
    counted(usage.input_tokens + (usage.cache_read_input_tokens ?? 0), usage.output_tokens);
  },
};

async function ollama(key = apiKey) {
  return new (await load("ollama")).Ollama({ host, headers: { Authorization: `Bearer ${key}` } });
}

const ollamaNode = {
  name: "ollama-node", package: "ollama", out: { responses: "Ollama's API has no responses" },
  async chat() {
    greeted((await (await ollama()).chat({ model, messages: say })).message.content);
  },
  async stream() {
    let text = "";
    for await (const part of await (await ollama()).chat({ model, messages: say, stream: true })) text += part.message.content;
    greeted(text);
  },
  async tools() {
    const weather = new Weather();
    const messages = [{ role: "user", content: ask }];
    let message;
    for (let turn = 0; turn < 4; turn++) {
      ({ message } = await (await ollama()).chat({ model, messages, tools: [{ type: "function", function: { name: "get_weather", description, parameters } }] }));
      if (!message.tool_calls?.length) break;
      messages.push(message);
      for (const c of message.tool_calls) messages.push({ role: "tool", tool_name: c.function.name, content: weather.look(c.function.arguments) });
    }
    weather.check(message.content);
  },
  async structured() {
    isPlace(JSON.parse((await (await ollama()).chat({ model, messages: say, format: schema })).message.content));
  },
  async errors() {
    await rejected(404, async () => (await ollama()).chat({ model: "nope", messages: say }));
    await rejected(401, async () => (await ollama("wrong")).chat({ model, messages: say }));
  },
  async usage() {
    const r = await (await ollama()).chat({ model, messages: say });
    counted(r.prompt_eval_count, r.eval_count);
  },
};

// aiSDK are the cells of ai-sdk with one of its providers. of returns a model for a name and a key.
function aiSDK(provider, of, out) {
  const generate = async (options) => (await load("ai")).generateText({ model: await of(model, apiKey), prompt: hello, maxRetries: 0, ...options });
  return {
    name: `ai ${provider}`, package: provider, out,
    async chat() {
      greeted((await generate({})).text);
    },
    async stream() {
      const { streamText } = await load("ai");
      greeted(await streamText({ model: await of(model, apiKey), prompt: hello }).text);
    },
    async tools() {
      const { generateText, streamText, tool, stepCountIs, isStepCount } = await load("ai");
      const { z } = await load("zod");
      for (const stream of [false, true]) {
        const weather = new Weather();
        const options = {
          model: await of(model, apiKey), temperature: 0, prompt: ask, stopWhen: (isStepCount ?? stepCountIs)(4),
          tools: { get_weather: tool({ description, inputSchema: z.object({ city: z.string() }), execute: async (input) => weather.look(input) }) },
        };
        weather.check(await (stream ? streamText(options) : await generateText(options)).text);
      }
    },
    async structured() {
      const { generateObject, streamObject } = await load("ai");
      const options = { model: await of(model, apiKey), prompt: hello, schema: await place() };
      isPlace((await generateObject(options)).object);
      const streamed = streamObject(options);
      for await (const _ of streamed.partialObjectStream); // nothing runs before it is read
      isPlace(await streamed.object);
    },
    async responses() {
      greeted((await generate({})).text); // openai() of ai-sdk is the API of responses
    },
    async errors() {
      await rejected(404, async () => generate({ model: await of("nope", apiKey) }));
      await rejected(401, async () => generate({ model: await of(model, "wrong") }));
    },
    async usage() {
      const { usage } = await generate({});
      counted(usage.inputTokens, usage.outputTokens);
    },
  };
}

const clients = [
  openaiNode, anthropicNode, ollamaNode,
  aiSDK("@ai-sdk/openai-compatible", async (name, key) => (await load("@ai-sdk/openai-compatible")).createOpenAICompatible({ name: "heft", baseURL, apiKey: key, supportsStructuredOutputs: true })(name),
    { responses: "the provider uses chat completions" }),
  aiSDK("@ai-sdk/openai", async (name, key) => (await load("@ai-sdk/openai")).createOpenAI({ baseURL, apiKey: key })(name), {}),
  aiSDK("@ai-sdk/anthropic", async (name, key) => (await load("@ai-sdk/anthropic")).createAnthropic({ baseURL, apiKey: key })(name), { responses: "Anthropic's API has no responses" }),
];
const names = process.env.HEFT_CLIENTS;
for (const client of clients.filter((c) => !names || names.split(",").includes(c.name))) {
  for (const cell of cells) {
    let [state, detail] = ["pass", ""];
    if (client.out[cell]) {
      [state, detail] = ["out", client.out[cell]];
    } else {
      try {
        await client[cell]();
      } catch (error) {
        console.error(error);
        [state, detail] = ["FAIL", String(error).slice(0, 300)];
      }
    }
    console.log(`${state.padEnd(5)} ${client.name} ${version(client.package)} ${cell}`);
    appendFileSync(process.argv[2], JSON.stringify({ client: client.name, version: version(client.package), cell, state, detail }) + "\n");
  }
}
process.exit(0); // the table judges
