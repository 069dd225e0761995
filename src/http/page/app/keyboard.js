// Keyboard shortcuts: those of every screen here, those of a screen from its `shortcuts`.
import { html } from "../lit/lit-html.js";
import { go } from "./router.js";
import { settings } from "./settings.js";

const SEQUENCE_MS = 1_200; // between `g` and the letter that follows

const PLACES = { o: ["Overview", "#/"], c: ["Cues", "#/cues"], r: ["Runs", "#/runs"], w: ["Workers", "#/workers"], a: ["Alerts", "#/alerts"], u: ["Plan and usage", "#/account/plan"], k: ["Keys and secrets", "#/account/keys"], s: ["Settings", "#/settings"] };

const lists = new Map(); // group -> [{keys, label, run}]
let first = "";
let firstAt = 0;

/** Sets the shortcuts of a group ("Screen", "Everywhere"): `[{keys: "n" or "g c", label, run}]`. */
export function register(group, list) {
  lists.set(group, list || []);
}

/** The shortcut of a list that the keys pressed are, `"part"` where they begin one, or `null`. Pure. */
export function find(list, before, key) {
  const pressed = before ? `${before} ${key}` : key;
  return (
    list.find((entry) => entry.keys === pressed) || (list.some((entry) => entry.keys.startsWith(pressed + " ")) ? "part" : null)
  );
}

export function start() {
  register("Go to", Object.entries(PLACES).map(([key, [label, hash]]) => ({ keys: "g " + key, label, run: () => go(hash) })));
  register("In lists", [
    { keys: "j", label: "Next row", run: () => move(1) },
    { keys: "k", label: "Previous row", run: () => move(-1) },
    { keys: "x", label: "Select the row", run: () => currentRow()?.querySelector("input[type=checkbox]")?.click() },
  ]);
  document.addEventListener("keydown", onKey);
}

function onKey(event) {
  if (!settings.shortcuts || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  const before = Date.now() - firstAt < SEQUENCE_MS ? first : "";
  // The newest group first: a screen's own keys win over those of every list.
  const all = [...lists.values()].reverse().flat();
  const found = find(all, before, event.key) || find(all, "", event.key);
  first = found === "part" ? event.key : "";
  firstAt = Date.now();
  if (!found) return;
  event.preventDefault();
  if (found !== "part") found.run();
}

function isTyping(target) {
  if (!(target instanceof Element)) return false;
  if (target.matches("input")) return !/^(checkbox|radio|button|submit)$/.test(target.type);
  return target.matches("textarea, select") || target.isContentEditable;
}

const rows = () => [...document.querySelectorAll("[data-row]")];
/** The row that has the focus, or the one under way of `j` and `k`. */
export const currentRow = () => document.activeElement?.closest("[data-row]");

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(currentRow());
  const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
  (next.querySelector("a, button") || next).focus();
}

/** All shortcuts by group, as a template. */
export const list = () => [...lists].filter(([, entries]) => entries.length).map(([group, entries]) => html`<div><h3>${group}</h3><dl class="keys">${entries.map(({ keys, label }) => html`<dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${label}</dd>`)}</dl></div>`);

export async function help() {
  const { openDialog } = await import("../parts/dialog.js");
  return openDialog((close) => html`<div class="body">
    <h2>Keyboard shortcuts</h2>
    ${list()}
    <div class="actions"><a href="#/settings" @click=${() => close()}>Switch them off</a><button class="primary" @click=${() => close()}>Close</button></div>
  </div>`);
}
