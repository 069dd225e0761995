"""The documentation of a server: axe, narrow windows, the search, the colours of the page, and all of it without scripts."""

import os

from driver import check
from rig import test
from trials.accessibility import LOOKS, violations
from trials.hard_cases import Below

REFERENCE = "docs/reference/api/cues"
PAGES = ("docs", "docs/reference/schedules", "docs/webhooks", "docs/billing", "docs/notifications", "docs/reference/errors", "docs/search", "docs/nope", REFERENCE)
SHOWN = """
return [...document.querySelectorAll("#headings :is(h2, li)")].filter((one) => one.checkVisibility()).map((one) => one.textContent)
"""
HIDDEN = "return [...document.querySelectorAll('.table')].some((one) => one.scrollWidth > one.clientWidth)"
OPEN = "for (const one of document.querySelectorAll('details')) one.open = true"


@test
def axe_finds_nothing_in_the_documentation(world):
    server = world.serve()
    page = world.page.at(server.url)
    page.expect("status of 404")
    # The reference has thousands of elements: axe takes half a minute, and one look is enough.
    page.patience(300)
    found = []
    for scheme, width in LOOKS:
        page.look(scheme, width, 800)
        for path in PAGES if (scheme, width) == LOOKS[-1] else PAGES[:-1]:
            page.open(page.url + path)
            found += [f"{path} {scheme} {width}: {one}" for one in violations(page)]
            page.screenshot(os.path.join(world.folder, f"{path.replace('/', '-')}-{scheme}-{width}.png"))
    check(not found, "\n".join(found))


@test
def no_page_of_the_documentation_scrolls_sideways(world):
    server = world.serve()
    page = world.page.at(server.url)
    page.expect("status of 404")
    wide = []
    for width in (320, 360, 640, 960, 1280):
        page.look("light", width, 700)
        for path in PAGES:
            page.open(page.url + path)
            page.run(OPEN)
            # From 360 on, all columns of a table are seen.
            if page.overflows() or width >= 360 and page.run(HIDDEN):
                wide.append((path, width))
    check(not wide, wide)


@test
def the_search_filters_the_headings_also_below_a_path_of_a_proxy(world):
    server = world.serve()
    proxy = Below(server, "/cued")
    page = world.page.at(proxy.url)
    page.open(page.url + "docs/reference/schedules")
    check(page.words("#navigation [aria-current=page]") == "Schedules", "the page is marked in the list")
    page.fill("[type=search]", "daylight saving")
    page.click("header button")
    page.wait("the search", lambda: page.run("return location.pathname").endswith("/cued/docs/search"))
    page.see("“daylight saving”", "#found")
    shown = page.run(SHOWN)
    check("How exact" in shown and "Quiet hours" not in shown, shown)
    page.fill("[type=search]", "no such heading")
    page.see("No headings have", "#found")
    check(page.run(SHOWN) == [], "nothing is shown")
    page.fill("[type=search]", "in words")
    page.click("#headings li a", "In words")
    page.wait("the section", lambda: page.run("return location.hash") == "#in-words")
    proxy.server.shutdown()


@test
def the_documentation_keeps_the_colours_that_were_chosen_on_the_page(world):
    server = world.signed_in()
    page = world.page
    ground = "return getComputedStyle(document.body).backgroundColor"
    page.open(page.url + "docs")
    light = page.run(ground)
    page.run("localStorage.setItem('cued', JSON.stringify({theme: 'dark'}))")
    page.open(page.url + "docs/reference/schedules")
    check(page.run(ground) != light, "dark as the page")
    page.run("localStorage.removeItem('cued')")
    check(server.get("/v1/info")["version"], "the server answers")


@test
def the_documentation_works_without_scripts(world):
    server = world.serve()
    page = world.page.at(server.url)
    page.devtools("Emulation.setScriptExecutionDisabled", value=True)
    page.look("light", 360, 780)
    page.open(page.url + "docs/search?q=words")
    source = page.source()
    check("In words" in source and "hidden" not in source, "all headings are shown")
    page.devtools("Emulation.setScriptExecutionDisabled", value=False)


@test
def the_page_links_to_its_documentation(world):
    story = world.story()
    page = world.page
    for hash, screen, path, title in (
        ("#/cues/new", "editor", "docs/reference/schedules", "Schedules"),
        ("#/notifications", "notifications", "docs/notifications", "Notifications"),
        (f"#/runs/{story.failed['id']}", "run", "docs/webhooks", "Webhooks: receive, report, retry"),
    ):
        page.show(hash, screen)
        check(page.count(f"main a[href='{path}']") == 1, f"{hash} has no link to {path}")
        page.open(page.url + path)
        check(page.words("h1") == title, page.words("h1"))
