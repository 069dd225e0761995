"""axe-core on every screen, light and dark, phone and desktop; narrow windows; forced colours; no motion; big text."""

import json
import os

from rig import check, test

AXE = os.path.join("target", "browser", "axe.min.js")
# Rules that are no success criterion are part of it too: 0 violations of all that axe knows.
RUN = """
const done = arguments[0];
axe.run(document).then(
  (found) => done(found.violations.map((rule) => rule.id + ": " + rule.nodes.slice(0, 3).map((node) => node.html).join(" | "))),
  (error) => done([String(error)]));
"""
OPEN = "for (const one of document.querySelectorAll('.editor details')) one.open = true"
LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 360)]
MOVING = """
return document.getAnimations().filter((one) => one.playState === "running" && one.effect.getComputedTiming().duration > 1).length
"""


def violations(page):
    if not page.run("return typeof axe === 'object'"):
        with open(AXE, encoding="utf-8") as file:
            page.devtools("Runtime.evaluate", expression=file.read())
    return page.run_async(RUN)


def places(story):
    return [*story.screens(), ("runs", "#/runs?status=failed&cause=status_5xx"), ("cues", "#/cues?status=paused"),
            ("runs", "#/runs?cause=timeout"), ("run", f"#/runs/{story.done['id']}")]


def visit(page, screen, hash):
    """Goes to a screen and opens what is folded in a form."""
    page.go(hash, screen)
    page.run(OPEN)


@test
def axe_finds_nothing_on_any_screen(world):
    story = world.story()
    page = world.page
    found = []
    for scheme, width in LOOKS:
        story.rest()
        page.look(scheme, width, 800)
        page.show("#/", "overview")
        for screen, hash in places(story):
            visit(page, screen, hash)
            found += [f"{hash} {scheme} {width}: {one}" for one in violations(page)]
    check(not found, "\n".join(found))


@test
def axe_finds_nothing_in_dialogs_menus_and_the_sign_in(world):
    story = world.story()
    page = world.page
    page.expect("status of 401")
    found = []
    for scheme, width in (("light", 1280), ("dark", 360)):
        story.rest()
        page.look(scheme, width, 800)
        for hash, opens in (
            ("#/runs", ["#filter"]),
            (f"#/runs/{story.done['id']}", ["#action-edited"]),
            ("#/account/keys", ["#new-key"]),
            ("#/cues", ["#select-all"]),
            (f"#/cues/{story.old['id']}", ["[popovertarget=more-actions]"]),
        ):
            page.show(hash)
            for css in opens:
                page.click(css)
            found += [f"{hash} {scheme} {width} {css}: {one}" for one in violations(page)]
        page.show("#/")
        page.press("?")
        page.see("Keyboard shortcuts", "dialog")
        found += [f"help {scheme} {width}: {one}" for one in violations(page)]
    page.forget()
    for scheme, width in LOOKS:
        page.look(scheme, width, 800)
        page.show("", "sign_in")
        found += [f"sign-in {scheme} {width}: {one}" for one in violations(page)]
    check(not found, "\n".join(found))


@test
def no_screen_scrolls_sideways_at_320_px(world):
    story = world.story()
    page = world.page
    page.look("light", 320, 700)
    page.show("#/", "overview")
    wide = []
    for screen, hash in places(story):
        visit(page, screen, hash)
        if page.overflows():
            wide.append(hash)
    check(not wide, wide)


# What is drawn beyond the edge of its card, unless a part of the card scrolls; and the parts that do scroll.
LEAVES = """
const scrolls = (one) => getComputedStyle(one).overflowX !== "visible";
const found = [...document.querySelectorAll("#screen .card")].flatMap((card) => {
  const edge = card.getBoundingClientRect();
  return [...card.querySelectorAll("*")].filter((one) => {
    const box = one.getBoundingClientRect();
    if (!box.width || !one.checkVisibility() || one.closest("[popover]")) return false;
    for (let part = one.parentElement; part !== card; part = part.parentElement) if (scrolls(part)) return false;
    return box.right > edge.right + 1 || box.left < edge.left - 1;
  });
});
const wide = [...document.querySelectorAll("#screen .scroll")].filter((one) => one.scrollWidth > one.clientWidth + 1);
return [...found, ...wide].map((one) => `${one.tagName} ${one.innerText?.slice(0, 60)}`);
"""
LONG = ("Vaultwarden export to the storage box in Falkenstein, weekly copy with checksums", "W" * 80,
        "home-assistant/refresh-energy-prices-of-the-next-day", "sync")
ROW = (44, 60)  # px of a row of Cues, on a desktop


def crowded(world):
    """A page with many cues of long names, tags and URLs, most of which have run."""
    server = world.signed_in()
    answers = world.receiver.answers
    text = json.dumps({"error": "the disk of the machine is full, and nobody has noticed it for a long time"})
    for number in range(40):
        path = f"/api/v1/organisations/17/jobs/nightly-maintenance/{number}"
        answers[path] = (500, text) if number % 9 == 0 else (200, "")
        schedule = {"type": "recurring", "cron": ("*/5 8-17 * * 1-5", "0 0 1 1,4,7,10 *")[number % 2],
                    "timezone": ("Europe/Berlin", "America/Argentina/ComodRivadavia", "UTC")[number % 3]}
        tags = ["production", "storage-box", "nas", "a-very-long-tag-of-thirty-chars"][: number % 5]
        cue = server.cue(f"{LONG[number % 4]} {number}", world.receiver.url + path, schedule=schedule, tags=tags,
                         slug=f"homelab-raspberry-pi/job-{number}", retry={"max_attempts": 1, "backoff_minutes": [1]},
                         **({"transport": "worker", "payload": {"task": "backup-of-the-photos"}} if number % 10 == 9 else {}))
        if number % 3:
            server.fire(server.key, cue["id"])
        if number % 7 == 0:
            server.patch(f"/v1/cues/{cue['id']}", {"status": "paused"})
    server.post("/v1/worker/heartbeat", {"worker_id": "raspberry-pi-in-the-basement", "handlers": ["mail", "backup" * 6]})
    server.post("/v1/channels", {"type": "ntfy", "url": world.receiver.url + "/backups-of-the-whole-house", "tags": ["nas"]})
    server.advance("PT3H")
    return server


@test
def nothing_leaves_its_card_and_a_row_of_cues_has_two_lines(world):
    server = crowded(world)
    page = world.page
    failed = server.get("/v1/executions?status=failed&limit=1")["executions"][0]
    hashes = ["#/", "#/cues", f"#/cues/{failed['cue_id']}", "#/runs", f"#/runs/{failed['id']}", "#/day", "#/workers", "#/alerts",
              "#/notifications", "#/account/keys", "#/settings", "#/admin", "#/admin/backups", "#/admin/health"]
    wrong = {}
    for width in (820, 1024, 1280, 1920):
        server.advance("PT61S")
        page.look("light", width, 800)
        page.show("#/", "overview")
        for hash in hashes:
            page.go(hash)
            found = page.run(LEAVES)
            if found or page.overflows():
                wrong[f"{hash} at {width} px"] = found[:5]
            if hash == "#/cues" and width != 820:
                rows = page.run("return [...document.querySelectorAll('#cue-list tbody tr')].map((row) => row.offsetHeight)")
                check(len(rows) == 40 and ROW[0] <= min(rows) and max(rows) <= ROW[1], f"rows of {sorted(set(rows))} px at {width}")
    check(not wrong, wrong)
    sides = page.run("const box = document.querySelector('#screen').getBoundingClientRect();"
                     "return [box.left - document.querySelector('#nav').getBoundingClientRect().right, innerWidth - box.right]")
    check(max(sides) < 100 and abs(sides[0] - sides[1]) < 2, f"1920 px are used, as far left as right: {sides}")


@test
def text_of_twice_the_size_fits(world):
    story = world.story()
    page = world.page
    page.look("light", 1280, 800)
    page.show("#/", "overview")
    # 200 % in a window of 1280 px is a window of 640 px.
    page.devtools("Emulation.setDeviceMetricsOverride", width=640, height=400, deviceScaleFactor=2, mobile=False)
    for screen, hash in places(story):
        visit(page, screen, hash)
        check(not page.overflows(), hash)


@test
def targets_of_a_phone_are_large_enough(world):
    story = world.story()
    page = world.page
    page.look("light", 360, 780)
    page.show("#/", "overview")
    small = {}
    for screen, hash in places(story):
        visit(page, screen, hash)
        found = page.run(
            "return [...document.querySelectorAll('main :is(button, select, input, a.button), #nav :is(a, button)')]"
            ".filter((one) => one.checkVisibility({visibilityProperty: true}) && !one.matches('.link, :disabled'))"
            ".map((one) => [(one.closest('label') || one).getBoundingClientRect(), one])"
            ".filter(([box]) => box.width && Math.min(box.width, box.height) < 43.5)"
            ".map(([box, one]) => one.outerHTML.slice(0, 120) + ' ' + Math.round(box.width) + 'x' + Math.round(box.height))"
        )
        if found:
            small[hash] = found[:12]
    check(not small, small)


@test
def forced_colours_and_no_motion_are_honoured(world):
    story = world.story()
    page = world.page
    features = [{"name": "forced-colors", "value": "active"}, {"name": "prefers-reduced-motion", "value": "reduce"}]
    page.devtools("Emulation.setEmulatedMedia", features=features)
    for screen, hash in (("overview", "#/"), ("cues", "#/cues"), ("run", f"#/runs/{story.failed['id']}")):
        page.show(hash, screen)
        check(page.run(MOVING) == 0, f"{hash}: nothing moves")
        page.screenshot(os.path.join(world.folder, f"forced-{screen}.png"))
        seen = page.run(
            "return [...document.querySelectorAll('main svg path')].filter((one) => {"
            "const style = getComputedStyle(one); const ground = getComputedStyle(document.body).backgroundColor;"
            "return one.checkVisibility() && one.getAttribute('d') && style.fill === ground && style.stroke === 'none'; }).length"
        )
        check(seen == 0, f"{hash}: {seen} shapes have the colour of the ground")
