// An account without cues: three ways to a first one.
import { anchor, baseUrl, card, copyButton, html } from "../../kit.js";

export function firstCue() {
  // An address to replace, in the scheme of this page.
  const url = new URL("//example.com/hook", location.href).href;
  const schedule = { type: "recurring", cron: "0 * * * *" };
  const body = { name: "hello", schedule, callback: { url } };
  // As asCurl of parts/snippets.js, which a first visit does not need for these plain texts.
  const curl = [`curl -sS -X POST ${baseUrl()}/v1/cues`, `-H "Authorization: Bearer $CUED_API_KEY"`,
    "-H 'Content-Type: application/json'", `--data-raw '${JSON.stringify(body)}'`].join(" \\\n  ");
  const way = (title, text, ...first) => html`<div class="stack"><h3>${title}</h3>
    <p class="row small muted">First, once: ${first}</p>
    <div class="code"><pre>${text}</pre>${copyButton(text)}</div></div>`;
  return card("first-cue", "No cue yet", "", html`<div class="pad grid"><div class="stack">
    <div class="stack"><h3>On this page</h3><p>A cue calls a URL on a schedule, retries when it
      fails, and records each response.</p>${anchor("#/cues/new", "New cue",
          "button primary")}</div>
    ${way("With the command line", `cued cue add --name hello --cron "0 * * * *" --url ${url}`,
      html`<code>cued login ${baseUrl()}</code>`)}</div>
    ${way("With curl", curl,
      anchor("#/account/keys", "create a key"), html`<code>export CUED_API_KEY=…</code>`)}</div>`);
}
