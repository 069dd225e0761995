// Keyboard shortcuts, `[keys, label, run]`: those of every screen here, those of a screen from its
// `shortcuts`. Keys are one ("n"), or two in a row ("g c").
import { settings } from "./state.js";

const SEQUENCE_MS = 1_200; // between `g` and the letter that follows

export const lists = new Map(); // group -> shortcuts
let first = "";
let firstAt = 0;

export const register = (group, list) => lists.set(group, list || []);

/** The shortcut of a list that was pressed, "part" where the keys begin one, or null. Pure. */
export function find(list, before, key) {
  const pressed = before ? `${before} ${key}` : key;
  const begins = () => list.some(([keys]) => keys.startsWith(pressed + " "));
  return list.find(([keys]) => keys === pressed) || (begins() ? "part" : null);
}

export function start() {
  register("In lists", [
    ["j", "Next row", () => move(1)],
    ["k", "Previous row", () => move(-1)],
    ["x", "Select the row", () => currentRow()?.querySelector("input[type=checkbox]")?.click()],
  ]);
  document.addEventListener("keydown", onKey);
}

function onKey(event) {
  const { defaultPrevented, ctrlKey, metaKey, altKey, isComposing, target, key } = event;
  const isForOthers = defaultPrevented || ctrlKey || metaKey || altKey || isComposing;
  if (!settings.shortcuts || isForOthers || isTyping(target)) return;
  if (document.querySelector("dialog[open]")) return;
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
  const pressed = ":is([type=checkbox], [type=radio], [type=button], [type=submit])";
  return target.isContentEditable || target.matches?.(`textarea, select, input:not(${pressed})`);
}

export const currentRow = () => document.activeElement?.closest("[data-row]");

function move(step) {
  const all = [...document.querySelectorAll("[data-row]")];
  const at = all.indexOf(currentRow());
  const next = at < 0 ? all.at(step > 0 ? 0 : -1) : all[at + step];
  next?.querySelector("a, button")?.focus();
}
