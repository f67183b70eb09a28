// The queues of jobs in the store, and the processes that work on them.

import { get, segment } from "./api.js";
import { el, put, table } from "./dom.js";
import { number, plural, seconds, some } from "./words.js";

export const title = "Queues";

export function view(main) {
  const rest = el("div", {});
  put(main, el("h1", {}, "Queues and workers"), rest);
  async function refresh(signal) {
    const [found, { workers }] = await Promise.all([get("queues", signal), get("workers", signal)]);
    const rows = found.queues.map((queue) => [
      el("a", { href: `#/lanes/${segment(queue.tenant)}/${segment(queue.vendor)}`, "data-key": `${queue.tenant}/${queue.vendor}/${queue.priority}` }, queue.tenant),
      queue.vendor, queue.priority, some(queue.waiting), some(queue.under_way),
      queue.due_in_s === null ? "" : queue.due_in_s > 0 ? `in ${seconds(queue.due_in_s)}` : "as soon as the limits allow",
    ]);
    const none = !workers.length && found.waiting > 0;
    put(rest,
      el("p", { role: "status" }, `${plural(found.waiting, "job")} waiting, ${number(found.under_way)} in hand`),
      found.store_problem && el("p", { class: "bad" }, found.store_problem),
      none && el("p", { class: "bad" }, "No worker has said that it runs: if none does, nothing will be sent."),
      found.is_cut && el("p", { class: "fair" }, `Only the first ${number(found.queues.length)} queues are shown.`),
      rows.length ? table("Accepted requests that have not ended", [["Tenant"], ["Vendor"], ["Priority"], ["Waiting", "number"], ["In hand", "number"], ["First is due"]], rows) : el("p", {}, "Nothing waits."),
      el("h2", {}, "Workers"),
      workers.length ? table("Processes that publish their status", [["Worker"], ["Last heartbeat"], ["Lanes that it works on", "number"]],
        workers.map((worker) => [worker.worker, `${seconds(worker.said_before_s)} ago`, number(worker.lanes)]))
        : el("p", {}, "None publishes its status."));
  }
  return { refresh };
}
