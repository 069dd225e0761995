// Copying: the clipboard where the page may use it, else a hidden text area (over plain HTTP there is no clipboard).
import { html, nothing } from "../lit/lit-html.js";
import { asCued, asCurl, asPython } from "./snippets.js";
import { toast } from "./feedback.js";

export async function copy(text, done = "Copied") {
  const copied = await write(text);
  toast(copied ? done : "The browser did not allow copying. Select the text and copy it by hand.");
  return copied;
}

async function write(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return writeByHand(text);
  }
}

function writeByHand(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr";
  // Inside of an open dialog all else is inert and could not be selected.
  const host = document.querySelector("dialog[open]") || document.body;
  const before = document.activeElement;
  host.append(area);
  area.select();
  let copied = false;
  try {
    copied = document.execCommand("copy");
  } finally {
    area.remove();
    before?.focus?.();
  }
  return copied;
}

/** A button that copies a text, or what a function returns. */
export const copyButton = (text, label = "Copy") =>
  html`<button type="button" class="plain small" @click=${() => copy(typeof text === "function" ? text() : text)}>${label}</button>`;

/** A menu "Copy as …" of an API call `{method, path, body}`; more entries are `[label, text]` pairs. */
export function copyMenu(call, more = [], id = "copy-as") {
  const entries = [["curl", asCurl(call)], ["Python", asPython(call)], ["cued command", asCued(call)], ...more];
  return menu("Copy as", entries.map(([label, text]) => [label, () => copy(text, `Copied as ${label}`)]), id);
}

/**
 * A button with a menu of `[text, run, class]` entries below it. `id` must be unique in the screen; `name` is for a
 * `face` that is only a sign ("⋯").
 */
export function menu(face, entries, id, name = "") {
  const place = (event) => {
    if (event.newState !== "open") return;
    const popover = event.target;
    const box = popover.previousElementSibling.getBoundingClientRect();
    popover.style.top = `${Math.min(box.bottom + 4, innerHeight - 48 - entries.length * 40)}px`;
    popover.style.left = `${Math.max(8, Math.min(box.left, innerWidth - 208))}px`;
  };
  return html`<button type="button" popovertarget=${id} aria-label=${name || nothing}>${face}</button><div class="menu" id=${id} popover @beforetoggle=${place}>${entries.map(([text, run, kind = ""]) => html`<button type="button" class=${kind} @click=${(event) => (event.target.closest("[popover]").hidePopover(), run())}>${text}</button>`)}</div>`;
}
