// The frame of the page: who is logged in, which view is open, and when to fetch its data again.
//
// The view and its filters are in the address (`#/lanes?state=paused`), so that a view can be bookmarked and shared. A
// hidden tab fetches nothing.

import { Failed, get, post, query } from "./api.js";
import { el, put } from "./dom.js";
import * as events from "./events.js";
import * as lane from "./lane.js";
import * as lanes from "./lanes.js";
import * as letters from "./letters.js";
import * as queues from "./queues.js";
import * as system from "./system.js";
import { number, plural } from "./words.js";

const EVERY = 2000;
const main = document.getElementById("main");
const alarm = document.getElementById("alarm");
const views = { lanes, lane, letters, queues, events, system };
let session = null;
let open = null;

function place() {
  const [path, text = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decodeURIComponent);
  const params = Object.fromEntries(new URLSearchParams(text));
  if (parts[0] === "lanes" && parts.length === 3) return { name: "lane", params: { tenant: parts[1], vendor: parts[2] } };
  if (parts[0] === "letters" && parts.length === 2) return { name: "letters", params: { id: parts[1] } };
  return { name: views[parts[0]] && parts[0] !== "lane" ? parts[0] : "lanes", params };
}

function tell(error) {
  alarm.hidden = !error;
  put(alarm, error ? document.createTextNode(error.message) : null);
}

const page = {
  may: (access) => session?.access === "operate" || session?.access === access,
  href: (name, params) => `#/${query(name, params)}`,
  go: (name, params) => { location.hash = page.href(name, params); },
  /** Changes the filter of the open view. Adds no entry for the button "back", and the focus stays where it is. */
  replace: (name, params) => {
    history.replaceState(null, "", page.href(name, params));
    if (open?.view.change) {
      open.view.change(place().params);
      page.refresh();
    } else show();
  },
  refresh: () => ask(open),
  try: async (action) => {
    try {
      tell(null);
      await action();
    } catch (error) {
      tell(error);
    }
  },
  /** Follows a stream while the view is open and the tab is visible. */
  live: (follow) => { page.followed.push(follow); },
  followed: [],
};

async function ask(of) {
  if (!of || document.hidden) return;
  of.asking?.abort();
  const asking = new AbortController();
  of.asking = asking;
  clearTimeout(of.timer);
  try {
    await Promise.all([of.view.refresh(asking.signal), summary(asking.signal)]);
    if (of === open && of.failed) {
      of.failed = false;
      tell(null);
    }
  } catch (error) {
    if (asking.signal.aborted) return;
    if (error instanceof Failed && error.status === 401) return login();
    of.failed = true;
    tell(error instanceof Failed ? error : new Error("The console does not answer. It is asked again."));
  }
  if (of === open && of.asking === asking) of.timer = setTimeout(() => ask(of), EVERY);
}

async function summary(signal) {
  const { overview, store_problem, waiting } = await get("overview", signal);
  const sum = (of) => overview.vendors.reduce((all, vendor) => all + of(vendor), 0);
  const words = [`${plural(Math.round(sum((vendor) => vendor.flow.per_second)), "answer")} a second`, `${number(waiting)} waiting`,
    `${plural(sum((vendor) => vendor.paused), "lane")} paused`];
  const problems = [overview.config_problem && `configuration: ${overview.config_problem}`, store_problem && `store: ${store_problem}`];
  const text = [...words, ...problems.filter(Boolean)].join(", ");
  const node = document.getElementById("summary");
  if (node.textContent !== text) put(node, document.createTextNode(text));
}

function listen(of) {
  of.following?.abort();
  if (document.hidden) return;
  of.following = new AbortController();
  for (const follow of of.followed) {
    follow(of.following.signal).catch((error) => (error.status === 401 ? login() : tell(error)));
  }
}

function close() {
  if (!open) return;
  open.asking?.abort();
  open.following?.abort();
  clearTimeout(open.timer);
  open = null;
}

function show() {
  if (!session?.access) return login();
  close();
  tell(null);
  const { name, params } = place();
  const entries = [["lanes", "Lanes"], ["queues", "Queues"], ["letters", "Dead letters"], ["events", "Events"], ["system", "Vendors"]];
  const seen = entries.filter(([entry]) => session.has_store || !["queues", "letters"].includes(entry));
  const current = name === "lane" ? "lanes" : name;
  const nav = document.getElementById("nav");
  nav.hidden = false;
  put(nav, seen.map(([entry, text]) => el("a", { href: `#/${entry}`, "data-key": entry, "aria-current": entry === current ? "page" : null }, text)));
  document.title = `${views[name].title} – integration-client`;
  page.followed = [];
  const view = views[name].view(main, params, page);
  open = { view, followed: page.followed };
  ask(open);
  listen(open);
}

function user() {
  const node = document.getElementById("user");
  node.hidden = !session?.access;
  if (!session?.access) return;
  const role = session.access === "operate" ? "may operate" : session.read_only ? "may look (read-only)" : "may look";
  put(node, el("span", { class: "faint" }, `${session.name}, ${role} `), session.has_login && el("button", { id: "logout", onclick: () => page.try(async () => {
    session = await post("logout");
    user();
    login();
  }) }, "Log out"));
}

function login() {
  close();
  document.getElementById("nav").hidden = true;
  put(document.getElementById("summary"), null);
  session = { ...session, access: null };
  user();
  document.title = "Log in – integration-client";
  if (!session.has_login) return put(main, el("h1", {}, "No access"), el("p", {}, "The program that serves this console does not let you look."));
  const token = el("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  const wrong = el("p", { class: "bad", role: "alert", id: "wrong" });
  put(main, el("h1", {}, "Log in"), el("form", { class: "login", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await post("login", { token: token.value });
      session = await get("session");
      if (!session.access) throw new Error("The browser kept no session. Away from this machine the console needs https.");
      user();
      show();
      main.focus();
    } catch (error) {
      put(wrong, document.createTextNode(error.message));
      token.focus();
    }
  } }, el("p", {}, "The token of one of the [[callers]] with the right view or operate, or the one that the gateway printed."),
  el("label", { class: "field" }, "Token", token), wrong, el("p", { class: "actions" }, el("button", { id: "login" }, "Log in"))));
  token.focus();
}

addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => {
  if (!open) return;
  if (document.hidden) {
    clearTimeout(open.timer);
    open.asking?.abort();
    open.following?.abort();
  } else {
    ask(open);
    listen(open);
  }
});
session = await get("session").catch((error) => {
  tell(error);
  return { has_login: true };
});
user();
show();
