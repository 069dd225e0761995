// An account without cues: three ways to a first one.
import { html } from "../../lit/lit-html.js";
import { copyButton } from "../../parts/copy.js";
import { asCurl, baseUrl } from "../../parts/snippets.js";

export function firstCue() {
  // An address to replace, in the scheme of this page.
  const url = new URL("//example.com/hook", location.href).href;
  const way = (title, text, ...notes) => html`<div class="stack"><h3>${title}</h3><div class="code"><pre>${text}</pre>${copyButton(text)}</div><p class="row small muted">${notes}</p></div>`;
  return html`<section class="card" id="first-cue"><header><h2>No cue yet</h2></header><div class="pad grid">
    <div class="stack"><div class="stack"><h3>In this page</h3><p>A cue calls an address on a schedule, tries again when that fails, and keeps what was answered.</p><a class="button primary" href="#/cues/new">New cue</a></div>
    ${way("With the command line", `cued cue add --name hello --cron "0 * * * *" --url ${url}`, "Once before:", html`<code>cued login ${baseUrl()}</code>`)}</div>
    ${way("With curl", asCurl({ method: "POST", path: "v1/cues", body: { name: "hello", schedule: { type: "recurring", cron: "0 * * * *" }, callback: { url } } }), html`<a href="#/account/keys">Make a key</a>`, html`<code>export CUED_API_KEY=…</code>`)}</div></section>`;
}
