// Makes elements. Text goes in as text nodes: no string is ever read as markup.

/** Creates an element with attributes and children. `on…` are listeners; null, undefined and false are left out. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Replaces the children of a node. The focus goes to the new child with the `data-key` of the child that had it. */
export function put(node, ...children) {
  const active = document.activeElement;
  const key = node.contains(active) ? active.dataset.key : undefined;
  node.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (key) [...node.querySelectorAll("[data-key]")].find((other) => other.dataset.key === key)?.focus();
}

/** Creates a table whose cells hold the names of their columns, for narrow screens. */
export function table(caption, columns, rows) {
  const head = columns.map(([name, kind]) => el("th", { scope: "col", role: "columnheader", class: kind }, name));
  const body = rows.map((cells) => el("tr", { role: "row" }, cells.map((cell, number) => {
    const [name, kind] = columns[number];
    const isEmpty = cell === null || cell === undefined || cell === "";
    const classes = [kind, isEmpty && "empty"].filter(Boolean).join(" ");
    return el("td", { role: "cell", class: classes || null, "data-label": name }, isEmpty ? "" : cell);
  })));
  return el("table", { role: "table" }, el("caption", {}, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head)), el("tbody", { role: "rowgroup" }, body));
}

const SVG = "http://www.w3.org/2000/svg";

/** Draws the line of the last hour, in percent, oldest first. An empty line stands for 100 % all the time. */
export function line(percents, label) {
  const points = percents.length > 1 ? percents : [100, 100];
  const at = points.map((value, number) =>
    `${((number * 120) / (points.length - 1)).toFixed(1)},${(21 - value * 0.2).toFixed(1)}`);
  const shape = (name, d) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    if (name) path.setAttribute("class", name);
    return path;
  };
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 120 22");
  svg.setAttribute("class", "line");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${label}: lowest ${Math.min(...points)} %, now ${points.at(-1)} %`);
  svg.append(shape("area", `M0,22 L${at.join(" L")} L120,22 Z`), shape(null, `M${at.join(" L")}`));
  return svg;
}

/** Shows the share that is left of a limit as a bar and as a number, because not everybody can tell the colours. */
export function room(share) {
  if (share === null || share === undefined) return el("span", { class: "faint" }, "no limit");
  const percent = Math.floor(share * 100);
  const meter = el("meter", { min: 0, max: 100, low: 20, high: 40, optimum: 90, value: percent, "aria-label": "room left" });
  return el("span", { class: "room" }, meter, ` ${percent} %`);
}

/** Asks the user. Resolves to whether the user agreed; if `number` is stated, the user agrees only by typing it. */
export function confirm({ title, text, action, number }) {
  const dialog = document.getElementById("dialog");
  const input = el("input", { id: "typed", inputmode: "numeric", autocomplete: "off", required: true });
  const wrong = el("p", { class: "bad", role: "alert" });
  const form = el("form", { method: "dialog" },
    el("h2", { id: "dialog-title" }, title), el("p", {}, text),
    number === undefined ? null : el("p", { class: "field" }, el("label", { for: "typed" }, `Type the number ${number} to go on`), input),
    wrong,
    el("p", { class: "actions" },
      el("button", { type: "submit", class: "danger", id: "dialog-go" }, action),
      el("button", { type: "button", onclick: () => dialog.close("") }, "Cancel")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (number !== undefined && input.value.trim() !== String(number)) {
      put(wrong, document.createTextNode(`That is not ${number}. Nothing was done.`));
      return;
    }
    dialog.close("yes");
  });
  put(dialog, form);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}
