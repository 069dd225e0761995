// The frame of the page: shows the screen of the address, loads it, keeps it fresh.
import { html, render } from "../lit/lit-html.js";
import { act, announce, confirm, showShortcuts, toasts } from "../parts/feedback.js";
import { anchor, bones, empty, errorBox, menu, note, select, takeNextTick } from
  "../parts/pieces.js";
import { account } from "./api.js";
import { banners } from "./banners.js";
import * as events from "./events.js";
import * as keyboard from "./keyboard.js";
import { go, parse } from "./router.js";
import * as server from "./server.js";
import { ZONES, next, nextTheme, onRender, set, settings, state, update } from "./state.js";
import { isFrozen } from "./time.js";
import { capital, isLimited } from "./words.js";

const REFETCH_MS = 1_000; // between two fetches of a screen, at least
const BANNER_EVENTS = ["server", "quota", "cue.created", "cue.deleted", "cue.resumed"];

// Module of a screen, title, entry of the navigation if another one, key after "g", address
const SCREENS = {
  __proto__: null,
  overview: [() => import("../screens/overview.js"), "Overview", "", "o", "#/"],
  cues: [() => import("../screens/cues.js"), "Cues", "", "c", "#/cues"],
  cue: [() => import("../screens/cue.js"), "Cue", "cues"],
  editor: [() => import("../screens/editor.js"), "Cue", "cues"],
  runs: [() => import("../screens/runs.js"), "Runs", "", "r", "#/runs"],
  run: [() => import("../screens/run.js"), "Run", "runs"],
  day: [() => import("../screens/day.js"), "Day", "", "d", "#/day"],
  workers: [() => import("../screens/workers.js"), "Workers", "", "w", "#/workers"],
  alerts: [() => import("../screens/alerts.js"), "Alerts", "", "a", "#/alerts"],
  notifications: [() => import("../screens/notifications.js"), "Notifications", "", "h", "#/notifications"],
  plan: [() => import("../screens/plan.js"), "Usage", "", "u", "#/account/plan"],
  keys: [() => import("../screens/keys.js"), "Keys and secrets", "", "k", "#/account/keys"],
  settings: [() => import("../screens/settings.js"), "Settings", "", "s", "#/settings"],
  admin: [() => import("../screens/admin.js"), "Operator"],
  sign_in: [() => import("../screens/sign_in.js"), "Sign in"],
  missing: [async () => null, "Not found"],
};
const navOf = (name) => SCREENS[name][2];
const element = (id) => document.getElementById(id);
const slot = (name, key, route) =>
  ({ name, key, route, module: null, data: {}, ready: false, error: null, turn: 0, scroll: null });

let shown = slot("missing", null, null);
let gate = null; // the sign-in, which covers the screen while the server knows no user
let focusHeading = false;
let wantsSearch = false; // once the list of cues is there
const scrolls = new Map(); // of each entry of the history: Back returns to the row that was left
let entry = 0;
let entries = 0;
let refetchTimer = 0;
let overviewTimer = 0;
let loadedAt = 0;
let missedRefetch = false;
let tickTimer = 0;
let focused = null; // what had the focus last
let newestToast = null;

const front = () => gate ?? shown;
const isCurrent = (own) => own === shown || own === gate;
const keyOf = ({ screen, id }) => `${screen}/${id ?? ""}`;

function open(route) {
  const key = keyOf(route);
  if (key === shown.key) {
    // Another page of a list begins at its top.
    const isSamePage = route.query.page === shown.route.query.page;
    Object.assign(shown, { route, scroll: scrolls.get(entry) ?? (isSamePage ? null : 0) });
    return void load(shown);
  }
  focusHeading = shown.key !== null;
  wantsSearch &&= route.screen === "cues";
  shown.module?.leave?.(shown.data);
  element("more").hidePopover?.();
  shown = { ...slot(route.screen, key, route), scroll: scrolls.get(entry) ?? null };
  update();
  begin(shown);
}

async function begin(own) {
  // What the sign-in covers is loaded after it.
  if (state.signedOut && own.name !== "sign_in") return;
  try {
    own.module = await SCREENS[own.name][0]();
  } catch (cause) {
    const away = await server.loadInfo().then(() => null, (error) => error);
    const message = `This part of the page could not be loaded. ${
      away?.message ?? "There may be a new version."}`;
    own.error = { message, status: 0, cause, reload: true, isAway: away?.status === 0 };
  }
  if (!isCurrent(own)) return;
  update();
  if (own.module) await load(own);
}

async function load(own) {
  const turn = ++own.turn;
  const isOld = () => !isCurrent(own) || turn !== own.turn;
  loadedAt = Date.now();
  try {
    const patch = await own.module?.load?.(own.data, own.route);
    if (isOld() || !own.module) return;
    const { scroll } = own;
    const restore = () => scrollTo(0, scroll);
    if (scroll !== null) requestAnimationFrame(() => requestAnimationFrame(restore));
    Object.assign(own.data, patch);
    Object.assign(own, { error: null, ready: true, scroll: null });
  } catch (error) {
    if (isOld() || error.status === 401) return;
    if (error.status === undefined) console.error(error);
    if (error.retryAfter) setTimeout(() => isCurrent(own) && load(own), error.retryAfter * 1000);
    own.error = error;
  }
  update();
}

/** Fetches the screen again, soon: many events in a row cause one fetch. */
function refetch() {
  missedRefetch = document.hidden;
  if (refetchTimer || document.hidden || !shown.module || state.signedOut) return;
  refetchTimer = setTimeout(() => {
    refetchTimer = 0;
    load(shown);
  }, Math.max(50, loadedAt + REFETCH_MS - Date.now()));
}

function refetchBanners() {
  if (shown.name === "overview") return;
  overviewTimer ||= setTimeout(() => {
    overviewTimer = 0;
    server.loadOverview().catch(() => {});
  }, REFETCH_MS);
}

function onEvent(type, data) {
  const { module, route } = shown;
  const isAll = type === "refetch";
  // What a browser failed to load it may not ask for again, and the server may have a new version.
  if (front().error?.isAway && (isAll || type === "hello")) {
    server.loadInfo().then(() => location.reload(), () => {});
  }
  if (type === "alert.created" && shown.name !== "alerts") update((s) => s.unread++);
  server.outdate();
  if (isAll || events.matches(BANNER_EVENTS, type)) refetchBanners();
  if (!isAll && !events.matches(module?.live ?? [], type)) return;
  if (isAll || (module.event?.(shown.data, type, data, route) ?? true)) refetch();
  else update();
}

const mayLeave = () => shown.module?.mayLeave?.(shown.data);

async function onHash() {
  const route = parse(location.hash);
  const text = mayLeave();
  if (text && keyOf(route) !== shown.key) {
    history.replaceState(history.state, "", shown.route.hash);
    const title = "Leave without saving?";
    if (!(await confirm({ title, text, action: "Leave", danger: true }))) return;
    shown.module = null;
    return go(route.hash);
  }
  closeDialogs(":not([closedby])"); // one that must be answered stays
  scrolls.set(entry, scrollY);
  entry = history.state?.entry ?? ++entries;
  entries = Math.max(entry, entries);
  history.replaceState({ entry }, "");
  update((s) => (s.route = route));
  open(route);
}

function body() {
  const own = front();
  const { name, module, data, route, ready, error } = own;
  if (name === "missing") {
    return empty("This screen does not exist", "", anchor("#/", "Overview", "button"));
  }
  const retry = error?.reload ? () => location.reload() : () => load(own);
  const nav = navOf(name);
  if (error?.status === 404 && nav) {
    return note(error.message + ".", "warn", anchor("#/" + nav, `All ${nav}`, "button"));
  }
  const [path, filters] = location.hash.split("?");
  const box = !error ? "" : error.status === 422 && filters !== undefined
    ? note(error.message, "bad", anchor(path, "Clear the filters", "button"))
    : errorBox(error, retry);
  if (!ready || !module) return error ? box : bones();
  try {
    return html`${box}${module.view(data, route)}`;
  } catch (cause) {
    console.error(cause);
    return errorBox(cause, retry);
  }
}

const screen = ({ title, titleMore, note, actions }) => html`<div class="stack"
  data-screen=${front().name}><header class="head"><div>
    <div class="title"><h1 tabindex="-1">${title}</h1>${titleMore}</div>${
      note ? html`<p class="muted">${note}</p>` : ""}</div>
    <div class="actions">${actions}</div></header>${body()}</div>`;

function tools() {
  if (state.signedOut) return "";
  const email = state.user?.email || "";
  return html`<span class="live ${state.live === "live" ? "on" : ""}"><span class="sr">Connection:
    </span>${{ live: "Live", connecting: "Connecting", polling: "Not live" }[state.live]}</span>${
    select("zone-view", "Show times in", settings.zone_view, ZONES,
      (zone) => update(() => set("zone_view", zone)))}${
    menu(html`<span class="face" aria-hidden="true">${capital(email || "?")[0]}</span><span
      class="cut who">${email || "Account"}</span>`, [
      [`Theme: ${settings.theme || "auto"}`, nextTheme], ["Keyboard shortcuts", showShortcuts],
      ["Documentation", () => open("docs")], ["Settings", () => go("#/settings")], ["Sign out", () => act(server.signOut)],
    ], "account-menu")}`;
}

const closeDialogs = (which) =>
  document.querySelectorAll("dialog[open]" + which).forEach((dialog) => dialog.close());

function coverOrUncover() {
  if (state.signedOut && !gate && shown.name !== "sign_in") {
    closeDialogs("");
    gate = slot("sign_in", "sign_in/", { ...shown.route, id: null });
    begin(gate);
  } else if (!state.signedOut && gate) {
    gate = null;
    focusHeading = true;
    if (shown.module) load(shown);
    else begin(shown);
  }
}

/** Toasts lie in the top layer, above an open dialog; a new one comes on top again. */
function raiseToasts() {
  const newest = state.toasts.at(-1) ?? null;
  if (newest === newestToast) return;
  newestToast = newest;
  element("toasts").hidePopover?.();
  if (newest) element("toasts").showPopover?.();
}

function drawNavigation() {
  const here = navOf(shown.name) || shown.name;
  const { executions, cues } = state.overview?.usage || {};
  const hasPlan = isLimited(executions?.limit) || isLimited(cues?.limit);
  document.querySelector("[data-nav=plan]").hidden = !hasPlan;
  document.querySelector("[data-nav=admin]").hidden = !state.user?.is_operator;
  const { unread } = state;
  document.querySelector("[data-nav=alerts] span").dataset.unread =
    !unread ? "" : unread > 99 ? "99+" : unread;
  for (const entry of document.querySelectorAll("[data-nav]")) {
    entry.ariaCurrent = entry.dataset.nav === here ? "page" : null;
  }
}

const focusTitle = () => document.querySelector("h1")?.focus({ preventScroll: true });

function draw() {
  coverOrUncover();
  const { name, ...own } = front();
  document.body.classList.toggle("signed-out", name === "sign_in");
  const heading =
    { title: SCREENS[name][1], ...own.module?.head?.(own.data, own.route, own.ready) };
  const parts = {
    tools: tools(), banners: state.signedOut ? "" : banners(), screen: screen(heading),
    toasts: toasts(),
  };
  for (const [id, part] of Object.entries(parts)) render(part, element(id));
  raiseToasts();
  const { module, data, route, ready } = shown;
  const hasKeys = ready && !state.signedOut;
  keyboard.register("On this screen", hasKeys ? module?.shortcuts?.(data, route) : []);
  drawNavigation();
  document.title = `${heading.tab || heading.title} · cued`;
  if (focusHeading) {
    focusHeading = false;
    focused = null;
    scrollTo(0, 0);
    focusTitle();
    announce(heading.title);
  }
  if (wantsSearch) search();
  // Where what had the focus is gone, as a deleted row, the next Tab must not begin at the top.
  if (focused?.isConnected === false && document.activeElement === document.body) focusTitle();
  clearTimeout(tickTimer);
  const tick = takeNextTick();
  const isWaiting = state.waitUntil > Date.now();
  if (document.hidden || (isFrozen() && !isWaiting)) return;
  tickTimer = setTimeout(update, isWaiting ? 1_000 : tick);
}

function search() {
  const field = document.querySelector("[data-search]");
  wantsSearch = !field;
  if (field) field.focus();
  else if (shown.name !== "cues") go("#/cues");
}

function start() {
  for (const id of ["screen", "tools", "banners"]) element(id).textContent = "";
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    Object.assign(element("main"), { tabIndex: -1 }).focus();
  });
  history.scrollRestoration = "manual";
  onRender(draw);
  addEventListener("focusin", (event) => (focused = event.target));
  keyboard.register("Everywhere", [
    ["/", "Search", search],
    ["z", "Times: yours, the cue's, UTC", () => next("zone_view", ZONES.map(([zone]) => zone))],
    ["t", "Theme: auto, light, dark", nextTheme],
    ["?", "Show this help", showShortcuts],
  ]);
  keyboard.register("Go to", Object.values(SCREENS).filter(([, , , key]) => key).map(
    ([, title, , key, hash]) => ["g " + key, title, () => go(hash)]));
  keyboard.start();
  addEventListener("hashchange", onHash);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    if (missedRefetch) refetch();
    update();
  });
  addEventListener("beforeunload", (event) => mayLeave() && event.preventDefault());
  server.joinTabs();
  // The address behind `#/enter/TOKEN` is where the sign-in leads.
  const target = () => "#/" + shown.route.hash.split("/").slice(3).join("/");
  server.onSignedIn(() => shown.name === "sign_in" && go(target(), { replace: true }));
  state.signedOut = !account(); // the API then takes no session either
  onHash();
  if (shown.name !== "sign_in" && !state.signedOut) server.begin();
  events.start(onEvent);
}

start();
