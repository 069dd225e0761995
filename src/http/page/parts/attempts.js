// The attempts of a retry as a picture: the editor and the cue show it.
import { html, nothing, svg } from "../lit/lit-html.js";
import { duration } from "../app/time.js";

const short = (minutes) => {
  const [size, unit] = minutes < 60 ? [1, "m"] : minutes < 2_880 ? [60, "h"] : [1_440, "d"];
  return +(minutes / size).toFixed(1) + unit;
};

/**
 * Attempts, in minutes after the first, as dots on a line; longer waits are longer, within reason.
 */
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
  const told = times.map((time, i) => `${i + 1} at ${time ? "+" + duration(time * 60_000)
      : "the time"}`);
  return html`<svg class="waits" width="100%" height="44" role="img"
    aria-label=${`Attempts: ${told.join(", ")}`}><line x1="4%" x2=${`${at}%`} y1="28"
    y2="28"></line>${dots}</svg>`;
}
