// The frame of the page: shows the screen of the address, loads it, keeps it fresh.
import { html, nothing, render } from "../lit/lit-html.js";
import { act, announce, bones, errorBox, note as notice, toasts } from "../parts/feedback.js";
import { menu } from "../parts/menu.js";
import { takeNextTick } from "../parts/values.js";
import { banners } from "./banners.js";
import * as events from "./events.js";
import * as keyboard from "./keyboard.js";
import { go, parse } from "./router.js";
import * as server from "./server.js";
import { nextTheme, set, settings } from "./settings.js";
import { onRender, state, update } from "./state.js";
import { isFrozen } from "./time.js";
import { capital, isLimited } from "./words.js";

const MAX_SCROLLS = 100; // entries of the history whose place is kept
const REFETCH_MS = 1_000; // a screen is fetched again at most this often
const OVERVIEW_EVENTS = ["server", "quota", "cue.created", "cue.deleted", "cue.resumed"]; // may change a banner

const SCREENS = {
  overview: () => import("../screens/overview.js"),
  cues: () => import("../screens/cues.js"),
  cue: () => import("../screens/cue.js"),
  editor: () => import("../screens/editor.js"),
  runs: () => import("../screens/runs.js"),
  run: () => import("../screens/run.js"),
  workers: () => import("../screens/workers.js"),
  alerts: () => import("../screens/alerts.js"),
  plan: () => import("../screens/plan.js"),
  keys: () => import("../screens/keys.js"),
  settings: () => import("../screens/settings.js"),
  sign_in: () => import("../screens/sign_in.js"),
};
const NAV_OF = { cue: "cues", editor: "cues", run: "runs" };

const element = (id) => document.getElementById(id);

// The screen shown: `{name, key, route, module, data, ready, error, turn}`
let shown = { name: "", key: null, data: {}, turn: 0 };
// The sign-in, which covers the screen while the server knows no user: what was shown comes back as it was.
let gate = null;
let focusHeading = false;
// The scroll position of each entry of the history: Back returns to the row that was left.
const scrolls = new Map();
let entry = 0;
let entries = 0;
let refetchTimer = 0;
let overviewTimer = 0;
let loadedAt = 0;
let missedRefetch = false;
let tickTimer = 0;
let held = null; // what had the focus last

const front = () => gate ?? shown;
const isCurrent = (own) => own === shown || own === gate;
const slot = (name, key, route) => ({ name, key, route, module: null, data: {}, ready: false, error: null, turn: 0 });

function open(name, route) {
  const key = `${name}/${route.id ?? ""}`;
  if (key === shown.key) {
    // Back and Forward return to the place that was left; another page of a list begins at its top.
    shown.scroll = scrolls.get(entry) ?? (route.query.page === shown.route.query.page ? null : 0);
    shown.route = route;
    load(shown);
    return;
  }
  focusHeading = shown.key !== null;
  shown.module?.leave?.(shown.data);
  element("more").hidePopover?.();
  shown = { ...slot(name, key, route), scroll: scrolls.get(entry) ?? null };
  keyboard.register("On this screen", []);
  update();
  begin(shown);
}

async function begin(own) {
  if (!SCREENS[own.name]) return;
  try {
    own.module = await SCREENS[own.name]();
  } catch (cause) {
    own.error = { message: "This part of the page could not be loaded. There may be a new version.", status: 0, cause, reload: true };
  }
  if (!isCurrent(own)) return;
  update();
  if (own.module) await load(own);
}

async function load(own) {
  const turn = ++own.turn;
  loadedAt = Date.now();
  let patch;
  try {
    patch = await own.module?.load?.(own.data, own.route);
  } catch (error) {
    if (!isCurrent(own) || turn !== own.turn || error.status === 401) return;
    if (error.status === undefined) console.error(error);
    if (error.retryAfter) setTimeout(() => isCurrent(own) && load(own), error.retryAfter * 1000);
    update(() => (own.error = error));
    return;
  }
  if (!isCurrent(own) || turn !== own.turn || !own.module) return;
  update(() => {
    Object.assign(own.data, patch);
    own.error = null;
    const { scroll = null } = own;
    if (scroll !== null) requestAnimationFrame(() => requestAnimationFrame(() => scrollTo(0, scroll)));
    Object.assign(own, { ready: true, scroll: null });
  });
}

/** Fetches the screen again, soon: many events in a row cause one fetch. */
function refetch() {
  if (document.hidden) missedRefetch = true;
  if (refetchTimer || document.hidden || !shown.module || state.signedOut) return;
  refetchTimer = setTimeout(() => {
    refetchTimer = 0;
    load(shown);
  }, Math.max(50, loadedAt + REFETCH_MS - Date.now()));
}

/** Fetches what the banners need, soon. */
function refetchOverview() {
  if (shown.name === "overview") return;
  overviewTimer ||= setTimeout(() => {
    overviewTimer = 0;
    server.loadOverview().catch(() => {});
  }, REFETCH_MS);
}

function onEvent(type, data) {
  const { module } = shown;
  server.outdate();
  if (type === "refetch") {
    refetchOverview();
    return refetch();
  }
  if (events.matches(OVERVIEW_EVENTS, type)) refetchOverview();
  if (!module?.live || !events.matches(module.live, type)) return;
  if (module.event ? module.event(shown.data, type, data, shown.route) : true) refetch();
  else update();
}

async function onHash() {
  const route = parse(location.hash);
  const question = shown.module?.mayLeave?.(shown.data);
  if (question && `${route.screen}/${route.id ?? ""}` !== shown.key) {
    history.replaceState(history.state, "", shown.route.hash);
    const { confirm } = await import("../parts/dialog.js");
    if (!(await confirm({ title: "Leave without saving?", text: question, action: "Leave", danger: true }))) return;
    shown.module = null;
    return go(route.hash);
  }
  closeDialogs(":not([closedby])");
  scrolls.set(entry, scrollY);
  scrolls.delete(entry - MAX_SCROLLS);
  entry = history.state?.entry ?? ++entries;
  entries = Math.max(entry, entries);
  history.replaceState({ entry }, "");
  update((s) => (s.route = route));
  open(route.screen, route);
}

function head() {
  const { module, data, route, ready, name } = front();
  return { title: NAMES[name] || capital(name), ...module?.head?.(data, route, ready) };
}
const NAMES = { keys: "Keys and secrets", cue: "Cue", sign_in: "Sign in", missing: "Not found", plan: "Plan and usage", editor: "Cue" };

function body() {
  const own = front();
  const { name, module, data, route, ready, error } = own;
  if (name === "missing") return html`<div class="card empty"><p>There is no such screen.</p><a class="button" href="#/">Overview</a></div>`;
  const retry = error?.reload ? () => location.reload() : () => load(own);
  if (error?.status === 404 && NAV_OF[name]) return notice(error.message + ".", "warn", html`<a class="button" href=${"#/" + NAV_OF[name]}>All ${NAV_OF[name]}</a>`);
  const box = !error ? nothing : error.status === 422 && location.hash.includes("?") ? notice(error.message, "bad", html`<a class="button" href=${location.hash.split("?")[0]}>Clear the filters</a>`) : errorBox(error, retry);
  if (!ready || !module) return error ? box : (module?.skeleton?.() ?? bones());
  try {
    return html`${box}${module.view(data, route)}`;
  } catch (cause) {
    console.error(cause);
    return errorBox(cause, retry);
  }
}

function screen() {
  const { title, titleMore = nothing, note = nothing, actions = nothing } = head();
  return html`<div class="stack" data-screen=${front().name}>
    <header class="head"><div><div class="title"><h1 tabindex="-1">${title}</h1>${titleMore}</div>${note === nothing ? note : html`<p class="muted">${note}</p>`}</div>
    <div class="actions">${actions}</div></header>
    ${body()}</div>`;
}

function tools() {
  if (state.signedOut) return nothing;
  const word = { live: "Live", connecting: "Connecting", polling: "Not live" }[state.live];
  const zone = (event) => update(() => set("zone_view", event.target.value));
  const entries = [
    [`Theme: ${settings.theme || "auto"}`, () => update(nextTheme)],
    ["Keyboard shortcuts", keyboard.help],
    ["Settings", () => go("#/settings")],
    ["Sign out", () => act(server.signOut)],
  ];
  const email = state.user?.email || "";
  return html`<span class="live ${state.live === "live" ? "on" : ""}"><span class="sr">Connection: </span>${word}</span>
    <label><span class="sr">Show times in</span><select class="small" @change=${zone}>${[["yours", "Your time"], ["cue", "Cue's time"], ["utc", "UTC"]].map(([key, text]) => html`<option value=${key} .selected=${settings.zone_view === key}>${text}</option>`)}</select></label>
    ${menu(html`<span class="face" aria-hidden="true">${capital(email || "?")[0]}</span><span class="cut who">${email || "Account"}</span>`, entries, "account-menu")}`;
}

/** Closes what belongs to another screen. A dialog that must be answered stays, unless the sign-in covers all. */
const closeDialogs = (which) => document.querySelectorAll("dialog[open]" + which).forEach((dialog) => dialog.close());

function coverOrUncover() {
  if (state.signedOut && !gate && shown.name !== "sign_in") {
    closeDialogs("");
    gate = slot("sign_in", "sign_in/", { ...shown.route, id: null });
    begin(gate);
  } else if (!state.signedOut && gate) {
    gate = null;
    focusHeading = true;
    if (shown.module) load(shown);
  }
}

let raised = null;

/** Toasts lie in the top layer, above an open dialog; a new one comes on top again. */
function raiseToasts() {
  const newest = state.toasts.at(-1) ?? null;
  if (newest === raised) return;
  raised = newest;
  element("toasts").hidePopover?.();
  if (newest) element("toasts").showPopover?.();
}

function draw() {
  coverOrUncover();
  document.body.classList.toggle("signed-out", front().name === "sign_in");
  render(tools(), element("tools"));
  render(state.signedOut ? nothing : banners(), element("banners"));
  render(screen(), element("screen"));
  render(toasts(), element("toasts"));
  raiseToasts();
  keyboard.register("On this screen", shown.ready && !state.signedOut ? shown.module?.shortcuts?.(shown.data, shown.route) : []);
  const here = NAV_OF[shown.name] || shown.name;
  const { executions, cues } = state.overview?.usage || {};
  document.querySelector("[data-nav=plan]").hidden = !isLimited(executions?.limit) && !isLimited(cues?.limit);
  for (const entry of document.querySelectorAll("[data-nav]")) {
    if (entry.dataset.nav === here) entry.setAttribute("aria-current", "page");
    else entry.removeAttribute("aria-current");
  }
  const { title, tab } = head();
  document.title = `${tab || title} · cued`;
  if (focusHeading) {
    focusHeading = false;
    held = null;
    scrollTo(0, 0);
    document.querySelector("h1")?.focus({ preventScroll: true });
    announce(title);
  }
  // What had the focus is gone, such as the row that was deleted: the next Tab must not begin at the top of the page.
  if (held && !held.isConnected && document.activeElement === document.body) document.querySelector("h1")?.focus({ preventScroll: true });
  clearTimeout(tickTimer);
  const next = takeNextTick();
  if (document.hidden) return;
  if (state.waitUntil > Date.now()) tickTimer = setTimeout(update, 1_000);
  else if (!isFrozen()) tickTimer = setTimeout(update, next);
}

function start() {
  for (const id of ["screen", "tools", "banners"]) element(id).textContent = "";
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    Object.assign(element("main"), { tabIndex: -1 }).focus();
  });
  history.scrollRestoration = "manual";
  onRender(draw);
  addEventListener("focusin", (event) => (held = event.target));
  keyboard.register("Everywhere", [
    { keys: "/", label: "Search", run: () => document.querySelector("[data-search]")?.focus() ?? go("#/cues?focus=search") },
    { keys: "z", label: "Times: yours, the cue's, UTC", run: () => update(() => set("zone_view", { yours: "cue", cue: "utc", utc: "yours" }[settings.zone_view])) },
    { keys: "t", label: "Theme: auto, light, dark", run: () => update(nextTheme) },
    { keys: "?", label: "This help", run: keyboard.help },
  ]);
  keyboard.start();
  addEventListener("hashchange", onHash);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    if (missedRefetch) ((missedRefetch = false), refetch());
    update();
  });
  addEventListener("beforeunload", (event) => shown.module?.mayLeave?.(shown.data) && event.preventDefault());
  server.joinTabs();
  server.onSignedIn(() => shown.name === "sign_in" && go("#/" + shown.route.hash.split("/").slice(3).join("/"), { replace: true }));
  events.subscribe(["execution", "cue", "missed", "alert", "worker", "quota", "server"], onEvent);
  onHash();
  if (shown.name !== "sign_in") server.begin();
  events.start(server.BUILD);
}

start();
