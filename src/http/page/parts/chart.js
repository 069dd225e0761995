// Charts: bars per hour, sparklines, waits. Own SVG, one path per series.
import { html, nothing, svg } from "../lit/lit-html.js";
import { go } from "../app/router.js";

const BARS = { step: 20, wide: 14, height: 100 };

/** Height that shows `value` of `most`: at least `least` where there is something to see. Pure. */
export const scale = (value, most, height, least = 3) => (value > 0 ? Math.max(least, (value / (most || 1)) * height) : 0);

/** Paths `{good, bad, rest, most}` of stacked bars of `[{succeeded, failed}]`: failed above succeeded. Pure. */
export function barPaths(points, { step, wide, height } = BARS) {
  const most = Math.max(1, ...points.map(({ succeeded, failed }) => succeeded + failed));
  let good = "";
  let bad = "";
  let rest = "";
  points.forEach(({ succeeded, failed }, i) => {
    const x = i * step + (step - wide) / 2;
    const low = scale(succeeded, most, height);
    const top = Math.min(height, low + scale(failed, most, height));
    if (low) good += `M${x} ${round(height - low)}h${wide}V${height}h${-wide}z`;
    if (failed) bad += `M${x} ${round(height - top)}h${wide}V${round(height - low - (low ? 1.5 : 0))}h${-wide}z`;
    if (!low && !failed) rest += `M${x} ${height - 1}h${wide}v1h${-wide}z`;
  });
  return { good, bad, rest, most };
}

const round = (value) => Math.round(value * 10) / 10;

/**
 * Bars of succeeded and failed runs. `label` is the sentence for readers, `titles` (optional) one text per bar, `links`
 * (optional) one hash per bar: for the pointer only, so offer the same as a link beside it.
 */
export function bars(points, { label, titles, links }) {
  const { good, bad, rest } = barPaths(points);
  const cell = (i) => svg`<rect x=${i * BARS.step} y="0" width=${BARS.step} height=${BARS.height} fill="transparent" class=${links ? "press" : ""} @click=${() => links && go(links[i])}><title>${titles[i]}</title></rect>`;
  return html`<svg class="bars" viewBox="0 0 ${points.length * BARS.step} ${BARS.height}" preserveAspectRatio="none" role="img" aria-label=${label}>
    <path d=${rest}></path><path class="s-s" d=${good}></path><path class="s-f" d=${bad}></path>
    ${titles ? points.map((_, i) => cell(i)) : nothing}</svg>`;
}

/** Path of a line through values, `null` where nothing was measured. Pure. */
export function linePath(values, width, height, most = Math.max(1, ...values.filter((value) => value !== null))) {
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  let path = "";
  let pen = "M";
  values.forEach((value, i) => {
    if (value === null || value === undefined) return void (pen = "M");
    path += `${pen}${round(i * step)} ${round(height - 1 - (value / most) * (height - 2))}`;
    pen = "L";
  });
  return path;
}

/** A small line of values; `label` says what it shows, with its figures. */
export function sparkline(values, { label, width = 120, height = 28 }) {
  return html`<svg class="spark" viewBox="0 0 ${width} ${height}" width=${width} height=${height} preserveAspectRatio="none" role="img" aria-label=${label}><path class="line" d=${linePath(values, width, height)}></path></svg>`;
}

/** A bar of a share: `value` of `most`. */
export function meter(value, most, label) {
  const share = Math.min(100, most > 0 ? (100 * value) / most : 0);
  return html`<svg class="meter" viewBox="0 0 100 6" width="100%" preserveAspectRatio="none" role="img" aria-label=${label}><rect class=${share >= 100 ? "s-f" : share >= 80 ? "s-r" : "s-d"} width=${share} height="6"></rect></svg>`;
}
