// Streams one answer per job with an official SDK and says what its caller would have seen.
//   node stream.mjs < jobs.json        jobs: [{"client": NAME, "base": URL, "model": MODEL}, ...]
// Prints one JSON list, in the order of the jobs: {"text", "finish", "error"}; error is null when nothing was thrown.
import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const QUESTION = [{ role: "user", content: "Tell me about the tides" }];
const OPTIONS = { apiKey: "not-a-key", maxRetries: 0, timeout: 20_000 };

const openai = (job) => new OpenAI({ ...OPTIONS, baseURL: `${job.base}/v1` });
const anthropic = (job) => new Anthropic({ ...OPTIONS, baseURL: job.base });

const CLIENTS = {
  async "openai.chat"(job, seen) {
    const request = { model: job.model, messages: QUESTION, stream: true };
    for await (const chunk of await openai(job).chat.completions.create(request)) {
      const choice = chunk.choices[0];
      seen.text += choice?.delta?.content ?? "";
      seen.finish = choice?.finish_reason ?? seen.finish;
    }
  },
  async "openai.responses"(job, seen) {
    const request = { model: job.model, input: QUESTION, stream: true };
    for await (const event of await openai(job).responses.create(request)) {
      if (event.type === "response.output_text.delta") seen.text += event.delta;
      if (event.type === "response.completed") seen.finish = event.response.status;
      // The SDK hands this event on as it is: its callers are to read it.
      if (event.type === "response.failed") throw new Error(event.response.error?.message ?? "response.failed");
    }
  },
  async "anthropic.create"(job, seen) {
    const request = { model: job.model, messages: QUESTION, max_tokens: 1000, stream: true };
    for await (const event of await anthropic(job).messages.create(request)) {
      if (event.type === "content_block_delta") seen.text += event.delta.text ?? "";
      if (event.type === "message_delta") seen.finish = event.delta.stop_reason;
    }
  },
  async "anthropic.stream"(job, seen) {
    const request = { model: job.model, messages: QUESTION, max_tokens: 1000 };
    const stream = anthropic(job).messages.stream(request);
    stream.on("text", (text) => { seen.text += text; });
    seen.finish = (await stream.finalMessage()).stop_reason;
  },
};

async function run(job) {
  const seen = { text: "", finish: null, error: null };
  try {
    await CLIENTS[job.client](job, seen);
  } catch (error) {
    seen.error = `${error.constructor.name}: ${error.message}`;
  }
  return seen;
}

const jobs = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(await Promise.all(jobs.map(run))));
