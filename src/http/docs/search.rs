//! The headings of all pages, for the page that searches them. They are read from the pages: stored as well, they would be
//! larger than most pages.

/// A page as a link, and a list of the links to its headings. `url` and `title` are HTML, too.
pub fn list(url: &str, title: &str, html: &str) -> String {
    let link = |(anchor, text)| format!("<li><a href=\"{url}#{anchor}\">{text}</a></li>\n");
    let links: String = headings(html).map(link).collect();
    format!("<h2><a href=\"{url}\">{title}</a></h2>\n<ul>\n{links}</ul>\n")
}

/// The anchors and the texts of the headings below the title, as `src/build/markdown.rs` writes them.
fn headings(html: &str) -> impl Iterator<Item = (&str, &str)> {
    html.split("<h").skip(1).filter_map(|part| {
        let (anchor, rest) = part.get(1..)?.strip_prefix(" id=\"")?.split_once('"')?;
        let text = rest.split_once('>')?.1.split_once("</h")?.0;
        // Only a heading that no list of the page has is a link.
        let linked = text.strip_prefix("<a href=\"#").and_then(|link| link.split_once("\">"));
        Some((anchor, linked.map_or(text, |(_, text)| text.trim_end_matches("</a>"))))
    })
}
