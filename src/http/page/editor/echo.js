// Test: sends the request to this server's echo, and shows what a receiver gets.
import { html, nothing } from "../lit/lit-html.js";
import { del, get, post, randomKey } from "../app/api.js";
import { state } from "../app/state.js";
import { serverNow } from "../app/time.js";
import { why } from "../app/words.js";
import { openDialog } from "../parts/dialog.js";
import { placeOf, prettyJson } from "../parts/json_text.js";
import { baseUrl } from "../parts/snippets.js";
import { createBody, problemsOf } from "./model.js";

const LOOKS = 40;
const PAUSE_MS = 300; // with LOOKS: 12 s for one request to this server itself
const DAY_MS = 86_400_000;

export function testDialog(form) {
  let shown = { text: "Sending…" };
  let redraw = () => {};
  const answer = openDialog((close, refresh) => {
    redraw = refresh;
    return html`<div class="body"><h2>What a receiver gets</h2>
      ${shown.headers ? received(shown) : html`<p class=${shown.failed ? "bad wrap" : "muted"} role="status">${shown.text}</p>`}
      <div class="actions"><a href="#/account/keys" @click=${() => close()}>How to verify the signature</a><button class="primary" @click=${() => close()}>Close</button></div></div>`;
  }, { broad: true });
  run(form).then((found) => {
    shown = found;
    redraw();
  });
  return answer;
}

const received = ({ headers, payload }) => html`<p>As this server sends it, signed with your webhook secret:</p>
  <dl class="facts">${Object.entries(headers).map(([name, value]) => html`<dt><code>${name}</code></dt><dd>${/signature/.test(name) ? html`<b class="mono">${value}</b>` : html`<code>${value}</code>`}</dd>`)}</dl>
  ${payload ? html`<pre class="code">${prettyJson(payload)}</pre>` : nothing}
  <p class="small muted">x-cueapi-signature is v1= and the HMAC-SHA256, in hex, of the timestamp, a full stop and the body as received. The test counts as one run.</p>`;

/** A cue of its own that exists only for the test: fired, looked at, deleted. */
async function run(form) {
  const token = randomKey();
  const { body, raw } = createBody({ ...form, method: "POST", kind: "once", at: new Date(serverNow() + DAY_MS).toISOString(), url: `${state.info?.public_url || baseUrl()}/v1/echo/${token}`, attempts: "1", email: false, pause: false, failureUrl: "", fromResponse: false, verification: "none" });
  body.name = `Test of ${form.name}`.slice(0, 255);
  let cue = null;
  try {
    cue = await post("v1/cues", body, { raw });
    const { id } = await post(`v1/cues/${cue.id}/fire`);
    return await look(token, id);
  } catch (error) {
    const { problems, rest } = problemsOf(error, state.info?.callbacks);
    return { failed: true, text: `The test was refused. ${[...Object.values(problems), ...rest].join(" ")}` };
  } finally {
    if (cue) await del("v1/cues/" + cue.id).catch(() => {});
  }
}

async function look(token, id) {
  for (let turn = 0; turn < LOOKS; turn++) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    const text = await get("v1/echo/" + token, {}, { text: true });
    const [headers, payload] = ["headers", "payload"].map((name) => placeOf(text, name)).map((place) => place && text.slice(...place));
    if (headers) return { headers: JSON.parse(headers), payload };
    const { status, ...rest } = await get("v1/executions/" + id);
    if (status === "failed") return { failed: true, text: `The server could not reach itself: ${why(rest)}.` };
  }
  return { failed: true, text: "Nothing has arrived yet. Is the server busy or held?" };
}
