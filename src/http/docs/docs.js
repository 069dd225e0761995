// Before the first paint: the theme that was chosen on the page.
try {
  const { theme } = JSON.parse(localStorage.getItem("cued")) || {};
  if (theme) document.documentElement.dataset.theme = theme;
} catch {}

/** Shows the headings that have all the words, and the pages that have such headings or the words in their title. */
function filter(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (element) => words.every((word) => element.textContent.toLowerCase().includes(word));
  let found = 0;
  for (const title of document.querySelectorAll("#headings h2")) {
    const list = title.nextElementSibling;
    const isWhole = has(title);
    let shown = isWhole ? 1 : 0;
    for (const item of list.children) {
      item.hidden = !isWhole && !has(item);
      if (!item.hidden) shown += 1;
    }
    title.hidden = list.hidden = shown === 0;
    found += shown;
  }
  document.querySelector("#found").textContent = words.length
    ? `${found || "No"} ${found === 1 ? "heading has" : "headings have"} “${text.trim()}”.`
    : "All headings of all pages.";
}

addEventListener("DOMContentLoaded", () => {
  for (const link of document.querySelectorAll("#navigation a")) {
    if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
  }
  if (!document.querySelector("#headings")) return;
  const field = document.querySelector("input[type=search]");
  field.value = new URLSearchParams(location.search).get("q") ?? "";
  field.addEventListener("input", () => filter(field.value));
  filter(field.value);
});
