"""The list of cues and one cue."""

from rig import check, test

SIX_HUNDRED = 600


def many(server, count, name="job {}"):
    for number in range(count):
        server.cue(name.format(number))


@test
def filters_search_and_order_are_in_the_address(world):
    world.story()
    page = world.page
    page.go("#/cues", "cues")
    page.click(".tabs a", "Paused")
    page.see("old-import", "#cue-list")
    page.gone("sync-invoices", "#cue-list")
    check(page.hash() == "#/cues?status=paused", page.hash())
    page.click(".tabs a", "All")
    page.fill("#search", "invoi")
    page.wait("the search in the address", lambda: page.hash() == "#/cues?q=invoi")
    page.gone("nightly-backup", "#cue-list")
    page.choose("#filter-sort", "-name")
    page.wait("the order in the address", lambda: "sort=-name" in page.hash())
    address = page.hash()
    page.show(address, "cues")
    check(page.run("return document.getElementById('search').value") == "invoi", "the search is kept")
    page.see("sync-invoices", "#cue-list")
    page.show("#/cues?q=PROD", "cues")
    page.see("nightly-backup", "#cue-list")
    check(page.count("#cue-list tbody tr") == 1, "a tag is found")
    page.show("#/cues?transport=worker", "cues")
    page.see("monthly-report", "#cue-list")
    check(page.count("#cue-list tbody tr") == 1, "one cue is for workers")


@test
def a_row_has_words_strip_next_run_and_last_result(world):
    story = world.story()
    page = world.page
    page.go("#/cues", "cues")
    row = f"[data-row='{story.backup['id']}']"
    page.see("Europe/Berlin", row)
    page.see("5xx", row)
    page.see("4 in a row", row)
    page.see("in ", row)
    check(page.count(row + " svg path") >= 1, "a strip of its runs")
    label = page.run("return document.querySelector(arguments[0] + ' svg[aria-label]')?.ariaLabel", row)
    check("4 failed" in label, label)
    page.see("Every 15 minutes", f"[data-row='{story.invoices['id']}']")


# Texts of a card that lie under its button.
COVERED = """
const meets = (a, b) => a.width && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
return [...document.querySelectorAll("#cue-list tbody tr")].flatMap((row) => {
  const button = row.querySelector(".row-actions button").getBoundingClientRect();
  return [...row.querySelectorAll("td:not(.row-actions) :is(a, time, small, .badge, svg)")]
    .filter((one) => one.checkVisibility() && meets(one.getBoundingClientRect(), button)).map((one) => one.outerHTML);
});
"""
MOST_CARD = 110  # px


@test
def a_card_of_a_phone_is_low_and_nothing_lies_under_its_button(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (500, "")
    page.look("light", 360, 740)
    paused = server.cue("paused")
    server.patch(f"/v1/cues/{paused['id']}", {"status": "paused"})
    once = {"type": "once", "at": "2026-03-02T08:01:00Z", "timezone": "UTC"}
    server.cue("soon-once", world.receiver.url + "/hook", schedule=once, retry={"max_attempts": 1, "backoff_minutes": [1]})
    server.cue("a name that is much longer than a line of a phone has room for, and goes on and on and on")
    server.advance("PT2M")
    page.go("#/cues", "cues")
    page.see("soon-once", "#cue-list")
    check(page.run(COVERED) == [], page.run(COVERED))
    heights = page.run("return [...document.querySelectorAll('#cue-list tbody tr')].map((row) => row.offsetHeight)")
    check(len(heights) == 3 and max(heights) <= MOST_CARD, heights)
    check(not page.overflows(), "they fit")


@test
def a_click_on_a_tag_filters_the_cues_and_the_runs(world):
    server = world.signed_in()
    page = world.page
    both = server.cue("both", tags=["prod", "nas"])
    for cue in (both, server.cue("one", tags=["prod"]), server.cue("plain")):
        server.fire(server.key, cue["id"])
    page.go("#/cues", "cues")
    page.click("#cue-list a.tag", "prod")
    page.gone("plain", "#cue-list")
    check(page.hash() == "#/cues?tag=prod", page.hash())
    page.click("#cue-list a.tag", "nas")
    page.gone("one", "#cue-list")
    check(page.hash() == "#/cues?tag=prod,nas", page.hash())
    page.click("[data-filter=tag]", "Remove the filter Tag: nas")
    page.see("one", "#cue-list")
    page.click("#select-all", "Select all 2")
    page.click("#bulk-pause")
    page.see("2 cues paused", "#toasts")
    check([cue["name"] for cue in server.get("/v1/cues?status=active")["cues"]] == ["plain"], "the third is not")
    page.go(f"#/cues/{both['id']}", "cue")
    page.click(".title a.tag", "nas")
    page.loaded("cues")
    check(page.hash() == "#/cues?tag=nas", page.hash())
    page.go("#/runs?tag=prod", "runs")
    page.see("2 runs match")
    page.click("#filter")
    page.fill("#d-tag", "prod, nas")
    page.click("dialog button", "Show")
    page.see("1 run matches")
    check(page.hash() == "#/runs?tag=prod,nas", page.hash())


@test
def six_hundred_cues_are_paused_with_two_clicks(world):
    server = world.signed_in()
    page = world.page
    many(server, SIX_HUNDRED)
    page.go("#/cues?status=active", "cues")
    page.click("#select-all", f"Select all {SIX_HUNDRED}")
    page.click("#bulk-pause")
    page.see("600 cues paused", "#toasts")
    check(server.get("/v1/cues?status=paused&limit=1")["total"] == SIX_HUNDRED, "all are paused")
    page.see("No cue matches")
    page.click("#screen a", "Clear the filters")
    page.see("1–50 of 600", "#cue-list")
    page.click("#cue-list a", "Next")
    page.see("51–100 of 600", "#cue-list")
    check("page=2" in page.hash(), page.hash())


@test
def deleting_many_asks_for_their_number(world):
    server = world.signed_in()
    page = world.page
    many(server, 25)
    page.go("#/cues", "cues")
    page.click("#select-all")
    page.click("#bulk-delete")
    page.see("Delete 25 cues?", "dialog")
    check(page.run("return document.querySelector('dialog .primary').disabled"), "not before the number is typed")
    page.fill("#d-typed", "25")
    page.click("dialog button", "Delete")
    page.see("25 cues deleted", "#toasts")
    page.see("No cue yet")


@test
def a_range_is_selected_with_shift_and_fired(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (200, "")
    for number in range(6):
        server.cue(f"job {number}", world.receiver.url + "/hook")
    page.go("#/cues?sort=name", "cues")
    page.click("[aria-label='Select job 1']")
    page.run("""document.querySelector("[aria-label='Select job 4']")
        .dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true, shiftKey: true}))""")
    page.see("4 cues selected", ".bulk")
    page.click("#bulk-fire")
    page.click("dialog button", "Fire")
    page.see("4 cues fired", "#toasts")
    server.settle()
    check(server.get("/v1/executions?limit=1")["total"] == 4, "four runs")


@test
def the_list_is_live(world):
    server = world.signed_in()
    page = world.page
    page.go("#/cues", "cues")
    page.see("No cue yet")
    cue = server.cue("made elsewhere")
    page.see("made elsewhere", "#cue-list")
    server.patch(f"/v1/cues/{cue['id']}", {"status": "paused"})
    page.see("Paused", "#cue-list")


@test
def a_cue_shows_its_schedule_runs_callback_and_payload(world):
    story = world.story()
    page = world.page
    page.go(f"#/cues/{story.backup['id']}", "cue")
    for text in ("nightly-backup", "4 times in a row", "Europe/Berlin", "Copies the database", "The URL returned 503",
                 "Attempts", "backups", "After downtime, the latest missed run still fires"):
        page.see(text, "#screen")
    check(page.count("#next-runs li") == 10, "ten next runs")
    check("Failing" in page.title(), page.title())


@test
def a_cue_is_fired_paused_duplicated_and_deleted(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (200, '{"answer": 42}')
    cue = server.cue("sync", world.receiver.url + "/hook", payload={"n": 1})
    page.go(f"#/cues/{cue['id']}", "cue")
    page.click("#fire")
    page.loaded("run")
    page.see("Succeeded at the first attempt", "#why")
    page.go(f"#/cues/{cue['id']}", "cue")
    page.click("#pause")
    page.see("sync: paused", "#toasts")
    page.see("it does not run until you resume it")
    page.click("#pause", "Resume")
    page.see("sync: resumed", "#toasts")
    page.click("#screen button", "More")
    page.click("#more-actions button", "Fire with a payload")
    page.fill("#d-payload_override", '{"n": 12345678901234567890}')
    page.click("dialog button", "Fire")
    page.loaded("run")
    world.take("/hook")
    body = world.take("/hook")[2]
    check(body == '{"n": 12345678901234567890}', body)
    page.go(f"#/cues/{cue['id']}", "cue")
    page.click("#screen button", "More")
    page.click("#more-actions button", "Duplicate")
    page.loaded("editor")
    check(page.run("return document.getElementById('f-name').value") == "sync (copy)", "the copy has a name of its own")
    page.go(f"#/cues/{cue['id']}", "cue")
    page.click("#screen button", "More")
    page.click("#more-actions button", "Delete")
    page.click("dialog button", "Delete")
    page.loaded("cues")
    check(server.get("/v1/cues?limit=1")["total"] == 0, "it is deleted")


@test
def failed_runs_of_a_cue_are_replayed_together(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (500, "")
    cue = server.cue("sync", world.receiver.url + "/hook", retry={"max_attempts": 1, "backoff_minutes": [1]})
    for _ in range(3):
        server.fire(server.key, cue["id"])
    server.settle()
    world.receiver.answers["/hook"] = (200, "")
    page.go(f"#/cues/{cue['id']}", "cue")
    page.click("#screen button", "More")
    page.click("#more-actions button", "Replay failed runs")
    page.click("dialog button", "Next")
    page.see("Replay 3 runs?", "dialog")
    page.click("dialog button", "Replay")
    page.loaded("runs")
    page.see("Replayed 3 runs", "#toasts")
    page.see("3 runs match")
    page.see("sync", "[data-filter=cue]")


@test
def a_header_is_hidden_until_it_is_asked_for(world):
    server = world.signed_in()
    page = world.page
    callback = {"url": world.receiver.url + "/hook", "headers": {"X-Token": "hush-hush", "X-Plain": "in plain sight"}}
    cue = server.cue("secretive", callback=callback)
    run = server.fire(server.key, cue["id"])
    server.settle()
    for place, screen in ((f"#/cues/{cue['id']}", "cue"), (f"#/runs/{run}", "run")):
        page.go(place, screen)
        if screen == "run":
            page.click("summary", "Headers")
        page.see("X-Token")
        page.see("in plain sight")
        check("hush-hush" not in page.words(), "hidden at first")
        page.click("[data-header='X-Token']")
        page.see("hush-hush")


@test
def a_cue_of_a_file_says_so_before_it_is_changed(world):
    server = world.signed_in()
    page = world.page
    url = world.receiver.url + "/hook"
    cue = server.cue("nightly", url, slug="home/nightly")
    server.cue("by hand", url)
    warning = "Slug home/nightly: if it is in a file, cued apply overwrites changes that you make here."
    page.go("#/cues", "cues")
    page.see("home/nightly", "#cue-list")
    page.go(f"#/cues/{cue['id']}", "cue")
    page.see(warning)
    page.go(f"#/cues/{cue['id']}/edit", "editor")
    page.see(warning, ".editor")
    page.go(f"#/cues/new?from={cue['id']}", "editor")
    check(page.run("return document.getElementById('f-name').value") == "nightly (copy)", "a copy is nobody's")
    page.gone("Slug home/nightly", ".editor")
    page.go(f"#/cues/{cue['id']}", "cue")
    page.click("#screen button", "More")
    page.click("#more-actions button", "Delete")
    page.see("If it is in a file, cued apply creates it again.", "dialog")
