// The attempts of a run on a line.
import { html, nothing, svg } from "../lit/lit-html.js";
import { duration } from "../app/time.js";

const short = (minutes) => {
  const [size, unit] = minutes < 1 ? [1 / 60, "s"] : minutes < 60 ? [1, "m"]
    : minutes < 2_880 ? [60, "h"] : [1_440, "d"];
  return +(minutes / size).toFixed(1) + unit;
};

/** Attempts, in minutes after the first, as dots on a line; the gaps grow with the logarithm. */
export function attemptLine(times) {
  const waits = times.map((time, i) => time - (times[i - 1] ?? 0));
  const weights = waits.map((wait, i) => (i ? 1 + Math.log1p(wait) : 0));
  const sum = weights.reduce((a, b) => a + b, 0) || 1;
  let at = 4;
  const dots = waits.map((wait, i) => {
    const wide = (92 * weights[i]) / sum;
    at += wide;
    return svg`<circle cx=${`${at}%`} cy="28" r="4"></circle>${
      i ? svg`<text x=${`${at - wide / 2}%`} y="18">${short(wait)}</text>` : nothing}`;
  });
  const starts = times.map((time, i) =>
    `${i + 1} at ${time ? "+" + duration(time * 60_000) : "the time"}`);
  return html`<svg class="waits" width="100%" height="44" role="img"
    aria-label=${`Attempts: ${starts.join(", ")}`}><line x1="4%" x2=${`${at}%`} y1="28"
    y2="28"></line>${dots}</svg>`;
}
