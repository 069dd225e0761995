// Settings of this browser, and what this server is.
import { html } from "../lit/lit-html.js";
import { list as shortcutList } from "../app/keyboard.js";
import { loadInfo, signOut } from "../app/server.js";
import { BUILD, set, settings, state, update } from "../app/state.js";
import { absolute, browserZone, knowsZone, serverNow, yourZone } from "../app/time.js";
import { copyLine } from "../parts/copy.js";
import { act } from "../parts/feedback.js";
import { check, field, segments } from "../parts/form.js";
import { anchor, button, card, facts } from "../parts/pieces.js";
import { baseUrl } from "../parts/snippets.js";

const LICENSE = new URL("../lit/LICENSE", import.meta.url).href;
const LINES = [
  ["cued login " + baseUrl(), "Log in to this server"],
  ["cued open", "Open this page, signed in"],
  ["cued tail --failed", "Watch what fails"],
  ["cued run list --failed --since 1d", "List the failed runs of a day"],
  ["cued backup cued-copy.db", "On the server: back up, also while it runs"],
];

export const load = async () => void (await loadInfo());
const change = (name) => (value) => update(() => set(name, value));
const choice = (name, label, ...list) => html`<div class="field"><label>${label}</label>${
  segments(label, settings[name], list, change(name))}</div>`;
const stack = (...content) => html`<div class="pad stack">${content}</div>`;

export function view(data) {
  const { user, info } = state;
  const now = absolute(serverNow(), yourZone(), { full: true });
  const blank = (href, text) => html`<a href=${href} target="_blank">${text}</a>`;
  return html`<div class="grid"><div class="stack">
    ${card("look", "Look", "", stack(
      choice("theme", "Theme", ["", "Auto"], ["light", "Light"], ["dark", "Dark"]),
      choice("density", "Density", ["", "Comfortable"], ["compact", "Compact"])))}
    ${card("times", "Times", html`<span class="muted num">${now}</span>`, stack(
      zone(data),
      choice("zone_view", "Show times in", ["yours", "Your zone"], ["cue", "Cue's zone"],
        ["utc", "UTC"]),
      choice("hour12", "Clock", [false, "24 h"], [true, "12 h"])))}
    ${card("shortcuts", "Keyboard shortcuts", "", stack(
      check({
        name: "shortcuts", label: "Use single keys as shortcuts", checked: settings.shortcuts,
        onchange: change("shortcuts"),
      }),
      html`<details><summary>List of all shortcuts</summary><div class="stack">${
        shortcutList()}</div></details>`))}</div>
    <div class="stack">
    ${card("account", "Account", "", stack(html`<p class="wrap">${user?.email}</p>
      <p class="row">${anchor("#/account/keys", "Keys and sessions", "button")}${
        button("Sign out", () => act(signOut))}</p>`))}
    ${card("lines", "Command line", "", stack(LINES.map(([line, about]) => html`<div><p
      class="small muted">${about}</p>${copyLine(line)}</div>`)))}
    ${card("about", "About", "", facts([
      ["Server", `cued ${info.version}`],
      ["Page", html`<code>${BUILD}</code>`],
      ["API", blank("openapi.json", "OpenAPI description")],
      ["Licenses", blank(LICENSE, "lit-html (BSD-3-Clause)")],
    ], "pad"))}</div></div>`;
}

function zone(data) {
  const own = browserZone();
  const unknown = "This browser does not know that zone. An example is Europe/Berlin.";
  const put = (value) => {
    const name = value.trim();
    const known = !name || knowsZone(name);
    update(() => Object.assign(data, { zone: value, problem: known ? "" : unknown }));
    if (known) change("zone")(name);
  };
  const clear = () => (put(""), document.getElementById("f-zone").focus());
  data.zones ??= Intl.supportedValuesOf?.("timeZone") || [];
  return html`${field({
    name: "zone", label: "Your time zone", value: data.zone ?? settings.zone, placeholder: own,
    list: "zones", problem: data.problem, oninput: put,
    help: settings.zone ? button(`As this device (${own})`, clear,
      "link") : `As this device: ${own}`,
  })}<datalist id="zones">${data.zones.map((name) =>
    html`<option value=${name}></option>`)}</datalist>`;
}
