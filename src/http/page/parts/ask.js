// Dialogs, whose code is loaded when the first one is opened: see dialog.js.
import { act, toast } from "./feedback.js";

let isLoading = false;

/** Opens nothing while the first one is loading. */
const dialog = (name) => async (...given) => {
  if (isLoading) return undefined;
  isLoading = true;
  const failed = "This could not be loaded. There may be a new version: load the page again.";
  const dialogs = await import("./dialog.js").catch(() => void toast(failed));
  isLoading = false;
  return dialogs?.[name](...given);
};

export const openDialog = dialog("openDialog");
export const confirm = dialog("confirm");
export const prompt = dialog("prompt");
export const showSecret = dialog("showSecret");

/** Asks, then runs what was asked for as `act` does; resolves to nothing if it was not done. */
export const confirmed = async (question, run, done) =>
  (await confirm({ danger: true, ...question })) && act(run, done);
