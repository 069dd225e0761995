// The dialog that moves the clock of a test. Loaded when it is asked for.
import { prompt } from "../parts/feedback.js";
import { serverNow } from "./time.js";

export const askTo = (move) => prompt({
  title: "Move the test clock", text: "Everything due until then fires, in order.", action: "Move",
  fields: [{
    name: "to", label: "To (UTC)", value: new Date(serverNow()).toISOString().slice(0, 16),
    type: "datetime-local", required: true,
  }],
  send: ({ to }) => move({ to: to + (to.length < 17 ? ":00Z" : "Z") }),
});
