// The list of live events.

import { follow, query } from "./api.js";
import { el, put } from "./dom.js";
import { event as words, kinds, plural } from "./words.js";

export const title = "Events";
const SHOWN = 200;

/** A line of the list. */
export function entry(event) {
  const time = new Date().toTimeString().slice(0, 8);
  if (event.event === "more") return el("li", { class: "faint" }, el("span", {}, time), el("span", {}, `and ${plural(event.count, "other")}`));
  const of = [event.tenant, event.vendor].filter(Boolean).join(" at ");
  const urgent = ["failed", "refused", "dead_lettered", "config_rejected", "exhausted"].includes(event.event);
  return el("li", {}, el("span", { class: "faint" }, time), el("span", { class: urgent ? "bad" : null }, event.event.replaceAll("_", " ")),
    el("span", {}, of), el("span", {}, words(event)));
}

export function view(main, params, page) {
  const field = (id) => el("input", { id, value: params[id] || "" });
  const [tenant, vendor] = [field("tenant"), field("vendor")];
  const kind = el("select", { id: "kind" }, ["", ...kinds].map((name) =>
    el("option", { value: name, selected: name === (params.kind || "") }, name === "" ? "all but requests that go well" : name.replaceAll("_", " "))));
  const chosen = () => ({ tenant: tenant.value.trim(), vendor: vendor.value.trim(), kind: kind.value });
  const list = el("ol", { class: "events", id: "events" });
  let stopped = false;
  const stop = el("button", { type: "button", id: "stop", "aria-pressed": "false" }, "Hold the list");
  stop.addEventListener("click", () => {
    stopped = !stopped;
    stop.setAttribute("aria-pressed", String(stopped));
    put(stop, document.createTextNode(stopped ? "Go on" : "Hold the list"));
  });
  const form = el("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); page.go("events", chosen()); } },
    el("label", {}, "Tenant", tenant), el("label", {}, "Vendor", vendor), el("label", {}, "Kind", kind), el("button", {}, "Filter"), stop);
  put(main, el("h1", {}, "Events"), form, el("p", { class: "faint" }, "Newest first; at most 50 a second, and none while this tab is hidden."), list);
  page.live((signal) => follow(query("events", params), signal, (event) => {
    if (stopped) return;
    list.prepend(entry(event));
    while (list.children.length > SHOWN) list.lastElementChild.remove();
  }));
  return { refresh: async () => {} };
}
