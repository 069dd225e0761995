"""The day: what runs when, at the same time, and not at all."""

from rig import check, test


def daily(server, name, cron, **more):
    return server.cue(name, schedule={"type": "recurring", "cron": cron, "timezone": "UTC"}, **more)


@test
def runs_at_the_same_time_are_seen_and_spread(world):
    server = world.signed_in()  # 08:00 UTC
    page = world.page
    page.go("#/day", "day")
    page.see("Nothing runs in these 24 hours")
    cues = [daily(server, name, "0 3 * * *") for name in ("backup", "report", "cleanup")]
    daily(server, "poll", "*/5 * * * *")
    paused = daily(server, "old", "30 12 * * *")
    server.post(f"/v1/cues/{paused['id']}/fire", {"send_at": "2026-03-02T20:15:00Z"})
    server.patch(f"/v1/cues/{paused['id']}", {"status": "paused"})
    page.see("03:00 · 3 runs", "#same-time")
    check(page.count("#quiet") == 0, "every hour has a run")
    label = page.run("return document.querySelector('[data-row=' + arguments[0] + '] svg').ariaLabel", paused["id"])
    check(label == "fired for 20:15", label)
    page.click("#by-hour summary")
    page.click("#by-hour summary", "20:00 · 13 runs")
    page.see("poll 12 times", "#by-hour")
    page.see("old 20:15", "#by-hour")
    page.click("#same-time a", "report")
    page.loaded("cue")
    page.run("history.back()")
    page.loaded("day")
    server.patch(f"/v1/cues/{cues[1]['id']}", {"schedule": {"type": "recurring", "cron": "20 3 * * *"}})
    page.see("At most two cues run in the same minute.", "#same-time")


@test
def a_week_has_days_and_quiet_hours_and_the_next_one_follows(world):
    server = world.signed_in()
    page = world.page
    for name in ("a", "b", "c"):
        daily(server, name, "0 9 * * 1-5")
    page.keys("gd")
    page.loaded("day")
    page.click("button", "7 days")
    page.wait("the week", lambda: page.hash() == "#/day?span=7d")
    page.see("09:00 · 3 runs on 5 days", "#same-time")
    page.see("23 h", "#quiet")
    check(page.count("#day .axis text") == 7, "a label for each day")
    page.click("#screen a", "Later")
    page.see("Mon 9 Mar, 00:00 to Mon 16 Mar, 00:00", "#screen header")
    page.click("#screen a", "Earlier")
    page.wait("this week", lambda: page.hash() == "#/day?span=7d")


@test
def a_phone_has_the_hours_in_place_of_the_chart_of_cues(world):
    server = world.signed_in()
    page = world.page
    daily(server, "backup", "0 3 * * *")
    page.look("light", 360, 740)
    page.go("#/day", "day")
    page.see("03:00 · 1 run", "#by-hour")
    check("backup" not in page.words("#by-hour"), "hours are closed")
    page.click("#by-hour summary", "03:00")
    page.see("backup 03:00", "#by-hour")
    check(page.is_shown("#day .load") and not page.is_shown("#day [data-row]"), "only the bars of the hours")
    check(page.run("return document.documentElement.scrollWidth <= innerWidth"), "it fits")
