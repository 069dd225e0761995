// The overview.
import { html } from "../lit/lit-html.js";
import { repeat } from "../lit/directives/repeat.js";

export function overview() {
  return html`<h1>Overview</h1>${repeat([], item => item, item => item)}`;
}
