// Settings of this browser, and what this server is.
import { html } from "../lit/lit-html.js";
import { list as shortcutList } from "../app/keyboard.js";
import { BUILD, loadInfo, signOut } from "../app/server.js";
import { set, settings } from "../app/settings.js";
import { state, update } from "../app/state.js";
import { absolute, browserZone, knowsZone, serverNow, yourZone } from "../app/time.js";
import { copyButton } from "../parts/copy.js";
import { act } from "../parts/feedback.js";
import { check, field, segments } from "../parts/form.js";
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

export function view(data) {
  const { user, info } = state;
  const choice = (name, label, ...options) => html`<div class="field"><label>${label}</label>${segments({ label, value: settings[name], options, onchange: change(name) })}</div>`;
  return html`<div class="grid">
    <div class="stack">
    <section class="card" id="look"><header><h2>Look</h2></header><div class="pad stack">
      ${choice("theme", "Theme", ["", "Auto"], ["light", "Light"], ["dark", "Dark"])}
      ${choice("density", "Density", ["", "Comfortable"], ["compact", "Compact"])}</div></section>
    <section class="card" id="times"><header><h2>Times</h2><span class="muted num">${absolute(serverNow(), yourZone(), { full: true })}</span></header><div class="pad stack">
      ${zone(data)}
      ${choice("zone_view", "Show times in", ["yours", "Your zone"], ["cue", "Cue's zone"], ["utc", "UTC"])}
      ${choice("hour12", "Clock", [false, "24 h"], [true, "12 h"])}</div></section>
    <section class="card" id="shortcuts"><header><h2>Keyboard shortcuts</h2></header><div class="pad stack">
      ${check({ name: "shortcuts", label: "Use single keys as shortcuts", checked: settings.shortcuts, onchange: change("shortcuts") })}
      <details><summary>List of all shortcuts</summary><div class="stack">${shortcutList()}</div></details></div></section></div>
    <div class="stack">
    <section class="card" id="account"><header><h2>Account</h2></header><div class="pad stack">
      <p class="wrap">${user?.email}</p>
      <p class="row"><a class="button" href="#/account/keys">Keys and sessions</a><button @click=${() => act(signOut)}>Sign out</button></p></div></section>
    <section class="card" id="lines"><header><h2>Command line</h2></header><div class="pad stack">${LINES.map(([line, about]) => html`<div><p class="small muted">${about}</p><div class="code"><code>${line}</code>${copyButton(line)}</div></div>`)}</div></section>
    <section class="card" id="about"><header><h2>About</h2></header><dl class="facts pad">
      <dt>Server</dt><dd>cued ${info.version}</dd>
      <dt>Page</dt><dd><code>${BUILD}</code></dd>
      <dt>API</dt><dd><a href="openapi.json" target="_blank">OpenAPI description</a></dd>
      <dt>Licenses</dt><dd><a href=${LICENSE} target="_blank">lit-html (BSD-3-Clause)</a></dd></dl></section></div>
  </div>`;
}

function zone(data) {
  const typed = data.zone ?? settings.zone;
  const own = browserZone();
  const put = (value) => {
    const name = value.trim();
    const known = !name || knowsZone(name);
    update(() => Object.assign(data, { zone: value, problem: known ? "" : "This browser does not know that zone. An example is Europe/Berlin." }));
    if (known) change("zone")(name);
  };
  return html`${field({ name: "zone", label: "Your time zone", value: typed, placeholder: own, list: "zones", problem: data.problem, oninput: put, help: settings.zone ? html`<button class="link" @click=${() => (put(""), document.getElementById("f-zone").focus())}>As this device (${own})</button>` : `As this device: ${own}` })}
    <datalist id="zones">${(data.zones ??= Intl.supportedValuesOf?.("timeZone") || []).map((name) => html`<option value=${name}></option>`)}</datalist>`;
}
