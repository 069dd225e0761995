// Tags of cues, which filter lists, and chips of filters. `tag=a,b` of an address asks for both.
import { html } from "../lit/lit-html.js";
import { withQuery } from "../app/router.js";
import { anchor } from "./pieces.js";

export const tagsOf = ({ tag = "" }) => [...new Set(tag.split(",").filter(Boolean))];

const LIST = { hash: "#/cues", query: {} };
/** Tags as links to the cues that have them; in a list of cues they add to its filter. */
export const tagLinks = (tags, route = LIST) => tags.map((tag) => {
  const all = new Set([...tagsOf(route.query), tag]);
  const href = withQuery(route, { tag: [...all].join() });
  return html` <a class="tag" href=${href} aria-label=${`Cues with the tag ${tag}`}>${tag}</a>`;
});

/** The tags of a query as entries for `filterChips`. */
export const tagFilters = (query) => tagsOf(query).map((tag, i, all) =>
  ["tag", "Tag", tag, all.toSpliced(i, 1).join()]);

/** Chips `[word, label, text, rest]` of the filters of an address; a click leaves `rest` of it. */
export function filterChips(route, active) {
  if (!active.length) return "";
  const none = Object.fromEntries(active.map(([word]) => [word, null]));
  const chip = ([word, label, text, rest = null]) => html`<a class="button small chip"
    data-filter=${word} href=${withQuery(route, { [word]: rest })}
    aria-label=${`Remove the filter ${label}: ${text}`}
    ><span class="cut">${label}: <bdi>${text}</bdi></span> ✕</a>`;
  return html`<div class="row" role="group" aria-label="Filters">${active.map(chip)}
    ${active.length > 1 ? anchor(withQuery(route, none), "Clear all", "small") : ""}</div>`;
}
