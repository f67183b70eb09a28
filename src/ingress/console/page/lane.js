// One lane in full.

import { follow, get, post, query, segment } from "./api.js";
import { el, line, put, room, table } from "./dom.js";
import { entry } from "./events.js";
import { number, plural, seconds, some, stateOf } from "./words.js";

export const title = "Lane";
const SHOWN = 20;

export function view(main, params, page) {
  const { tenant, vendor } = params;
  const path = `lanes/${segment(tenant)}/${segment(vendor)}`;
  const head = el("div", {});
  const rest = el("div", {});
  const events = el("ol", { class: "events" });
  const actions = el("p", { class: "actions" });
  const act = (action) => async () => {
    await page.try(async () => {
      await post(`${path}/${action}`);
      await page.refresh();
    });
  };
  if (page.may("operate")) {
    actions.append(el("button", { id: "pause", onclick: act("pause") }, "Pause"), el("button", { id: "resume", onclick: act("resume") }, "Resume"));
  }
  put(main, el("p", {}, el("a", { href: "#/lanes" }, "All lanes")), el("h1", {}, `${tenant} at ${vendor}`), head, actions, rest,
    el("h2", {}, "Last events"), events);

  async function refresh(signal) {
    const found = await get(path, signal);
    const { status } = found;
    const [words, urgency] = stateOf(status);
    put(head, el("p", { id: "lane-state", role: "status", class: urgency }, words),
      el("dl", {},
        el("dt", {}, "Room"), el("dd", {}, room(status.headroom)),
        el("dt", {}, "Last hour"), el("dd", {}, line(found.history, "room in the last hour")),
        el("dt", {}, "In flight"), el("dd", {}, number(status.in_flight)),
        status.throttle && [el("dt", {}, "Slowed down to"), el("dd", {}, `${Math.round(status.throttle.factor * 100)} % of its rate, ${status.throttle.per_second.toFixed(1)} requests a second`)],
        status.token && [el("dt", {}, "Access token"), el("dd", {}, [status.token.state.replaceAll("_", " "), status.token.problem].filter(Boolean).join(": "))],
        el("dt", {}, "Account"), el("dd", {}, found.account),
        found.shared_with.count > 0 && [el("dt", {}, "Shares limits with"),
          el("dd", {}, `${plural(found.shared_with.count, "other tenant")}: ${found.shared_with.tenants.join(", ")}${found.shared_with.count > found.shared_with.tenants.length ? " …" : ""}`)],
        el("dt", {}, "Whole limit again"), el("dd", {}, found.resets_in_s === null ? "not known" : found.resets_in_s === 0 ? "now" : `in ${seconds(found.resets_in_s)}, if nothing else goes`)));
    const limits = status.limits.map((limit, at) => [
      limit.name + (limit.discovered ? " (stated by answers alone)" : ""),
      limit.endpoint ? `${limit.scope} ${limit.endpoint}` : limit.scope,
      number(limit.limit), number(limit.guard), number(limit.remaining),
      room(limit.guard ? limit.remaining / limit.guard : null),
      found.recent.limits[at].length > 1 ? line(found.recent.limits[at], `room of ${limit.name} in the last five minutes`) : "",
      limit.paused_for_s ? seconds(limit.paused_for_s) : "",
      limit.ends_in_s ? `in ${seconds(limit.ends_in_s)}` : "",
      limit.full_in_s === null ? "not known" : limit.full_in_s === 0 ? "now" : `in ${seconds(limit.full_in_s)}`,
    ]);
    const tiers = ["high", "normal", "low"].map((tier) => {
      const wait = status.waits[tier];
      const estimate = found.estimate.by_priority[tier] || {};
      return [tier, some(status.waiting[tier]), wait ? wait.reason : "", wait ? seconds(wait.waited_s) : "",
        wait && wait.not_before_s !== null ? `in ${seconds(wait.not_before_s)}` : "",
        estimate.expected_s === null || estimate.expected_s === undefined ? "not before the pause ends" : seconds(estimate.expected_s)];
    });
    put(rest,
      el("h2", {}, "Limits"),
      limits.length ? table("What the vendor allows, what this client does not exceed of it, and what is left",
        [["Limit"], ["Who shares it"], ["Vendor's figure", "number"], ["Ours", "number"], ["Left", "number"], ["Room"], ["Last 5 minutes"], ["Paused for"], ["Used up"], ["Whole again"]], limits)
        : el("p", {}, "No limit is configured or known."),
      el("h2", {}, "What waits"),
      table(`By priority; the estimate is for ${found.estimate.requests} more requests`,
        [["Priority"], ["Waiting", "number"], ["Why the first waits"], ["Has waited"], ["Not before"], ["Estimate"]], tiers));
  }
  page.live((signal) => follow(query("events", { tenant, vendor, kind: "all" }), signal, (event) => {
    events.prepend(entry(event));
    while (events.children.length > SHOWN) events.lastElementChild.remove();
  }));
  return { refresh };
}
