// Charts: bars of runs, lines, the last runs of a cue. One path per series.
import { html, svg } from "../lit/lit-html.js";
import { go } from "../app/router.js";
import { stateOf, stateOfLetter } from "../app/words.js";

const BARS = { step: 20, wide: 14, height: 100 };

/** Height that shows `value` of `most`: at least 3 where there is something to see. Pure. */
export const scale = (value, most, height) =>
  value > 0 ? Math.max(3, (value / (most || 1)) * height) : 0;

const round = (value) => Math.round(value * 10) / 10;

/** Paths `{good, bad, rest, most}` of bars of `[{succeeded, failed}]`, failed on top. Pure. */
export function barPaths(points) {
  const { step, wide, height } = BARS;
  const most = Math.max(1, ...points.map(({ succeeded, failed }) => succeeded + failed));
  const paths = { good: "", bad: "", rest: "", most };
  points.forEach(({ succeeded, failed }, i) => {
    const low = scale(succeeded, most, height);
    const top = Math.min(height, low + scale(failed, most, height));
    const bar = (from, to) => `M${i * step + (step - wide) / 2} ${
      round(height - to)}h${wide}V${round(height - from)}h${-wide}z`;
    if (low) paths.good += bar(0, low);
    if (failed) paths.bad += bar(low + (low ? 1.5 : 0), top);
    if (!low && !failed) paths.rest += bar(0, 1);
  });
  return paths;
}

// Bars of runs with a title each; `links` may have a hash for each, for the pointer only: a link must
// stand beside the bars.
export function bars(points, { label, titles, links }) {
  const { good, bad, rest } = barPaths(points);
  const { step, height } = BARS;
  const cell = (_, i) => svg`<rect x=${i * step} y="0" width=${step} height=${height}
    fill="transparent" class=${links ? "press" : ""} @click=${() => links && go(links[i])}><title>${
    titles[i]}</title></rect>`;
  return html`<svg class="bars" viewBox="0 0 ${points.length * step} ${height}" role="img"
    preserveAspectRatio="none" aria-label=${label}><path d=${rest}></path><path class="s-s"
    d=${good}></path><path class="s-f" d=${bad}></path>${points.map(cell)}</svg>`;
}

/** Path of a line through values, `null` where nothing was measured. Pure. */
export function linePath(values, width, height) {
  const most = Math.max(1, ...values);
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  return values.map((value, i) => value === null ? "" : `${(values[i - 1] ?? null) === null ? "M"
    : "L"}${round(i * step)} ${round(height - 1 - (value / most) * (height - 2))}`).join("");
}

export const sparkline = (values, label) => html`<svg class="spark" viewBox="0 0 120 28" width="120"
  height="28" preserveAspectRatio="none" role="img" aria-label=${label}><path class="line"
  d=${linePath(values, 120, 28)}></path></svg>`;

const STEP = 6; // width of a mark with its gap
const WIDE = 4;
const HEIGHT = 20;
const mark = (x, top, bottom = HEIGHT) => `M${x} ${top}h${WIDE}V${bottom}h${-WIDE}z`;

// Each state has a form of its own, so that colour is never alone.
const MARKS = {
  __proto__: null,
  s: (x) => mark(x, 4),
  f: (x) => mark(x, 0, 8) + mark(x, 11), // with a notch
  r: (x) => mark(x, 4, 10) + mark(x, 14),
  d: (x) => mark(x, 10),
  m: (x) => `M${x + 0.5} 4.5h${WIDE - 1}v15h${1 - WIDE}z`,
  p: (x) => mark(x, 16),
};

/** Paths by letter: `{s: "M…", f: "M…"}`. Newest last, at the right end of `slots`. Pure. */
export function historyPaths(statuses, slots = statuses.length) {
  const paths = {};
  const letters = [...statuses].slice(-slots);
  letters.forEach((letter, i) => {
    const x = (slots - letters.length + i) * STEP;
    paths[letter] = (paths[letter] || "") + (MARKS[letter] || MARKS.p)(x);
  });
  return paths;
}

export function historyText(statuses) {
  if (!statuses) return "no runs yet";
  const word = (letter) => stateOf(stateOfLetter(letter)).word.toLowerCase();
  const counts = [...new Set(statuses)].map((letter) =>
    `${statuses.split(letter).length - 1} ${word(letter)}`);
  const runs = statuses.length === 1 ? "run" : statuses.length + " runs";
  return `last ${runs}: ${counts.join(", ")}; newest ${word(statuses.at(-1))}`;
}

/** The last runs of a cue ("ssfsr…", newest last) as a row of marks with room for `slots` runs. */
export function runHistory(statuses, slots) {
  const width = slots * STEP - (STEP - WIDE);
  return html`<svg class="history" viewBox="0 0 ${width} ${HEIGHT}" width=${width} height=${HEIGHT}
    preserveAspectRatio="xMaxYMid slice" role="img" aria-label=${historyText(statuses)}>${
    Object.entries(historyPaths(statuses, slots)).map(([letter, path]) =>
      svg`<path class="s-${letter}" d=${path}></path>`)}</svg>`;
}
