// Charts: bars of runs, lines, the last runs of a cue, attempts. One path per series.
import { html, nothing, svg } from "../lit/lit-html.js";
import { go } from "../app/router.js";
import { duration } from "../app/time.js";
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
    const x = i * step + (step - wide) / 2;
    const low = scale(succeeded, most, height);
    const top = Math.min(height, low + scale(failed, most, height));
    const bar = (from, to) =>
      `M${x} ${round(height - to)}h${wide}V${round(height - from)}h${-wide}z`;
    if (low) paths.good += bar(0, low);
    if (failed) paths.bad += bar(low + (low ? 1.5 : 0), top);
    if (!low && !failed) paths.rest += bar(0, 1);
  });
  return paths;
}

// Bars of runs. `label` is for readers, `titles` has a text for each bar, `links` may have a hash
// for each: these are for the pointer only, so a link must stand beside the bars.
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
  let pen = "M";
  return values.map((value, i) => {
    if (value === null) return (pen = "M"), "";
    const point = `${pen}${round(i * step)} ${round(height - 1 - (value / most) * (height - 2))}`;
    pen = "L";
    return point;
  }).join("");
}

/** A small line of values; `label` says what it shows, with its figures. */
export const sparkline = (values, label) => html`<svg class="spark" viewBox="0 0 120 28" width="120"
  height="28" preserveAspectRatio="none" role="img" aria-label=${label}><path class="line"
  d=${linePath(values, 120, 28)}></path></svg>`;

const STEP = 6; // width of a mark with its gap
const WIDE = 4;
const HEIGHT = 20;
const mark = (x, top, bottom = HEIGHT) => `M${x} ${top}h${WIDE}V${bottom}h${-WIDE}z`;

// Each state has a form of its own, so that colour is never alone.
const MARKS = {
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

/** "last 30 runs: 28 succeeded, 2 failed; newest failed" */
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
  const paths = Object.entries(historyPaths(statuses, slots));
  return html`<svg class="history" viewBox="0 0 ${width} ${HEIGHT}" width=${width} height=${HEIGHT}
    preserveAspectRatio="xMaxYMid slice" role="img" aria-label=${historyText(statuses)}>${paths.map(
    ([letter, path]) => svg`<path class="s-${letter}" d=${path}></path>`)}</svg>`;
}

const short = (minutes) => {
  const [size, unit] = minutes < 60 ? [1, "m"] : minutes < 2_880 ? [60, "h"] : [1_440, "d"];
  return +(minutes / size).toFixed(1) + unit;
};

/** Attempts, in minutes after the first, as dots on a line; the gaps grow with the logarithm. */
export function attemptLine(times) {
  const waits = times.slice(1).map((time, i) => time - times[i]);
  const weights = waits.map((wait) => 1 + Math.log1p(wait));
  const sum = weights.reduce((a, b) => a + b, 0);
  let at = 4;
  const dots = times.map((_, i) => {
    const wide = i ? (92 * weights[i - 1]) / sum : 0;
    at += wide;
    return svg`<circle cx=${`${at}%`} cy="28" r="4"></circle>${
      i ? svg`<text x=${`${at - wide / 2}%`} y="18">${short(waits[i - 1])}</text>` : nothing}`;
  });
  const starts = times.map((time, i) =>
    `${i + 1} at ${time ? "+" + duration(time * 60_000) : "the time"}`);
  return html`<svg class="waits" width="100%" height="44" role="img"
    aria-label=${`Attempts: ${starts.join(", ")}`}><line x1="4%" x2=${`${at}%`} y1="28"
    y2="28"></line>${dots}</svg>`;
}
