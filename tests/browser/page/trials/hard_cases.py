"""Places and contents that break pages: plain HTTP, proxies, many tabs, hostile names, big numbers, many rows."""

import http.client
import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from driver import PLAIN_HOST
from rig import check, test

HOSTILE = [
    "<img src=x onerror=\"document.title='owned'\"><b>bold</b>",
    "${alert(1)} {{build}} <script>document.title='owned'</script>",
    "مرحبا بالعالم \u202egnp.elif",
    "W" * 255,
    "ab " * 85,
]
BIG = "12345678901234567890"


class Below:
    """A proxy that shows a server below a path."""

    def __init__(self, server, prefix):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
                if not self.path.startswith(prefix + "/"):
                    return self.send_error(404)
                there = http.client.HTTPConnection("127.0.0.1", int(server.port), timeout=60)
                headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
                there.request(self.command, self.path[len(prefix) :], body, headers)
                answer = there.getresponse()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                while piece := answer.read1(65536):
                    self.wfile.write(piece)
                    self.wfile.flush()
                there.close()

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        ThreadingHTTPServer.request_queue_size = 128  # Python's 5 delays a burst
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self.server.server_port}{prefix}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def copied(page):
    """The text of a copy button, read back by pasting into a field of the test."""
    page.run(
        "const area = document.body.appendChild(document.createElement('textarea')); area.id = 'pasted'; area.focus()"
    )
    page.press("Control+v")
    text = page.run("const area = document.getElementById('pasted'); const text = area.value; area.remove(); return text")
    return text


@test
def a_name_of_the_home_network_is_no_secure_context_and_works(world):
    server = world.serve("--allow-host", PLAIN_HOST)
    page = world.page.at(f"http://{PLAIN_HOST}:{server.port}")
    page.expect("status of 401")
    page.look("light", 360, 780)
    page.show("", "sign_in")
    check(page.run("return !isSecureContext && !navigator.clipboard && !crypto.randomUUID"), "no secure context")
    page.fill("#new-email", "ann@example.com")
    page.click("#way-new button")
    key = page.words("dialog code") or page.wait("the key", lambda: page.words("dialog code"))
    page.click("dialog button", "Copy")
    page.see("Copied", "#toasts")
    page.click("dialog button", "I stored it")
    page.see("No cue yet")
    check(copied(page) == key, "the key was copied")
    # First cue, fire, fail, read the answer, replay with another payload.
    world.receiver.answers["/hook"] = (500, "no such bucket")
    page.click("#first-cue a", "New cue")
    page.fill("#f-url", world.receiver.url + "/hook")
    page.click("summary", "Payload")
    page.fill("#f-payload", '{"id": %s}' % BIG)
    page.click("summary", "Retries")
    page.fill("#f-attempts", "1")
    page.click(".editor button", "Create and fire")
    page.loaded("run")
    page.see("the URL returned 500", "#why")
    page.click("#nav a", "Overview")
    page.click("#failing a[data-run]")
    page.see("no such bucket", ".timeline")
    world.receiver.answers["/hook"] = (200, "")
    page.click("#action-edited")
    page.fill("#d-payload_override", '{"id": 1%s}' % BIG)
    page.click("dialog button", "Fire")
    page.see("Succeeded at the first attempt", "#why")
    bodies = [world.take("/hook")[2], world.take("/hook")[2]]
    check(BIG in bodies[0] and "1" + BIG in bodies[1], bodies)
    check(not page.overflows(), "no sideways scrolling")


@test
def requests_of_another_site_are_refused(world):
    server = world.serve("--allow-host", PLAIN_HOST)
    server.new_account()
    page = world.page.at(f"http://{PLAIN_HOST}:{server.port}")
    page.sign_in(server.key)
    cookie = page.devtools("Network.getCookies", urls=[page.url])["cookies"][0]
    address = f"127.0.0.1:{server.port}"

    def status(method, path, **headers):
        sent = {"Host": f"{PLAIN_HOST}:{server.port}", "Cookie": f"{cookie['name']}={cookie['value']}", **headers}
        asked = http.client.HTTPConnection(address, timeout=30)
        asked.request(method, path, b"{}" if method != "GET" else None, {"Content-Type": "application/json", **sent})
        return asked.getresponse().status

    own = f"http://{PLAIN_HOST}:{server.port}"
    check(status("GET", "/v1/cues") == 200, "the cookie is good")
    check(status("POST", "/v1/schedule/preview", Origin="http://evil.lan") == 403, "another origin")
    check(status("POST", "/v1/schedule/preview") == 403, "no origin")
    check(status("POST", "/v1/schedule/preview", Origin=own) in (400, 422), "its own")
    check(status("GET", "/v1/cues", **{"Sec-Fetch-Site": "cross-site"}) == 403, "a read that a browser marks")
    check(status("GET", "/v1/cues", **{"Sec-Fetch-Site": "same-site"}) == 403, "another port is another site")
    check(status("GET", "/", Host="evil.lan") == 403, "a name that was bound to this address later")
    # A browser itself, from a page of another origin.
    page.open("data:text/html,<title>evil</title>")
    page.expect("CORS", "status of 403", "Failed to load", "net::ERR_FAILED", "blocked")
    result = page.run_async(
        "const [url, done] = arguments; fetch(url + 'v1/cues', {method: 'POST', credentials: 'include', body: '{}'})"
        ".then((answer) => done(answer.status), () => done('refused'))",
        page.url,
    )
    check(result == "refused", result)
    check(server.get("/v1/cues")["total"] == 0, "nothing was made")


@test
def the_page_works_below_a_path_of_a_proxy(world):
    server = world.serve()
    server.new_account()
    world.receiver.answers["/hook"] = (200, "")
    cue = server.cue("sync", world.receiver.url + "/hook")
    proxy = Below(server, "/cued")
    page = world.page.at(proxy.url)
    page.expect("status of 401")
    page.show("", "sign_in")
    page.fill("#key-api_key", server.key)
    page.press("Enter")
    page.see("sync", "#next")
    page.see("Live")
    page.go("#/cues", "cues")
    page.click("#cue-list a.name")
    page.click("#fire")
    page.see("Succeeded at the first attempt", "#why")
    page.click("#screen button", "Copy…")
    page.click("#copy-as button", "curl")
    page.see("Copied", "#toasts")
    check("/cued/v1/executions/" in copied(page), "copied lines know the path")
    for path, screen in (("cues", "cues"), (f"cues/{cue['id']}/edit", "editor"), ("runs?status=failed", "runs")):
        page.open(proxy.url + path)
        page.loaded(screen)
        check(page.run("return location.href") == f"{proxy.url}#/{path}", path)
    proxy.server.shutdown()


@test
def the_seventh_tab_opens_too(world):
    server = world.signed_in()
    page = world.page
    server.cue("sync")
    page.expect("status of 429", "status of 503")
    tabs = [page.tab()]
    for _ in range(6):
        tabs.append(page.new_tab())
        page.open(page.url)
        page.see("sync", "#next")
    server.cue("made later")
    for tab in tabs:
        page.to_tab(tab)
        if "Not live" not in page.words("#tools"):
            page.see("made later", "#next")
    words = page.words("#tools")
    check("Live" in words or "Not live" in words, words)


@test
def pages_that_were_left_keep_no_stream(world):
    server = world.signed_in()
    page = world.page
    for _ in range(8):
        page.show("#/", "overview")
        page.see("Live", "#tools")
    # The browser shows the page that it kept.
    page.run("history.go(-2)")
    page.loaded("overview")
    server.cue("made later")
    page.see("made later", "#next")


@test
def hostile_names_are_text_everywhere(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (500, HOSTILE[0] + HOSTILE[2])
    cues = [
        server.cue(name, world.receiver.url + "/hook", description=name * 2 if len(name) < 200 else name,
                   retry={"max_attempts": 1, "backoff_minutes": [1]}, payload={name[:60]: name})
        for name in HOSTILE
    ]
    runs = [server.fire(server.key, cue["id"]) for cue in cues]
    server.settle()
    places = ["#/", "#/cues", "#/runs", "#/alerts"]
    places += [f"#/cues/{cue['id']}" for cue in cues] + [f"#/runs/{run}" for run in runs]
    places += [f"#/cues/{cues[0]['id']}/edit"]
    for width in (1280, 320):
        page.look("light", width, 800)
        page.show("#/", "overview")
        for place in places:
            page.go(place)
            check(page.count("main :is(img, b b, script)") == 0, f"{place}: no element of a name")
            check(page.title() != "owned", "no script of a name ran")
            check(not page.overflows(), f"{place} fits {width} px")
    page.go(places[0])
    page.see(HOSTILE[0], "#failing")


@test
def ten_thousand_cues_are_listed_searched_and_paused(world):
    server = world.signed_in()
    page = world.page
    total = 10_000
    body = {"name": "", "schedule": {"type": "recurring", "cron": "0 4 * * *"}, "callback": {"url": "http://127.0.0.1:9/"}}
    workers = [threading.Thread(target=fill, args=(server, body, range(start, total, 8))) for start in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    page.show("#/cues", "cues")
    page.see("1–50 of 10,000", "#cue-list")
    page.fill("#search", "job 9999")
    page.see("1 cue", "#cue-list")
    page.show("#/cues?status=active", "cues")
    page.click("#select-all", "Select all 10,000")
    page.click("#bulk-pause")
    page.see("10,000 cues paused", "#toasts")
    check(server.get("/v1/cues?status=paused&limit=1")["total"] == total, "all are paused")


def fill(server, body, numbers):
    connection = http.client.HTTPConnection("127.0.0.1", int(server.port), timeout=60)
    for number in numbers:
        text = json.dumps({**body, "name": f"job {number}"})
        connection.request("POST", "/v1/cues", text, {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        check(answer.status == 201, answer.status)


@test
def without_the_page_the_api_stays(world):
    server = world.serve("--page", "off")
    server.new_account()
    check(server.get("/v1/cues")["total"] == 0, "the API answers")
    try:
        urllib.request.urlopen(server.url + "/", timeout=30)
        raise AssertionError("the page is served")
    except urllib.error.HTTPError as error:
        check(error.code == 404, error.code)
