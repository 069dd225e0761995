// Backups in the folder of the server: made, listed, downloaded, deleted.
import { busily, button, bytes, card, confirmed, del, duration, get, html, noRows, post, reload,
  reloadAfter, toast, toastError, when } from "../../kit.js";
import { table } from "../../parts/table.js";

const PATH = "v1/admin/backups";
const PATIENCE_MS = 600_000; // the response comes when the copy is complete
const pathOf = (name) => `${PATH}/${encodeURIComponent(name)}`;

export async function load() {
  const [{ backup_dir: folder }, { backups }] =
    await Promise.all([get("v1/admin/settings"), get(PATH)]);
  return { folder, backups };
}

export const actions = (data) => !data.folder ? "" : button(
  data.busy ? "Backing up…" : "Back up now", () => make(data), "primary",
  { id: "make-backup", off: data.busy });

export const shortcuts = (data) => (data.folder ? [["n", "Back up now", () => make(data)]] : []);

export function view({ folder, backups }) {
  if (!folder) {
    return html`<p class="card pad" id="no-folder">To make backups here, start the server with
      <code class="flag">--backup-dir FOLDER</code>.</p>`;
  }
  const download = (name) => html`<a class="button" href=${pathOf(name)} download=${name}
    aria-label=${`Download ${name}`}>Download</a>`;
  const footer = html`<footer class="muted small"><p class="wrap">In <code>${folder}</code> on the
    server. A backup contains all secrets: store it as you store a password. <code>cued
    restore</code> brings it back.</p></footer>`;
  return card("backups", "Backups", "", html`${backups.length ? table("Backups", [
    ["Name", ({ name }) => html`<span class="name">${name}</span>`, "wide"],
    ["Size", (backup) => bytes(backup.bytes), "num right short"],
    ["Created", (backup) => when(backup.created_at), "short"],
    ["", ({ name }) => html`${download(name)} ${button("Delete", () => remove(name), "plain danger",
      { label: `Delete ${name}` })}`, "tight right"],
  ], backups, { key: ({ name }) => name })
    : noRows("No backup yet.")}${footer}`);
}

const make = (data) => busily(data, async () => {
  toast(made(await post(PATH, {}, { patience: PATIENCE_MS })));
  reload();
}, toastError);

/** "Backed up to cued-2026.db: 3.8 MiB in 0.4 s" Pure. */
export const made = ({ name, bytes: size, took_ms: ms }) =>
  `Backed up to ${name}: ${bytes(size)} in ${duration(ms)}`;

const remove = (name) => reloadAfter(confirmed(`Delete ${name}?`, "Delete",
  "The file is deleted from the folder of the server. You cannot undo this.",
  () => del(pathOf(name)), `Deleted ${name}`));
