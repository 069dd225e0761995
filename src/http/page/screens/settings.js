// Settings of this browser, and what this server is.
import { BUILD, absolute, act, anchor, baseUrl, browserZone, button, card, copyLine, facts, html,
  knowsZone, loadInfo, serverNow, set, settings, signOut, state, update, yourZone } from
  "../kit.js";
import { shortcutList } from "../parts/dialog.js";
import { check, field, segments, zoneList } from "../parts/form.js";

const LICENSE = new URL("../lit/LICENSE", import.meta.url).href;
const LINES = [
  ["cued login " + baseUrl(), "Sign in to this server"],
  ["cued open", "Open this page, signed in"],
  ["cued tail --failed", "Watch failures"],
  ["cued run list --failed --since 1d", "List the failed runs of the last day"],
  ["cued backup cued-copy.db", "On the server: back up, even while it runs"],
];

export const load = async () => void (await loadInfo());
const change = (name) => (value) => update(() => set(name, value));
const choice = (name, label, ...list) => html`<div class="field"><label>${label}</label>${
  segments(label, settings[name], list, change(name))}</div>`;
const part = (id, title, beside, ...content) =>
  card(id, title, beside, html`<div class="pad stack">${content}</div>`);

export function view(data) {
  const { user, info } = state;
  const now = absolute(serverNow(), yourZone(), { full: true });
  const blank = (href, text) => html`<a href=${href} target="_blank">${text}</a>`;
  return html`<div class="grid"><div class="stack">
    ${part("look", "Look", "",
      choice("theme", "Theme", ["", "Auto"], ["light", "Light"], ["dark", "Dark"]),
      choice("density", "Density", ["", "Comfortable"], ["compact", "Compact"]))}
    ${part("times", "Times", html`<span class="muted num">${now}</span>`, zone(data),
      choice("zone_view", "Show times in", ["yours", "Your time"], ["cue", "Cue's time"],
        ["utc", "UTC"]),
      choice("hour12", "Clock", [false, "24 h"], [true, "12 h"]))}
    ${part("shortcuts", "Keyboard shortcuts", "",
      check({ name: "shortcuts", label: "Use single keys as shortcuts",
        checked: settings.shortcuts, onchange: change("shortcuts") }),
      html`<details><summary>Show all shortcuts</summary><div class="stack">${
        shortcutList()}</div></details>`)}</div>
    <div class="stack">
    ${part("account", "Account", "", html`<p class="wrap">${user?.email}</p>
      <p class="row">${anchor("#/account/keys", "Keys and sessions", "button")}${
        anchor("#/notifications", "Notifications", "button")}${button("Sign out", () => act(signOut))}</p>`)}
    ${part("lines", "Command line", "", LINES.map(([line, about]) =>
      html`<div><p class="small muted">${about}</p>${copyLine(line)}</div>`))}
    ${card("about", "About", "", facts([
      ["Server", `cued ${info.version}`], ["Page", html`<code>${BUILD}</code>`],
      ["API", blank("openapi.json", "OpenAPI description")],
      ["Licenses", blank(LICENSE, "lit-html (BSD-3-Clause)")],
    ], "pad"))}</div></div>`;
}

function zone(data) {
  const own = `Same as this device (${browserZone()})`;
  const put = (value) => {
    const name = value.trim();
    const known = !name || knowsZone(name);
    const unknown = "Your browser does not know this zone. Enter a city, or Europe/Berlin.";
    update(() => Object.assign(data, { zone: value, problem: known ? "" : unknown }));
    if (known) change("zone")(name);
  };
  const clear = () => (put(""), document.getElementById("f-zone").focus());
  return html`${field({
    name: "zone", label: "Your time zone", value: data.zone ?? settings.zone, list: "zones",
    placeholder: browserZone(), problem: data.problem, oninput: put,
    help: settings.zone ? button(own, clear, "link") : own,
  })}${zoneList()}`;
}
