// Menus: a button with a native popover below it.
import { html, nothing } from "../lit/lit-html.js";

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
