// All lanes, worst first.

import { get, query, segment } from "./api.js";
import { el, line, put, room, table } from "./dom.js";
import { number, plural, some, state } from "./words.js";

const STATES = [["", "all"], ["reconnect", "must reconnect"], ["held", "paused by an operator"],
  ["paused", "paused by the vendor"], ["unreachable", "unreachable"], ["throttled", "slower"], ["waiting", "waiting"], ["sending", "sending"], ["idle", "idle"]];
const SORTS = [["", "worst first"], ["room", "least room"], ["waiting", "most waiting"], ["name", "by name"]];

export const title = "Lanes";

export function view(main, params, page) {
  const options = (all, chosen) => all.map(([value, text]) => el("option", { value, selected: value === (chosen || "") }, text));
  const search = el("input", { type: "search", id: "search", value: params.search || "", placeholder: "tenant or vendor" });
  const stateOf = el("select", { id: "state" }, options(STATES, params.state));
  const sort = el("select", { id: "sort" }, options(SORTS, params.sort));
  const count = el("p", { class: "count", role: "status", id: "count" });
  const list = el("div", {});
  const chosen = () => ({ search: search.value, state: stateOf.value, sort: sort.value });
  let timer;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => page.replace("lanes", chosen()), 250);
  });
  for (const select of [stateOf, sort]) select.addEventListener("change", () => page.replace("lanes", chosen()));
  const form = el("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
    el("label", {}, "Search", search), el("label", {}, "State", stateOf), el("label", {}, "Order", sort), count);
  put(main, el("h1", {}, "Lanes"), form, list);

  let now = params;
  async function refresh(signal) {
    const found = await get(query("lanes", now), signal);
    put(count, document.createTextNode(plural(found.total, "lane")));
    const rows = found.lanes.map((lane) => {
      const [words, urgency] = state(lane);
      const href = `#/lanes/${segment(lane.tenant)}/${segment(lane.vendor)}`;
      return [
        el("a", { href, "data-key": `${lane.tenant}/${lane.vendor}` }, lane.tenant),
        lane.vendor,
        lane.limit ? `${lane.limit.name} ${number(lane.limit.limit)}` : "",
        room(lane.room),
        line(lane.history, "room in the last hour"),
        some(lane.waiting.high), some(lane.waiting.normal), some(lane.waiting.low),
        el("span", { class: urgency }, words),
      ];
    });
    const columns = [["Tenant"], ["Vendor"], ["Limit"], ["Room"], ["Last hour"], ["High", "number"], ["Normal", "number"],
      ["Low", "number"], ["State"]];
    const pager = el("p", { class: "pager" },
      now.after ? el("a", { href: page.href("lanes", { ...now, after: "" }), "data-key": "first" }, "First page") : null,
      found.next ? el("a", { href: page.href("lanes", { ...now, after: found.next }), "data-key": "next" }, "Next page") : null);
    put(list, rows.length ? table("One tenant at one vendor each; what waits, by priority", columns, rows)
      : el("p", {}, "No lane matches."), pager);
  }
  return { refresh, change: (params) => { now = params; } };
}
