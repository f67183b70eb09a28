// Dead letters: the requests that were given up, and what a user can do with them.

import { Failed, get, post, query } from "./api.js";
import { confirm, el, put, table } from "./dom.js";
import { number, plural, reasons, seconds } from "./words.js";

export const title = "Dead letters";

export function view(main, params, page) {
  if (params.id) return one(main, params, page);
  const field = (id, text, attributes = {}) => [text, el("input", { id, value: params[id] || "", ...attributes })];
  const [, tenant] = field("tenant", "Tenant");
  const [, vendor] = field("vendor", "Vendor");
  const [, before] = field("before", "Before", { placeholder: "2026-01-31T12:00:00Z" });
  const reason = el("select", { id: "reason" }, [["", "all"], ...Object.entries(reasons)].map(([value, text]) =>
    el("option", { value, selected: value === (params.reason || "") }, text)));
  const chosen = () => ({ tenant: tenant.value.trim(), vendor: vendor.value.trim(), reason: reason.value, before: before.value.trim() });
  const count = el("p", { class: "count", role: "status", id: "count" });
  const form = el("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); page.replace("letters", chosen()); } },
    el("label", {}, "Tenant", tenant), el("label", {}, "Vendor", vendor), el("label", {}, "Reason", reason),
    el("label", {}, "Before", before), el("button", {}, "Filter"), count);
  const done = el("p", { role: "status", id: "done" });
  const actions = el("p", { class: "actions" });
  const list = el("div", {});
  put(main, el("h1", {}, "Dead letters"), form, actions, done, list);

  let now = params;
  let last = { total: 0, letters: [] };
  // The selected letters as they were listed, by their ids.
  const selected = new Map();

  const act = (verb, action, all) => async () => {
    const count = all ? last.total : selected.size;
    const what = all ? `all ${plural(count, "letter")} that match` : plural(count, "selected letter");
    const leftOut = all && !now.reason ? "Those are left out of which nobody knows whether the vendor acted: filter by that reason to send them. " : "";
    const doubted = all ? 0 : [...selected.values()].filter((letter) => letter.in_doubt).length;
    const some = doubted ? `The vendor may have acted on ${number(doubted)} of them. ` : "";
    const danger = verb === "purge" ? "They are gone then." : "They become jobs again, with the keys that they had. " + leftOut + some +
      "If the vendor may have forgotten the key of a request on which it may have acted, the job is not sent, and is a letter again. " +
      "A letter of which nobody knows whether the vendor acted is sent, and may act twice: ask the vendor first.";
    const versions = verb === "redrive" ? { versions: Object.fromEntries([...selected].map(([id, { version }]) => [id, version])) } : {};
    const body = all ? { filter: filter(now), upto: last.upto, expect: count } : { ids: [...selected.keys()], ...versions, expect: count };
    const agreed = await confirm({ title: `${action}: ${what}`, text: danger, action: `${action} ${number(count)}`, number: count });
    if (!agreed) return;
    await page.try(async () => {
      try {
        const result = await post(`letters/${verb}`, body);
        const went = result.redriven ?? result.purged;
        const left = result.left ? `, ${number(result.left)} could not be sent` : "";
        const others = result.left_out && [`${plural(result.left_out, "letter")} left out, because nobody knows whether the vendor acted: `,
          el("a", { href: page.href("letters", { ...now, reason: "ambiguous", after_place: "" }) }, "show them")];
        const are = verb === "purge" ? "deleted" : went === 1 ? "is a job again" : "are jobs again";
        put(done, `${plural(went, "letter")} ${are}${left}. `, others);
        selected.clear();
      } catch (error) {
        if (!(error instanceof Failed) || error.status !== 409) throw error;
        put(done, document.createTextNode(`${error.message} (${number(error.body.count ?? 0)})`));
      }
      await page.refresh();
    });
  };

  function draw() {
    put(count, document.createTextNode(`${plural(last.total, "letter")} ${last.total === 1 ? "matches" : "match"}`));
    if (page.may("operate")) {
      const button = (id, text, on, disabled, danger) =>
        el("button", { id, "data-key": id, onclick: on, disabled, class: danger ? "danger" : null }, text);
      put(actions,
        button("redrive", `Send selected again (${selected.size})`, act("redrive", "Send again", false), !selected.size),
        button("purge", `Delete selected (${selected.size})`, act("purge", "Delete", false), !selected.size, true),
        button("redrive-all", `Send all ${number(last.total)} again`, act("redrive", "Send again", true), !last.total),
        button("purge-all", `Delete all ${number(last.total)}`, act("purge", "Delete", true), !last.total, true));
    }
    const rows = last.letters.map((letter) => {
      const box = el("input", { type: "checkbox", checked: selected.has(letter.id), "data-key": `box ${letter.id}`, "aria-label": `select the letter of ${letter.tenant} from ${letter.at}` });
      box.addEventListener("change", () => {
        if (box.checked) selected.set(letter.id, letter); else selected.delete(letter.id);
        draw();
      });
      const result = letter.last ? [letter.last.status, letter.last.error].filter(Boolean).join(" ") : "";
      return [page.may("operate") ? box : "", el("a", { href: `#/letters/${letter.id}`, "data-key": letter.id }, when(letter.at)),
        letter.tenant, letter.vendor, letter.request ? `${letter.request.method} ${letter.request.path}` : "",
        reasons[letter.reason] || letter.reason, number(letter.attempts), result];
    });
    const columns = [["Select"], ["Given up"], ["Tenant"], ["Vendor"], ["Request"], ["Why"], ["Attempts", "number"], ["Last attempt"]];
    put(list, rows.length ? table("Oldest first", columns, rows) : el("p", {}, "No letter matches."),
      el("p", { class: "pager" },
        now.after_place && el("a", { href: page.href("letters", { ...now, after_place: "" }), "data-key": "first" }, "First page"),
        last.next && el("a", { href: page.href("letters", { ...now, after_place: last.next }), "data-key": "next" }, "Next page")));
  }

  async function refresh(signal) {
    last = await get(query("letters", now), signal);
    // Another user may have sent a selected letter again: its job may have a letter by now that nobody has selected.
    for (const { id, version } of last.letters) if (selected.has(id) && selected.get(id).version !== version) selected.delete(id);
    draw();
  }
  return { refresh, change: (params) => { now = params; selected.clear(); } };
}

const filter = ({ tenant, vendor, reason, before }) =>
  Object.fromEntries(Object.entries({ tenant, vendor, reason, before }).filter(([, value]) => value));

const when = (at) => at.replace("T", " ").replace(/\.\d+/, "");

function one(main, params, page) {
  const rest = el("div", {});
  put(main, el("p", {}, el("a", { href: "#/letters" }, "All dead letters")), el("h1", {}, `Letter ${params.id}`), rest);
  async function refresh(signal) {
    const letter = await get(`letters/${encodeURIComponent(params.id)}`, signal);
    const rows = letter.all_attempts.map((attempt) => [when(attempt.at), attempt.phase.replaceAll("_", " "), attempt.status ?? "",
      seconds(attempt.took_ms / 1000), attempt.retry_after_ms === null ? "" : seconds(attempt.retry_after_ms / 1000), attempt.error ?? ""]);
    put(rest, el("dl", {},
      el("dt", {}, "Tenant"), el("dd", {}, letter.tenant), el("dt", {}, "Vendor"), el("dd", {}, letter.vendor),
      el("dt", {}, "Given up"), el("dd", {}, when(letter.at)), el("dt", {}, "Why"), el("dd", {}, reasons[letter.reason] || letter.reason),
      el("dt", {}, "Request"), el("dd", {}, letter.request ? `${letter.request.method} ${letter.request.path}` : ""),
      el("dt", {}, "Priority"), el("dd", {}, letter.priority),
      el("dt", {}, "Can be sent again"), el("dd", {}, letter.can_be_sent ? (letter.in_doubt ? "only while the vendor, which may have acted, still knows the key" : "yes") : "no: only an outline of its request was kept"),
      Object.entries(letter.metadata).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      el("h2", {}, "Attempts"),
      rows.length ? table("First to last", [["Began"], ["How far it came"], ["Status"], ["Took"], ["Vendor asked to wait"], ["Error"]], rows) : el("p", {}, "None was made."));
  }
  return { refresh };
}
