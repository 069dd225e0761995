// Operator: the users of this server and who may register, its backups, its health and warnings.
import { button, confirmed, empty, html, loadOverview, loadUser, panel, plural, post, reloadAfter,
  state, tabs, when } from "../kit.js";
import * as backups from "./admin/backups.js";
import * as health from "./admin/health.js";
import * as users from "./admin/users.js";

const PARTS = { __proto__: null, users, backups, health };
const LABELS = [["users", "Users"], ["backups", "Backups"], ["health", "Health"]];
const partOf = ({ id }) => PARTS[id ?? "users"];

export const live = ["server"];

export async function load(data, route) {
  if (!(await loadUser()).is_operator) return { isAllowed: false };
  const [found] = await Promise.all([partOf(route).load(data, route), loadOverview()]);
  return { isAllowed: true, ...found };
}

export const head = (data, route) => ({
  title: "Operator", tab: `${LABELS.find(([id]) => id === (route.id ?? "users"))[1]} · Operator`,
  actions: data.isAllowed ? partOf(route).actions?.(data) : "",
});

export const shortcuts = (data, route) => (data.isAllowed && partOf(route).shortcuts?.(data)) || [];

export function view(data, route) {
  if (!data.isAllowed) {
    return empty("Only for operators", `This screen is for the operators of this server, and your
      account is not one of them.`);
  }
  const list = LABELS.map(([id, text]) => ({
    text, href: id === "users" ? "#/admin" : "#/admin/" + id,
    isCurrent: PARTS[id] === partOf(route),
  }));
  return html`${held()}${tabs("Operator", list)}${partOf(route).view(data, route)}`;
}

export const leave = (data) => clearTimeout(data.searching);

function held() {
  const since = state.overview?.server.held_since;
  return !since ? "" : panel("held", "Copy on hold",
    button("Promote", promote, "primary danger", { id: "promote" }), html`<p>This server runs on a
      copy, on hold since ${when(since, { only: "absolute", full: true })}. Nothing fires, and no
      mail or notification is sent.</p><p class="muted">Promote it if it replaces the original
      server. To try out a backup, leave it on hold.</p>`);
}

const promote = () => reloadAfter(confirmed("Promote this copy?", "Promote", `Its cues fire from
  now on, and what fell due while it was on hold runs now, as far as each cue catches up. If the
  original server still runs, both call each URL. You cannot undo this.`,
  () => post("v1/admin/promote"), promoted));

/** What a promotion sets going, as a sentence. Pure. */
export function promoted({ overdue: { cues = 0, executions: runs = 0 } = {} }) {
  const due = [cues && plural(cues, "cue"), runs && plural(runs, "run")].filter(Boolean);
  return `Promoted. ${due.length ? `${due.join(" and ")} ${cues + runs === 1 ? "is" : "are"} catching up.` : "Nothing is overdue."}`;
}
