// Jobs a second of graphile-worker: adds COUNT jobs, works until all have run, and prints the rate. A job is a POST of 100 bytes
// to a vendor on loopback, as in the bench `store`; without PORT it does nothing.
//
//   node graphile.js DATABASE_URL COUNT [PORT]
//
// 256 jobs at once, a local queue of 500 and completions in batches: as its documentation advises for throughput.
"use strict";
const http = require("node:http");
const { makeWorkerUtils, run } = require("graphile-worker");

const [url, countText, port] = process.argv.slice(2);
const count = Number(countText);
const agent = new http.Agent({ keepAlive: true, maxSockets: 256 });
const body = "x".repeat(100);

function post() {
  return new Promise((resolve, reject) => {
    const options = { host: "127.0.0.1", port, method: "POST", path: "/orders", agent, headers: { "content-length": 100 } };
    const request = http.request(options, (answer) => {
      answer.resume();
      answer.on("end", resolve);
    });
    request.on("error", reject);
    request.end(body);
  });
}

async function main() {
  const utils = await makeWorkerUtils({ connectionString: url });
  await utils.migrate();
  for (let from = 0; from < count; from += 1000) {
    const some = Math.min(1000, count - from);
    await utils.addJobs(Array.from({ length: some }, (_, n) => ({ identifier: "order", payload: { number: from + n } })));
  }
  await utils.release();
  let done = 0;
  let began;
  let over;
  const all = new Promise((resolve) => (over = resolve));
  const runner = await run({
    connectionString: url,
    noHandleSignals: true,
    taskList: {
      order: async () => {
        began ??= process.hrtime.bigint();
        if (port) await post();
        done += 1;
        if (done === count) over();
      },
    },
    preset: {
      worker: {
        concurrentJobs: 256,
        maxPoolSize: 10,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  await all;
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  console.log(Math.round(count / seconds));
  await runner.stop();
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
