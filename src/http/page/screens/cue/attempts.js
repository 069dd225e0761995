// The attempts of a retry as a picture: the editor and the cue show it.
import { html, nothing, svg } from "../../lit/lit-html.js";
import { duration } from "../../app/time.js";

/** Attempts, in minutes after the first, as dots on a line; longer waits are longer, within reason. */
export function attemptLine(times) {
  const weights = times.slice(1).map((time, at) => 1 + Math.log1p(time - times[at]));
  const sum = weights.reduce((a, b) => a + b, 0);
  let at = 4;
  const dots = times.map((time, i) => ({ x: i ? (at += (92 * weights[i - 1]) / sum) : at, middle: i ? at - (46 * weights[i - 1]) / sum : 0, wait: i ? time - times[i - 1] : 0 }));
  const text = times.map((time, i) => `${i + 1} at ${time ? "+" + duration(time * 60_000) : "the time"}`).join(", ");
  return html`<svg class="waits" width="100%" height="44" role="img" aria-label=${`Attempts: ${text}`}>
    <line x1="4%" x2=${`${at}%`} y1="28" y2="28"></line>${dots.map(({ x, middle, wait }, i) => svgDot(x, middle, wait, i))}</svg>`;
}

const short = (minutes) => (minutes < 60 ? `${+minutes.toFixed(1)}m` : minutes < 2_880 ? `${+(minutes / 60).toFixed(1)}h` : `${+(minutes / 1_440).toFixed(1)}d`);

const svgDot = (x, middle, wait, i) => svg`<circle cx=${`${x}%`} cy="28" r="4"></circle>${i ? svg`<text x=${`${middle}%`} y="18">${short(wait)}</text>` : nothing}`;
