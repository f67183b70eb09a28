// SDKs of Node through the gateway. Prints one JSON object: how many requests were answered as the vendor answers.

import assert from "node:assert";
import { Octokit } from "@octokit/rest";
import OpenAI from "openai";
import Stripe from "stripe";

const { GATEWAY, TOKEN, LANE } = process.env;
const EACH = 25;
let answered = 0;

async function atOnce(call) {
  const done = await Promise.all(Array.from({ length: EACH }, call));
  assert(done.every(Boolean), JSON.stringify(done));
  answered += done.length;
}

const openai = new OpenAI({ baseURL: `${GATEWAY}/acme/openai`, apiKey: TOKEN });
const ask = (more) => openai.chat.completions.create({ model: "m", messages: [{ role: "user", content: "ping" }], ...more });
await atOnce(async () => (await ask()).choices[0].message.content === "pong");

const seen = [];
for await (const _ of await ask({ stream: true })) seen.push(performance.now());
assert(seen.length === 5 && seen[4] - seen[0] > 600, `the chunks came together: ${seen}`);
answered += 1;

const octokit = new Octokit({ baseUrl: `${GATEWAY}/acme/github`, auth: TOKEN });
const issues = await octokit.paginate(octokit.rest.issues.listForRepo, { owner: "a", repo: "b" });
assert.equal(issues.length, 12);
answered += 4;
await atOnce(async () => (await octokit.rest.users.getAuthenticated()).data.login === "octo");

const [host, port] = LANE.split(":");
const stripe = new Stripe(TOKEN, { host, port: Number(port), protocol: "http" });
await atOnce(async () => (await stripe.customers.create({ name: "n" })).id === "cus_1");

console.log(JSON.stringify({ clients: 3, answered }));
