// Users of the server: found, added, changed, disabled; who may register; requests for plans.
import { act, ago, badge, button, card, confirmed, copyLine, get, html, loadInfo, menu, muted,
  noRows, number, openDialog, panel, patch, post, prompt, reload, reloadAfter, showSecret, state,
  toast, when } from "../../kit.js";
import { segments } from "../../parts/form.js";
import { offsetOf, pagedTable, searchField } from "../../parts/table.js";

const PER_PAGE = 50;
const PATH = "v1/admin/users";
const SETTINGS = "v1/admin/settings";
const pathOf = ({ id }) => `${PATH}/${encodeURIComponent(id)}`;
const hasPlans = () => state.info?.limits !== false;
const isYou = ({ id }) => id === state.user?.id;

export async function load(data, { query }) {
  const page = { q: query.q, limit: PER_PAGE, offset: offsetOf(query, PER_PAGE) || null };
  const [{ users, total }, server, { requests }] = await Promise.all([
    get(PATH, page), get(SETTINGS), get("v1/admin/billing"), state.info ?? loadInfo(),
  ]);
  return { users, total, server, requests };
}

export const actions = () => button("Add a user", add, "primary", { id: "add-user" });
export const shortcuts = () => [["n", "Add a user", add]];

export const view = (data, route) => [
  data.requests.length ? plans(data.requests) : "", list(data, route), registration(data.server),
];

function list(data, route) {
  const { users, total } = data;
  const columns = [
    ["Address", (user) => html`<span class="name wrap">${user.email}</span> ${
      isYou(user) ? html`<span class="tag">you</span> ` : ""}${
      user.is_operator ? html`<span class="tag">operator</span>` : ""}`],
    hasPlans() && ["Plan", ({ plan }) => plan, "tight short"],
    ["Active cues", (user) => number(user.active_cues), "num right short"],
    ["Runs this month", (user) => number(user.executions_this_month), "num right short"],
    ["Joined", (user) => ago(user.created_at), "short"],
    ["State", (user) => badge(stateOf(user, state.info)), "tight"],
    ["", actionsOf, "tight right row-actions"],
  ].filter(Boolean);
  return html`<section class="card" id="users"><header>${
    searchField(data, route.query, "Search by address")}</header>${users.length
    ? pagedTable(route, "Users", columns, users, { total, perPage: PER_PAGE, noun: "users" })
    : noRows("No user matches.")}</section>`;
}

/** State of a user; an address that is not confirmed bounds an account only under limits. Pure. */
export const stateOf = (user, info) => user.is_disabled ? "disabled"
  : !user.is_confirmed && info?.limits && !info.dev ? "unconfirmed" : "active";

const actionsOf = (user) => menu("⋯", [
  !user.is_disabled && ["Create a sign-in link", () => makeLink(user)],
  hasPlans() && ["Change the plan", () => changePlan(user)],
  // Who takes this from the own account cannot give it back.
  !isYou(user) && (user.is_operator ? ["Remove as operator", () => setOperator(user, false)]
    : ["Make operator", () => setOperator(user, true)]),
  !isYou(user) && (user.is_disabled ? ["Enable", () => enable(user)]
    : ["Disable", () => disable(user), "danger"]),
].filter(Boolean), "menu-" + user.id, { name: `Actions for ${user.email}` });

const PLAN = { name: "plan", label: "Plan", help: "Such as free, pro or scale." };

async function add() {
  const user = await prompt({
    title: "Add a user", action: "Add", text: "The API key is shown in the next step.",
    fields: [{ name: "email", label: "Email address", type: "email", required: true },
      ...(hasPlans() ? [{ ...PLAN, label: "Plan (optional)" }] : [])],
    send: ({ email, plan }) => post(PATH, { email, plan: plan?.trim() || undefined }),
  });
  if (!user) return;
  await showSecret(`The API key of ${user.email}`, `Copy it now: you cannot see it again.
    Instead of the key you can give the user a sign-in link.`, user.api_key);
  toast(`Added ${user.email}`);
  reload();
}

async function makeLink(user) {
  const made = await act(() => post(pathOf(user) + "/link"));
  if (!made) return;
  await openDialog((close) => html`<div class="body"><h2>Sign-in link for ${user.email}</h2>
    <p>Whoever opens it is signed in to this account. It works once, until ${
      when(made.expires_at, { only: "absolute" })}.</p>${copyLine(made.url)}<div class="actions">${
    button("Close", () => close(), "primary")}</div></div>`);
}

const changePlan = (user) => reloadAfter(prompt({
  title: `Plan of ${user.email}`, action: "Change",
  text: "If the new plan allows fewer active cues, the newest ones are paused.",
  fields: [{ ...PLAN, value: user.plan, required: true }],
  send: ({ plan }) => patch(pathOf(user), { plan: plan.trim() }),
  done: ({ plan }) => `${user.email} is on plan ${plan}`,
}));

const change = (user, fields) => () => patch(pathOf(user), fields);

function setOperator(user, isOperator) {
  const [title, action, text, done] = isOperator
    ? [`Make ${user.email} an operator?`, "Make operator", `An operator can sign in as every user,
        read all their data in backups, and change this server.`, "is an operator"]
    : [`Remove ${user.email} as operator?`, "Remove", `The account stays, and no longer has this
        screen.`, "is no longer an operator"];
  const run = change(user, { is_operator: isOperator });
  return reloadAfter(confirmed(title, action, text, run, `${user.email} ${done}`));
}

const disable = (user) => reloadAfter(confirmed(`Disable ${user.email}?`, "Disable", `Its API keys
  and sessions stop working at once, its cues are paused, and its waiting runs fail. Nothing is
  deleted. If you enable it again, its cues stay paused until the user resumes them.`,
  change(user, { is_disabled: true }), `Disabled ${user.email}`));

const enable = (user) => reloadAfter(act(change(user, { is_disabled: false }),
  `Enabled ${user.email}. Its cues stay paused.`));

const WHO = {
  __proto__: null,
  open: ["Anyone", "Anyone who reaches this server can create an account."],
  closed: ["Nobody", "Only operators add accounts."],
};

function registration({ registration, is_registration_fixed: isFixed }) {
  const now = WHO[registration] ? registration : "closed"; // "first-user", after the first one
  const choose = (value) => {
    if (value === now) return;
    const run = () => patch(SETTINGS, { registration: value }).then(loadInfo);
    const done = "Registration updated";
    reloadAfter(value !== "open" ? act(run, done)
      : confirmed("Let anyone create an account?", "Open registration", WHO.open[1], run, done));
  };
  const choices = Object.entries(WHO).map(([value, [label]]) => [value, label]);
  return panel("registration", "Who may create an account",
    isFixed ? muted(WHO[now][0]) : segments("Registration", now, choices, choose),
    html`<p>${WHO[now][1]}</p>`, !isFixed ? "" : html`<p class="muted">The server was started with
      <code class="flag">${state.info?.dev && now === "open" ? "--dev" : "--registration"}</code>.
      Without it, you can change this here.</p>`);
}

function plans(requests) {
  const decide = (request, verb, done) => () => reloadAfter(act(
    () => post(`v1/admin/billing/${encodeURIComponent(request.id)}/${verb}`),
    `${done} ${request.email}`));
  return card("plan-requests", "Plan requests", "", html`<ul class="lines">${requests.map((one) =>
    html`<li data-row=${one.id}><p><b class="wrap">${one.email}</b>, on plan ${one.current_plan},
      asks for ${one.plan} (${one.interval}). ${muted(ago(one.requested_at))}</p><span
      class="row">${button("Decline", decide(one, "decline", "Declined the request of"))}${
      button("Approve", decide(one, "approve", "Approved the request of"), "primary")}</span></li>`)
  }</ul>`);
}
