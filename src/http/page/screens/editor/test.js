// What the form would do: a test call of its address, and the request as this server sends it.
import { baseUrl, button, capital, duration, get, html, openDialog, post, randomKey, state, why
} from "../../kit.js";
import { headerList, headerValue, prettyJson, readableJson, surveyJson, textBlock } from "../../parts/payload.js";
import { addressOf, createBody } from "./model.js";
import { problemsOf } from "./refusals.js";

/** Shows the test that `make` resolves to, again at will; `view` has its details. */
function dialog(title, waiting, make, view) {
  let made = null; // nothing during a test
  let refresh = () => {};
  const run = async () => {
    made = null;
    refresh();
    made = await make().catch((error) => ({ problem: refusal(error) }));
    refresh();
  };
  run();
  return openDialog((close, again) => {
    refresh = again;
    const { color, text } = made ? { ...outcome(made), ...made.words }
      : { color: "muted", text: waiting };
    return html`<div class="body" id="test-call"><h2>${title}</h2>
      <p class="wrap ${color}" role="status">${text}</p>${made?.result ? view(made) : ""}
      <div class="actions">${button("Again", run, "", { off: !made })}${
        button("Close", () => close(), "primary")}</div></div>`;
  }, { broad: true });
}

function refusal(error) {
  const { problems, rest } = problemsOf(error);
  return [...Object.values(problems), ...rest].join(" ");
}

/** What came of a test: its colour and a sentence. Pure. */
export function outcome({ problem, result, duration_ms: ms, ...end }) {
  const isGood = result === "success";
  const text = isGood ? `The response is ${end.http_status}` : capital(why(end));
  return { color: isGood ? "good" : "bad", text: problem ?? `${text}, after ${duration(ms)}.` };
}

function call(form) {
  const { body: { callback }, raw } = createBody(form);
  return post("v1/callbacks/test", { callback }, { raw });
}

export const testDialog = (form) => dialog("Test", calling(form), () => call(form), ({ request,
  response_headers: headers, response_body: body, response_truncated: isCut }) => html`${
  headers ? [body ? textBlock(body) : "", isCut ? html`<p class="muted">The rest is not shown.</p>`
    : "", folded("response", headers)] : ""}${folded("request", request.headers)}
  <p class="small muted">Signed like a run, with X-CueAPI-Test: true. It does not count as a
    run.</p>`);

/** "Calling POST example.com/hook, at most 30 s…" Pure. */
export function calling({ method, url, timeout }) {
  const { host, pathname } = addressOf(url);
  return `Calling ${method} ${host}${pathname}, at most ${timeout || 30} s…`;
}

const folded = (title, list) => html`<details><summary>Headers of the ${title}</summary>${
  headerList(list)}</details>`;

/** Shows the request: a test of this server's echo, which keeps what it got. */
export const requestDialog = (form) => dialog("Preview the request", "Calling this server…", async () => {
  const path = "v1/echo/" + randomKey();
  const url = `${state.info?.public_url || baseUrl()}/${path}`;
  const made = await call({ ...form, method: "POST", url });
  const words = made.result === "success" && { color: "", text: "As this server sends it:" };
  return { ...made, words, kept: await get(path, {}, { text: true }) };
}, received);

function received({ kept }) {
  const payload = surveyJson(kept, "payload").value;
  const line = ([name, value]) => html`<li class="wrap"><span class="muted">${name}:</span>
    ${/signature/.test(name) ? html`<b>${value}</b>` : headerValue(name, value)}</li>`;
  const headers = Object.entries(JSON.parse(kept).headers ?? {});
  return html`<ul class="mono small">${headers.map(line)}</ul>
    ${payload ? html`<pre class="code">${prettyJson(readableJson(payload))}</pre>` : ""}
    <p class="small muted">x-cueapi-signature is v1= and the HMAC-SHA256, in hex, of the timestamp,
      a full stop and the body as received, with your webhook secret. The server sent this to itself
      as a test, with POST.</p>
    <a href="docs/how-to/signatures">How to verify the signature</a>`;
}
