// The last runs of a cue as a row of marks: one path per state, never an element per run.
import { html, svg } from "../lit/lit-html.js";
import { stateOf, stateOfLetter } from "../app/words.js";

const STEP = 6; // width of a mark with its gap
const WIDE = 4;
const HEIGHT = 20;

/**
 * Paths of a strip by letter: `{s: "M…", f: "M…"}`. Each state has a form of its own, so that colour is never alone:
 * success a full bar, failed a bar with a notch, retrying and running half bars, pending a low one, missed a dashed
 * outline. Newest last, at the right end of `slots`. Pure.
 */
export function stripPaths(statuses, slots = statuses.length) {
  const paths = {};
  const letters = [...statuses].slice(-slots);
  letters.forEach((letter, i) => {
    const x = (slots - letters.length + i) * STEP;
    paths[letter] = (paths[letter] || "") + mark(letter, x);
  });
  return paths;
}

const bar = (x, top, bottom = HEIGHT) => `M${x} ${top}h${WIDE}V${bottom}h${-WIDE}z`;

function mark(letter, x) {
  if (letter === "s") return bar(x, 4);
  if (letter === "f") return bar(x, 0, 8) + bar(x, 11);
  if (letter === "r") return bar(x, 4, 10) + bar(x, 14);
  if (letter === "d") return bar(x, 10);
  if (letter === "m") return `M${x + 0.5} 4.5h${WIDE - 1}v15h${1 - WIDE}z`;
  return bar(x, 16);
}

/** "last 30 runs: 28 succeeded, 2 failed; the newest failed" */
export function stripText(statuses) {
  if (!statuses) return "no runs yet";
  const counts = new Map();
  for (const letter of statuses) counts.set(letter, (counts.get(letter) || 0) + 1);
  const words = [...counts].map(([letter, count]) => `${count} ${stateOf(stateOfLetter(letter)).word.toLowerCase()}`);
  const newest = stateOf(stateOfLetter(statuses.at(-1))).word.toLowerCase();
  return `last ${statuses.length === 1 ? "run" : statuses.length + " runs"}: ${words.join(", ")}; newest ${newest}`;
}

/** Strip of `recent.statuses` ("ssfsr…", newest last) with room for `slots` runs. */
export function strip(statuses, slots = 30) {
  const paths = Object.entries(stripPaths(statuses, slots));
  const width = slots * STEP - (STEP - WIDE);
  return html`<svg class="strip" viewBox="0 0 ${width} ${HEIGHT}" width=${width} height=${HEIGHT} preserveAspectRatio="xMaxYMid slice" role="img" aria-label=${stripText(statuses)}>${paths.map(([letter, path]) => svg`<path class="s-${letter}" d=${path}></path>`)}</svg>`;
}
