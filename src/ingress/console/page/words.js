// Figures and states in words.

const numbers = new Intl.NumberFormat("en");

export const number = (value) => numbers.format(value);

/** Formats a number in a table. Zero becomes a dot, so that the other numbers stand out. */
export const some = (value) => (value ? number(value) : "·");

export function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 1) return `${Math.max(0, Math.round(value * 1000))} ms`;
  if (value < 100) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${(value / 3600).toFixed(1)} h` : `${Math.round(value / 86400)} days`;
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** A lane's state, and how urgent it is. */
export function state(lane) {
  const until = lane.ends_in_s === null || lane.ends_in_s === undefined ? "" : ` for ${seconds(lane.ends_in_s)}`;
  switch (lane.state) {
    case "reconnect": return ["the vendor takes its grant no more: its user must connect again", "bad"];
    case "held": return ["paused by an operator, until somebody resumes it", "bad"];
    case "paused": return [`paused by the vendor${until}${lane.why ? `: ${lane.why}` : ""}`, "bad"];
    case "unreachable": return [`no connection to ${lane.unreachable} can be made; one request at a time tries`, "bad"];
    case "throttled": return [lane.reason ? `slower than its limits: ${lane.reason}` : "slower than its limits", "fair"];
    case "waiting": return [lane.reason ? `waits: ${lane.reason}` : "waits", "fair"];
    case "sending": return ["sends", "good"];
    default: return ["idle", "faint"];
  }
}

/** The state of a lane by its full status, which says more than an entry of a list. */
export function stateOf(status) {
  const { pause, throttle, token, waiting } = status;
  const reason = (status.waits.high || status.waits.normal || status.waits.low || {}).reason;
  const ends_in_s = pause ? pause.ends_in_s : null;
  let name = "idle";
  if (token && token.state === "needs_reconnect") name = "reconnect";
  else if (pause) name = pause.by === "operator" ? "held" : "paused";
  else if (status.unreachable) name = "unreachable";
  else if (throttle) name = "throttled";
  else if (waiting.high + waiting.normal + waiting.low > 0) name = "waiting";
  else if (status.in_flight > 0) name = "sending";
  return state({ state: name, reason, why: pause && pause.reason, ends_in_s, unreachable: status.unreachable });
}

export const reasons = {
  exhausted: "all retries were used",
  ambiguous: "nobody knows whether the vendor acted",
  rejected: "the vendor rejected it",
  expired: "it was not delivered in time",
  poison: "the process ended each time it was sent",
  not_configured: "its tenant, vendor or endpoint is not configured",
};

/** The kinds of events that a filter offers. */
export const kinds = ["failed", "refused", "exhausted", "recovered", "paused", "throttled", "yielded", "dead_lettered",
  "breaker", "limit_stated", "config_accepted", "config_rejected", "dispatched", "completed", "all"];

/** The fields of an event as text, without its tenant and vendor. */
export function event(it) {
  const rest = Object.entries(it).filter(([name]) => !["event", "tenant", "vendor", "request_id"].includes(name));
  return rest.map(([name, value]) => {
    const shown = value !== null && typeof value === "object" ? Object.values(value).join(" ") : String(value);
    return `${name.replace(/_ms$/, "").replaceAll("_", " ")} ${shown}${name.endsWith("_ms") ? " ms" : ""}`;
  }).join(", ");
}
