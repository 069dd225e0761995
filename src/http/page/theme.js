// Before the first paint: sets the theme and preloads the modules of the addressed screen, or of the
// sign-in that covers it.
let isKnown = false;
try {
  isKnown = !!localStorage.getItem("cued account " + new URL(".", location).pathname);
  const kept = JSON.parse(localStorage.getItem("cued")) || {};
  const { dataset } = document.documentElement;
  for (const name of ["theme", "density"]) if (kept[name]) dataset[name] = kept[name];
} catch {}

/** The module of a screen: as `parse` of app/router.js finds it. */
function screenOf([first, second, third]) {
  if (first === "cues" && second) return second === "new" || third === "edit" ? "editor" : "cue";
  if (first === "runs" && second) return "run";
  return { __proto__: null, "": "overview", account: second, enter: "sign_in" }[first] ?? first;
}

{
  const { src, dataset } = document.currentScript;
  const path = location.hash.replace(/^#?\/?/, "").split("?")[0].split("/");
  const name = isKnown ? screenOf(path) : "sign_in";
  // `NAME:FILE FILE;` for each screen, of the build script.
  const screens = dataset.screens.split(";").map((text) => text.split(":"));
  const [, files = ""] = screens.find(([screen]) => screen === name) ?? [];
  for (const file of files.split(" ").filter(Boolean)) {
    const link = { rel: "modulepreload", href: new URL(file, src).href };
    document.head.append(Object.assign(document.createElement("link"), link));
  }
}
