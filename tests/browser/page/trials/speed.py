"""Figures, reported beside those of others; what must stay flat is asserted with a generous bound."""

import http.client
import os
import statistics
import time

from rig import BASE, check, test, until

SLOW = {"offline": False, "latency": 20, "downloadThroughput": 1_250_000, "uploadThroughput": 1_250_000}
ROUNDS = 3
CUES = 100
RUNS = 30
PAGES = 64
STREAMS = 4  # of one account: no address makes 64 accounts in a minute
# Two weeks of an open tab: 100,000 runs, in bursts, with a new stream every hour.
EVENTS, RECONNECTS = 100_000, 336
MOST_GROWTH = 1_000_000


def paints(page):
    """First paint and the list shown, in ms since the address was opened."""
    return page.run_async(
        "const done = arguments[0]; const look = () => document.querySelectorAll('#cue-list tbody tr').length >= 50"
        " ? requestAnimationFrame(() => setTimeout(() => done([performance.getEntriesByName('first-contentful-paint')[0]"
        ".startTime, performance.now()]))) : setTimeout(look, 5); look()"
    )


@test
def first_paint_and_a_list_of_100_cues_on_a_slow_machine(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (200, "")
    for number in range(CUES):
        server.cue(f"cue {number}", world.receiver.url + "/hook", schedule={"type": "recurring", "cron": "0 * * * *", "timezone": "UTC"})
    server.advance(f"PT{RUNS // 10}H")
    page.devtools("Network.enable")
    page.devtools("Network.emulateNetworkConditions", **SLOW)
    page.devtools("Emulation.setCPUThrottlingRate", rate=4)
    figures = []
    try:
        for _ in range(ROUNDS):
            page.open("about:blank")
            page.devtools("Network.clearBrowserCache")
            page.open(page.url + "#/cues")
            figures.append(paints(page))
    finally:
        page.devtools("Emulation.setCPUThrottlingRate", rate=1)
        page.devtools("Network.emulateNetworkConditions", **{**SLOW, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})
    first, listed = (statistics.median(column) for column in zip(*figures))
    requests = page.run("return performance.getEntriesByType('resource').length + 1")
    world.report(f"slow rig: first paint {first:.0f} ms, list {listed:.0f} ms, {requests} requests (prototype 244 / 740, PocketBase 1,780)")


COUNTED = """
const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
return [all.length, all.reduce((sum, one) => sum + one.encodedBodySize, 0)];
"""
MOST_BYTES = 60 << 10


@test
def a_first_visit_signed_out_and_of_a_new_account_takes_60_kib(world):
    server = world.serve()
    page = world.page.at(server.url)
    for who, screen, most in (("signed out", "sign_in", 28), ("new account", "overview", 42)):
        if who == "new account":
            server.new_account()
            page.sign_in(server.key)
            page.open("about:blank")
        page.devtools("Network.clearBrowserCache")
        page.show("", screen)
        page.see("Create account" if screen == "sign_in" else "No cue yet")
        if screen == "overview":
            page.see("Live", "#tools")
        requests, size = page.run(COUNTED)
        world.report(f"{who}: {size:,} bytes of bodies in {requests} requests")
        check(size <= MOST_BYTES and requests <= most, f"{who}: {size} bytes in {requests} requests")


def heap(page):
    page.devtools("HeapProfiler.collectGarbage")
    page.devtools("HeapProfiler.collectGarbage")
    return page.devtools("Runtime.getHeapUsage")["usedSize"]


# A stream of the test in place of the server's: what a tab receives in two weeks.
STREAM = """
window.streams = [];
window.EventSource = class extends EventTarget {
  static CLOSED = 2;
  constructor(url) { super(); this.url = url; this.readyState = 1; streams.push(this); if (streams.length > 2) streams.shift(); }
  close() { this.readyState = 2; }
  tell(type, data, id) { this.dispatchEvent(Object.assign(new MessageEvent(type, {data: JSON.stringify(data), lastEventId: id}))); }
};
"""
# All of a quarter runs within the page: each script of the test would leave some KB behind.
FLOOD = """
const [from, turns, part, done] = arguments;
const frame = () => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
const at = new Date().toISOString();
const flood = async () => {
  for (let turn = from; turn < from + turns; turn++) {
    const stream = streams.at(-1);
    stream.onerror?.({});
    stream.tell("hello", {time: at, build: "", version: "1", test_clock: false, held: false, resumed: true}, "a-" + turn);
    for (let i = turn * part; i < (turn + 1) * part; i++) {
      const id = "018f0000-0000-7000-8000-" + String(i).padStart(12, "0");
      for (const step of ["created", "started", "succeeded"])
        stream.tell("execution." + step, {execution_id: id, cue_id: "cue_" + i % 50, cue_name: "cue", status: "success", at}, "a-" + i);
    }
    await frame();
    if (turn % 14 === 13) location.hash = ["#/", "#/cues", "#/runs", "#/alerts"][(turn / 14 | 0) % 4];
  }
  location.hash = "#/runs";
  await frame();
  done(true);
};
flood();
"""


@test
def two_weeks_of_an_open_tab_leave_its_memory_flat(world):
    server = world.signed_in()
    page = world.page
    for number in range(50):
        server.cue(f"cue {number}")
    script = page.devtools("Page.addScriptToEvaluateOnNewDocument", source=STREAM)["identifier"]
    page.show("#/runs", "runs")
    sizes = []
    for quarter in range(5):
        # The first time loads every screen, and is not counted.
        page.run_async(FLOOD, quarter * RECONNECTS // 4, RECONNECTS // 4, EVENTS // RECONNECTS)
        page.loaded("runs")
        sizes.append(heap(page))
        page.log("performance")
    page.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    page.show("#/")
    world.report("heap in quarters of two weeks: " + ", ".join(f"{size / 1e6:.2f} MB" for size in sizes[1:]))
    check(sizes[-1] - sizes[1] < MOST_GROWTH, sizes)


def resident(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


@test
def the_memory_of_a_server_with_64_open_pages(world):
    server = world.serve(base=(*BASE, "--limits", "off"))
    accounts = [server.account()[0] for _ in range(PAGES // STREAMS)]
    keys = [key for key in accounts for _ in range(STREAMS)]
    before = resident(server.pid)
    streams = []
    for key in keys:
        stream = http.client.HTTPConnection("127.0.0.1", int(server.port), timeout=60)
        stream.request("GET", "/v1/events", headers={"Authorization": f"Bearer {key}"})
        answer = stream.getresponse()
        check(answer.status == 200 and answer.fp.readline(), answer.status)
        streams.append((stream, answer))
    for path in ("/", "/v1/overview", "/v1/cues", "/v1/auth/me", "/v1/info"):
        for key in keys:
            asked = http.client.HTTPConnection("127.0.0.1", int(server.port), timeout=60)
            asked.request("GET", path, headers={"Authorization": f"Bearer {key}"})
            asked.getresponse().read()
            asked.close()
    after = resident(server.pid)
    world.report(f"server: {before:.1f} MiB resident, {after:.1f} MiB with {PAGES} open pages")
    for stream, answer in streams:
        answer.close()
        stream.close()


@test
def an_idle_server_with_an_open_page_writes_nothing(world):
    server = world.signed_in(base=(*BASE, "--limits", "off"))
    page = world.page
    page.see("Live", "#tools")
    files = [server.db + end for end in ("", "-wal")]
    seen = {"state": None, "since": time.monotonic()}

    def quiet():
        state = [(os.stat(file).st_mtime_ns, os.stat(file).st_size) for file in files if os.path.exists(file)]
        if state != seen["state"]:
            seen.update(state=state, since=time.monotonic())
        return time.monotonic() - seen["since"] > 5

    until("five seconds without a write", quiet)
