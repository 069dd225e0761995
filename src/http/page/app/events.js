// The only EventSource. Without it, the screen is fetched every 10 s.
import { BUILD, state, update } from "./state.js";
import { freeze, instant, sawServerTime } from "./time.js";

const HIDDEN_FOR_MS = 20_000; // a hidden tab closes its stream: HTTP/1.1 has six per server
const POLL_MS = 10_000;
const RETRY_MS = 10_000; // after the server refused a stream, as it asks for if there are too many
const PATIENCE_MS = 4_000; // a reconnect that takes longer is shown

const typesOf = (first, words) => words.split(" ").map((word) => `${first}.${word}`);
const TYPES = [
  ...typesOf("execution", "created started retrying succeeded failed cancelled"),
  ...typesOf("execution", "claimed claim_lost outcome verified"),
  ...typesOf("cue", "created updated paused resumed completed failed deleted"),
  "missed.recorded", "alert.created", "worker.seen", "quota.near", "quota.exceeded", "server.state",
];

let listener = () => {};
let source = null;
let last = "";
let hiddenTimer = 0;
let retryTimer = 0;
let patienceTimer = 0;

export const matches = (types, type) =>
  types.some((wanted) => type === wanted || type.startsWith(wanted + "."));

function setLive(word) {
  clearTimeout(patienceTimer);
  patienceTimer = 0;
  if (word && state.live !== word) update((s) => (s.live = word));
}

/** Calls `onEvent(type, data)` for each event, "hello" too, and "refetch" where some may be missing. */
export function start(onEvent) {
  listener = onEvent;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = setTimeout(stop, HIDDEN_FOR_MS);
    else if (!source) open();
  });
  // A page that the browser keeps for "Back" must not keep its stream: a user has five.
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  setInterval(() => {
    if (state.live === "polling" && !document.hidden && !state.signedOut) listener("refetch", {});
  }, POLL_MS);
  open();
}

export function stop() {
  setLive();
  clearTimeout(retryTimer);
  source?.close();
  source = null;
}

export function open() {
  stop();
  if (document.hidden || state.signedOut) return;
  source = new EventSource("v1/events" + (last && "?last_event_id=" + encodeURIComponent(last)));
  source.onerror = onError;
  const on = (type, run) => source.addEventListener(type, (event) => {
    last = event.lastEventId || last;
    run(JSON.parse(event.data), type);
  });
  on("hello", onHello);
  for (const type of ["reset", "burst"]) on(type, () => listener("refetch", {}));
  for (const type of TYPES) on(type, onEvent);
  // No response at all, as where other tabs use all connections to the server, is no stream either.
  patienceTimer = setTimeout(() => setLive("polling"), PATIENCE_MS);
}

function onEvent(data, type) {
  if (type === "server.state" && data.state === "clock_moved") freeze(instant(data.at));
  listener(type, data);
}

function onHello(hello) {
  freeze(hello.test_clock ? instant(hello.time) : null);
  sawServerTime(instant(hello.time));
  update((s) => (s.newBuild = hello.build !== BUILD));
  setLive("live");
  listener("hello", hello);
}

function onError() {
  // The browser tries again every 2 s: patience is counted from the first failure.
  if (source.readyState !== EventSource.CLOSED) {
    patienceTimer ||= setTimeout(() => setLive("polling"), PATIENCE_MS);
    return;
  }
  // The server answered, but with no stream: too many of them, signed out, or switched off.
  setLive("polling");
  listener("refetch", {});
  retryTimer = setTimeout(open, RETRY_MS);
}
