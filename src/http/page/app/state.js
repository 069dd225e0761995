// The state of the page: one plain object. `update` changes it and asks for one render per animation frame.
export const state = {
  route: null,
  data: {}, // of the screen shown
  user: null, // GET /v1/auth/me
  info: null, // GET /v1/info
  overview: null, // GET /v1/overview, shared by the overview screen and the banners
  signedOut: false,
  live: "connecting", // "connecting" | "live" | "polling"
  newBuild: false,
  readOnly: false, // the database cannot be written
  waitUntil: 0, // the server asked to wait (429), in ms of this device
  toasts: [],
};

let draw = () => {};
let asked = false;

export function onRender(fn) {
  draw = fn;
}

export function update(change) {
  if (change) change(state);
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    draw();
  });
}
