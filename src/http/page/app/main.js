// Starts the page.
import { html, render } from "../lit/lit-html.js";
import { keyed } from "../lit/directives/keyed.js";
import { live } from "../lit/directives/live.js";
import { overview } from "../screens/overview.js";

render(keyed("overview", html`<input type="hidden" .value=${live("")}>${overview()}`), document.getElementById("screen"));
