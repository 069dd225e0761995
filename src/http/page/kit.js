// What most screens are made of, to import from one place.
export { html, nothing, svg } from "./lit/lit-html.js";
export * from "./app/api.js";
export * from "./app/notified.js";
export * from "./app/router.js";
export * from "./app/server.js";
export * from "./app/state.js";
export * from "./app/time.js";
export * from "./app/words.js";
export * from "./parts/feedback.js";
export * from "./parts/pieces.js";
export * from "./parts/text.js";
