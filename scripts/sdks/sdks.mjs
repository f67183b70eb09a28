// SDKs of Node, first at the vendor itself and then through the gateway: both must give the same. Prints what sdks.py prints.

import assert from "node:assert";
import { setTimeout as sleep } from "node:timers/promises";
import { Octokit } from "@octokit/rest";
import OpenAI from "openai";
import Stripe from "stripe";

const { GATEWAY, TOKEN, LANE, VENDOR, IC_SDKS_KEY } = process.env;
const EACH = 25;
const SPACING_MS = 300;
let answered = 0;
const keys = {};

// Where they send to is all that differs between a direct call and one through the gateway.
function sdks(openaiUrl, githubUrl, stripeUrl, key) {
  const openai = new OpenAI({ baseURL: openaiUrl, apiKey: key });
  const octokit = new Octokit({ baseUrl: githubUrl, auth: key, log: { debug() {}, info() {}, warn() {}, error() {} } });
  const { hostname, port, pathname } = new URL(stripeUrl);
  const stripe = new Stripe(key, { host: hostname, port: Number(port), protocol: "http" });
  // The SDK takes a host and no path, so the vendor's path stands in each request's way alone where it is called without a gateway.
  const path = pathname === "/" ? "" : pathname;
  return {
    openai,
    octokit,
    ask: (text, more) => openai.chat.completions.create({ model: "m", messages: [{ role: "user", content: text }], ...more }),
    customer: (idempotencyKey, name = "n") => {
      keys[idempotencyKey] = (keys[idempotencyKey] ?? 0) + 1;
      return stripe.rawRequest("POST", `${path}/v1/customers`, { name }, { idempotencyKey });
    },
    customerWithoutKey: () => stripe.rawRequest("POST", `${path}/v1/customers`, { name: "n" }),
    missing: () => stripe.rawRequest("GET", `${path}/v1/customers/missing`),
    issues: () => octokit.paginate(octokit.rest.issues.listForRepo, { owner: "a", repo: "b" }),
    login: async () => (await octokit.rest.users.getAuthenticated()).data.login,
  };
}

// What a program sees of the error with which the call ends.
async function errorOf(call) {
  try {
    await call();
  } catch (error) {
    return { name: error.constructor.name, status: error.status ?? error.statusCode, message: error.message };
  }
  assert.fail("an error of the vendor is missing");
}

// Each chunk must arrive before the vendor sends the next.
async function streamed(of) {
  const contents = [];
  for await (const chunk of await of.ask("ping", { stream: true })) {
    const content = chunk.choices[0].delta.content;
    const late = Date.now() - Number(chunk.id) * 1000;
    assert(late < SPACING_MS, `chunk ${content} arrived ${late} ms after it was sent`);
    contents.push(content);
  }
  assert.equal(contents.length, 5);
  return contents;
}

// One of each kind of call, and what the SDK makes of its response.
async function results(of) {
  answered += 11;
  return {
    openai: await of.ask("ping"),
    "openai streamed": await streamed(of),
    "openai error": await errorOf(() => of.ask("ping", { model: "missing" })),
    // Four pages.
    octokit: await of.issues(),
    "octokit user": await of.login(),
    "octokit error": await errorOf(() => of.octokit.rest.users.getByUsername({ username: "missing" })),
    stripe: { ...(await of.customer("same")), lastResponse: undefined },
    "stripe error": await errorOf(of.missing),
  };
}

async function atOnce(call) {
  const done = await Promise.all(Array.from({ length: EACH }, (_, n) => call(n)));
  assert(done.every(Boolean), JSON.stringify(done));
  answered += done.length;
}

// The vendor breaks the connection off without a response. The SDK's own error shows the gateway's text.
async function breaks(call) {
  const { name, message } = await errorOf(call);
  assert(message.includes("broke before the response"), `${name} does not show the gateway's text: ${message}`);
}

const expected = await results(sdks(`${VENDOR}/openai`, `${VENDOR}/github`, `${VENDOR}/stripe`, IC_SDKS_KEY));
// The gateway does not know what was sent without it.
await sleep(1200);
const through = sdks(`${GATEWAY}/acme/openai`, `${GATEWAY}/acme/github`, `http://${LANE}`, TOKEN);
const found = await results(through);
for (const name of Object.keys(expected)) {
  assert.deepEqual(JSON.parse(JSON.stringify(found[name])), JSON.parse(JSON.stringify(expected[name])), name);
}

await atOnce(async () => (await through.ask("ping")).choices[0].message.content === "pong");
await atOnce(async () => (await through.login()) === "octo");
await atOnce(async (n) => (await through.customer(`node-${n}`)).id === `cus_node-${n}`);

// The SDK makes a key of its own.
const ownKey = (await through.customerWithoutKey()).id.replace("cus_", "");
assert(ownKey.startsWith("stripe-node-"), `${ownKey} is not the SDK's key`);
keys[ownKey] = 1;
answered += 1;

await breaks(() => through.ask("break-node-openai"));
await breaks(() => through.octokit.rest.issues.create({ owner: "a", repo: "b", title: "break-node-octokit" }));
await breaks(() => through.octokit.rest.issues.update({ owner: "a", repo: "b", issue_number: 1, title: "break-node-patch" }));
// With a key a request can be repeated, and is.
assert.equal((await through.customer("node-again", "break-once-node")).id, "cus_node-again");
keys["node-again"] += 1;
answered += 1;

const broken = { "break-node-openai": 1, "break-node-octokit": 1, "break-node-patch": 1, "break-once-node": 2 };
console.log(JSON.stringify({ clients: 3, answered, keys, broken }));
