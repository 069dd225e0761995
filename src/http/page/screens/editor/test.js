// A test of the form: a cue made for it calls this server, which shows what a receiver gets.
import { baseUrl, button, cuePath, del, get, html, openDialog, post, prettyJson, randomKey,
  readableJson, serverNow, state, surveyJson, why } from "../../kit.js";
import { createBody, problemsOf } from "./model.js";

const LOOKS = 40;
const PAUSE_MS = 300; // with LOOKS: 12 s for one request to this server itself
const DAY_MS = 86_400_000;

export function testDialog(form) {
  let shown = null;
  const running = run(form);
  return openDialog((close, refresh) => {
    if (!shown) running.then((found) => ((shown = found), refresh()));
    const { headers, problem = "Sending…" } = shown ?? {};
    const kind = shown ? "bad wrap" : "muted";
    return html`<div class="body"><h2>What a receiver gets</h2>
      ${headers ? received(shown) : html`<p class=${kind} role="status">${problem}</p>`}
      <div class="actions"><a href="#/account/keys" @click=${() => close()}>How to verify the
        signature</a>${button("Close", () => close(), "primary")}</div></div>`;
  }, { broad: true });
}

function received({ headers, payload }) {
  const line = ([name, value]) => html`<li class="wrap"><span class="muted">${name}:</span>
    ${/signature/.test(name) ? html`<b>${value}</b>` : value}</li>`;
  return html`<p>As this server sends it, signed with your webhook secret:</p>
    <ul class="mono small">${Object.entries(headers).map(line)}</ul>
    ${payload ? html`<pre class="code">${prettyJson(readableJson(payload))}</pre>` : ""}
    <p class="small muted">x-cueapi-signature is v1= and the HMAC-SHA256, in hex, of the timestamp,
      a full stop and the body as received. The test is a POST and counts as one run.</p>`;
}

/** A cue of its own that exists only for the test: fired, looked at, deleted. */
async function run(form) {
  const token = randomKey();
  const { body, raw } = createBody({
    ...form, name: `Test of ${form.name}`.slice(0, 255), method: "POST", kind: "once",
    at: new Date(serverNow() + DAY_MS).toISOString(),
    url: `${state.info?.public_url || baseUrl()}/v1/echo/${token}`, attempts: "1", email: false,
    pause: false, failureUrl: "", fromResponse: false, verification: "none",
    outcomeWithin: "", flowKey: "", parallel: "", perMinute: "",
  });
  let cue = null;
  try {
    cue = await post("v1/cues", body, { raw });
    const { id } = await post(cuePath(cue.id) + "/fire");
    return await look(token, id);
  } catch (error) {
    const { problems, rest } = problemsOf(error, state.info?.callbacks);
    return { problem: `The test was refused. ${[...Object.values(problems), ...rest].join(" ")}` };
  } finally {
    if (cue) await del(cuePath(cue.id)).catch(() => {});
  }
}

async function look(token, id) {
  for (let turn = 0; turn < LOOKS; turn++) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    const text = await get("v1/echo/" + token, {}, { text: true });
    const { headers } = JSON.parse(text);
    if (headers) return { headers, payload: surveyJson(text, "payload").value };
    const { status, ...rest } = await get("v1/executions/" + id);
    if (status === "failed") return { problem: `The server could not reach itself: ${why(rest)}.` };
  }
  return { problem: "Nothing has arrived yet. Is the server busy or held?" };
}
