// The settings of this browser: one object under one key of localStorage, which theme.js reads before the first paint.
const KEY = "cued";

export const DEFAULTS = {
  theme: "", // "" = as the system, "light", "dark"
  density: "", // "" = comfortable, "compact"
  zone: "", // "" = the browser's
  hour12: false,
  shortcuts: true,
  zone_view: "yours", // "yours" | "cue" | "utc"
  recent_zones: [],
};

function read() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(KEY)) };
  } catch {
    return { ...DEFAULTS };
  }
}

export const settings = read();

export function set(name, value) {
  settings[name] = value;
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    // A browser that keeps nothing still has the setting until the tab closes.
  }
  if (name === "theme" || name === "density") {
    if (value) document.documentElement.dataset[name] = value;
    else delete document.documentElement.dataset[name];
  }
}

export const THEMES = ["", "light", "dark"];

export function nextTheme() {
  set("theme", THEMES[(THEMES.indexOf(settings.theme) + 1) % THEMES.length]);
}
