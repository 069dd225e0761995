// Keyboard shortcuts, `[keys, label, run]`: those of every screen here, those of a screen from its
// `shortcuts`. Keys are one ("n"), or two in a row ("g c").
import { html } from "../lit/lit-html.js";
import { openDialog } from "../parts/ask.js";
import { go } from "./router.js";
import { settings } from "./state.js";

const SEQUENCE_MS = 1_200; // between `g` and the letter that follows

const PLACES = {
  o: ["Overview", "#/"],
  c: ["Cues", "#/cues"],
  r: ["Runs", "#/runs"],
  w: ["Workers", "#/workers"],
  a: ["Alerts", "#/alerts"],
  u: ["Plan and usage", "#/account/plan"],
  k: ["Keys and secrets", "#/account/keys"],
  s: ["Settings", "#/settings"],
};

const lists = new Map(); // group -> shortcuts
let first = "";
let firstAt = 0;

/** Sets the shortcuts of a group ("On this screen", "Everywhere"). */
export const register = (group, list) => lists.set(group, list || []);

/** The shortcut of a list that was pressed, `"part"` where the keys begin one, or `null`. Pure. */
export function find(list, before, key) {
  const pressed = before ? `${before} ${key}` : key;
  const begins = () => list.some(([keys]) => keys.startsWith(pressed + " "));
  return list.find(([keys]) => keys === pressed) || (begins() ? "part" : null);
}

export function start() {
  const places = Object.entries(PLACES);
  register("Go to", places.map(([key, [label, hash]]) => ["g " + key, label, () => go(hash)]));
  register("In lists", [
    ["j", "Next row", () => move(1)],
    ["k", "Previous row", () => move(-1)],
    ["x", "Select the row", () => currentRow()?.querySelector("input[type=checkbox]")?.click()],
  ]);
  document.addEventListener("keydown", onKey);
}

function onKey(event) {
  const { ctrlKey, metaKey, altKey, isComposing, defaultPrevented, target, key } = event;
  if (!settings.shortcuts || defaultPrevented || ctrlKey || metaKey || altKey
    || isComposing) return;
  if (isTyping(target) || document.querySelector("dialog[open]")) return;
  const before = Date.now() - firstAt < SEQUENCE_MS ? first : "";
  // The newest group first: a screen's own keys win over those of every list.
  const all = [...lists.values()].reverse().flat();
  const found = find(all, before, key) || find(all, "", key);
  first = found === "part" ? key : "";
  firstAt = Date.now();
  if (!found) return;
  event.preventDefault();
  if (found !== "part") found[2]();
}

function isTyping(target) {
  if (!(target instanceof Element)) return false;
  if (target.matches("input")) return !/^(checkbox|radio|button|submit)$/.test(target.type);
  return target.matches("textarea, select") || target.isContentEditable;
}

/** The row that has the focus. */
export const currentRow = () => document.activeElement?.closest("[data-row]");

function move(step) {
  const all = [...document.querySelectorAll("[data-row]")];
  if (!all.length) return;
  const at = all.indexOf(currentRow());
  const to = at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step;
  const next = all[Math.min(all.length - 1, Math.max(0, to))];
  (next.querySelector("a, button") || next).focus();
}

/** All shortcuts by group, as a template. */
export const list = () => [...lists].filter(([, entries]) => entries.length).map(group);

const group = ([title, entries]) => html`<div><h3>${title}</h3><dl class="keys">${entries.map(
  ([keys, label]) => html`<dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt>
    <dd>${label}</dd>`)}</dl></div>`;

export function help() {
  return openDialog((close) => html`<div class="body"><h2>Keyboard shortcuts</h2>${list()}
    <div class="actions"><a href="#/settings" @click=${() => close()}>Switch them off</a>
      <button class="primary" @click=${() => close()}>Close</button></div></div>`);
}
