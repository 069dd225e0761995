// An account without cues: three ways to a first one.
import { anchor, asCurl, baseUrl, card, copyButton, html } from "../../kit.js";

export function firstCue() {
  // An address to replace, in the scheme of this page.
  const url = new URL("//example.com/hook", location.href).href;
  const schedule = { type: "recurring", cron: "0 * * * *" };
  const body = { name: "hello", schedule, callback: { url } };
  const way = (title, text, ...notes) => html`<div class="stack"><h3>${title}</h3>
    <div class="code"><pre>${text}</pre>${copyButton(text)}</div>
    <p class="row small muted">${notes}</p></div>`;
  return card("first-cue", "No cue yet", "", html`<div class="pad grid"><div class="stack">
    <div class="stack"><h3>In this page</h3><p>A cue calls an address on a schedule, tries again
      when that fails, and keeps what was answered.</p>${anchor("#/cues/new", "New cue",
          "button primary")}</div>
    ${way("With the command line", `cued cue add --name hello --cron "0 * * * *" --url ${url}`,
      "Once before:", html`<code>cued login ${baseUrl()}</code>`)}</div>
    ${way("With curl", asCurl({ method: "POST", path: "v1/cues", body }),
      anchor("#/account/keys", "Make a key"), html`<code>export CUED_API_KEY=…</code>`)}</div>`);
}
