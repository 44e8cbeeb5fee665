// Runs tool loops of JavaScript clients against a server with the tiny model that calls get_weather.
// Reads OPENAI_BASE_URL, OPENAI_API_KEY and HEFT_MODEL. check-tool-clients.sh starts the server.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const modules = process.env.HEFT_NODE_MODULES; // the folder that holds node_modules
const require = createRequire(join(modules, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const version = (name) => JSON.parse(readFileSync(join(modules, "node_modules", name, "package.json"))).version;

const { OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: apiKey, HEFT_MODEL: model } = process.env;
const ask = "What is the weather in Oslo?";
const answer = "It is sunny in Oslo.";

class Weather {
  asked = [];
  look = ({ city }) => {
    this.asked.push(city);
    return "sunny";
  };
  check(text) {
    if (this.asked.join() !== "Oslo") throw new Error(`the tool was asked for [${this.asked}], want [Oslo]`);
    if ((text ?? "").trim() !== answer) throw new Error(`the answer is ${JSON.stringify(text)}, want ${JSON.stringify(answer)}`);
  }
}

async function runTools(stream) {
  const OpenAI = (await load("openai")).default;
  const client = new OpenAI({ baseURL, apiKey });
  const weather = new Weather();
  const runner = client.chat.completions.runTools({
    model, stream, temperature: 0,
    messages: [{ role: "user", content: ask }],
    tools: [{
      type: "function",
      function: {
        name: "get_weather", description: "Get the weather of a city.", parse: JSON.parse, function: weather.look,
        parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      },
    }],
  });
  weather.check(await runner.finalContent());
}

async function aiSDK(stream) {
  const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
  await generates(createOpenAICompatible({ name: "heft", baseURL, apiKey })(model), stream);
}

// openai() of ai-sdk uses /v1/responses.
async function aiResponses(stream) {
  const { createOpenAI } = await load("@ai-sdk/openai");
  await generates(createOpenAI({ baseURL, apiKey })(model), stream);
}

async function generates(model, stream) {
  const { generateText, streamText, tool, stepCountIs, isStepCount } = await load("ai");
  const { z } = await load("zod");
  const weather = new Weather();
  const options = {
    model,
    temperature: 0,
    prompt: ask,
    stopWhen: (isStepCount ?? stepCountIs)(4),
    tools: { get_weather: tool({ description: "Get the weather of a city.", inputSchema: z.object({ city: z.string() }), execute: async (input) => weather.look(input) }) },
  };
  const result = stream ? streamText(options) : await generateText(options);
  weather.check(await result.text);
}

let failed = 0;
for (const [name, check] of [["openai", runTools], ["ai", aiSDK], ["@ai-sdk/openai", aiResponses]]) {
  for (const stream of [false, true]) {
    const label = `${name}-node ${version(name)}${stream ? ", streamed" : ""}`;
    try {
      await check(stream);
      console.log(`ok   ${label}`);
    } catch (error) {
      failed++;
      console.error(error);
      console.log(`FAIL ${label}`);
    }
  }
}
process.exit(Math.min(failed, 1));
