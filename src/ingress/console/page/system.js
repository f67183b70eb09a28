// Vendors, the sources of the configuration, and processes that share limits.

import { get } from "./api.js";
import { el, put, table } from "./dom.js";
import { number, plural, seconds } from "./words.js";

export const title = "Vendors";

export function view(main) {
  const rest = el("div", {});
  put(main, el("h1", {}, "Vendors and processes"), rest);
  async function refresh(signal) {
    const [{ vendors }, { sharing, limits, is_cut }, { overview }] = await Promise.all([get("vendors", signal), get("processes", signal), get("overview", signal)]);
    const source = (limit) => limit.source ? `${limit.source.confidence}, ${limit.source.as_of}: ${limit.source.reference}` : "not stated";
    put(rest,
      el("h2", {}, "Configuration"),
      overview.config_sources.length ? table("Where it comes from", [["Source"], ["Kind"], ["Confirmed"], ["Problem"]],
        overview.config_sources.map((source) => [source.name, source.kind, `${seconds(source.age_s)} ago${source.is_copy ? ", a copy is in use" : ""}`,
          source.problem && el("span", { class: "bad" }, `for ${seconds(source.problem_for_s)}: ${source.problem}`)]))
        : el("p", {}, "The program states all of it."),
      el("h2", {}, "Processes"),
      sharing ? el("dl", {},
        el("dt", {}, "Shared limits"), el("dd", {}, number(sharing.limits)),
        el("dt", {}, "Store of the units"), el("dd", { class: sharing.away_for_s === null ? "good" : "bad" },
          sharing.away_for_s === null ? "answers" : `has not answered for ${seconds(sharing.away_for_s)}; ${{
            away: `this process goes on with all that it holds for ${seconds(sharing.lease_left_s)}`,
            floor: `this process goes on with its floor for ${seconds(sharing.floor_left_s)}`,
          }[sharing.mode] ?? "nothing of shared limits is sent"}`),
        el("dt", {}, "Calls"), el("dd", {}, `${number(sharing.answered)} answered, ${number(sharing.failed)} failed`),
        el("dt", {}, "Leases lost"), el("dd", {}, number(sharing.leases_lost)),
        sharing.limits_failing > 0 && [el("dt", {}, "Problem"), el("dd", { class: "bad" },
          `the store does not answer about ${plural(sharing.limits_failing, "limit")}: this process uses what it holds of each until its lease ends`)],
        sharing.is_learning && [el("dt", {}, "State"), el("dd", { class: "fair" }, "the store has lost its data, and gives no more for a lease; what no process holds it gives a window later")])
        : el("p", {}, "This process shares its limits with no other."),
      limits.length ? table(`Limits that processes share${is_cut ? " (the first 1,000)" : ""}, as the store last said`,
        [["Limit"], ["Processes", "number"], ["Units", "number"], ["Held by all", "number"], ["Held here", "number"], ["Wanted by all", "number"], ["Figures"], ["Problem"]],
        limits.map((limit) => [limit.limit, number(limit.processes), number(limit.units), number(limit.held), number(limit.held_here), number(limit.wanted),
          limit.figures_differ ? "differ between processes: the lowest number of units applies to all, and each counts by its own window" : "the same",
          limit.problem && el("span", { class: "bad" }, `the store does not answer: ${limit.problem}`)])) : null,
      vendors.map((vendor) => [
        el("h2", {}, vendor.environment === "live" ? vendor.vendor : `${vendor.vendor} (${vendor.environment})`),
        el("p", {}, `${plural(vendor.tenants, "tenant")}; ${vendor.base_url}`,
          vendor.observed ? `; ${vendor.observed.flow.per_second.toFixed(1)} answers a second, ${vendor.observed.flow.mean_s === null ? "none yet" : `in ${seconds(vendor.observed.flow.mean_s)} on average`}; ${number(vendor.observed.paused)} paused, ${number(vendor.observed.throttled)} slowed down` : ""),
        vendor.limits.length ? table("Limits of its entry, and where the figures come from", [["Limit"], ["Who shares it"], ["Figure", "number"], ["Window"], ["Source"]],
          vendor.limits.map((limit) => [limit.endpoint ? `${limit.endpoint}: ${limit.name}` : limit.name, limit.scope, number(limit.limit),
            limit.window_s === null ? "at once" : seconds(limit.window_s), source(limit)]))
          : el("p", {}, vendor.unpublished ? "The vendor publishes no figures." : "No limit is stated."),
        vendor.quirks.length ? el("details", {}, el("summary", {}, "What to know about it"), el("ul", {}, vendor.quirks.map((quirk) => el("li", {}, quirk)))) : null,
      ]).flat());
  }
  return { refresh };
}
