"""The page when the server stops, the file is held or full, or the key is gone."""

import contextlib
import os
import subprocess
import tempfile

from rig import BASE, FROZEN, Server, check, test

AWAY = (
    "ERR_CONNECTION_REFUSED",
    "ERR_CONNECTION_RESET",
    "ERR_EMPTY_RESPONSE",
    "ERR_INCOMPLETE_CHUNKED_ENCODING",
    "Failed to load module",
)
ALL = (*BASE, *FROZEN, "--limits", "off")


@test
def after_a_restart_the_page_is_live_again_and_has_what_it_missed(world):
    server = world.signed_in()
    page = world.page
    page.see("Live", "#tools")
    page.expect(*AWAY)
    server.stop()
    page.see("Not live", "#tools")
    page.see("Not live", "#tools")
    page.see("Not live", "[data-banner=live]")
    server.begin_again()
    server.cue("made meanwhile")
    page.see("Live", "#tools")
    page.see("made meanwhile", "#next")
    page.wait("the banner to go", lambda: not page.is_shown("[data-banner=live]"))


@test
def an_act_while_the_server_is_away_is_told(world):
    server = world.signed_in()
    page = world.page
    cue = server.cue("sync")
    page.go(f"#/cues/{cue['id']}", "cue")
    page.expect(*AWAY)
    server.stop()
    page.click("#pause")
    page.see("The server does not respond", "#toasts")
    page.go("#/workers")
    page.see("could not be loaded. The server does not respond.", "#screen")
    server.begin_again()
    page.see("No worker yet")
    check(page.hash() == "#/workers", page.hash())


@test
def a_revoked_key_leads_to_the_sign_in_and_back_to_the_same_place(world):
    server = world.signed_in()
    page = world.page
    page.expect("status of 401")
    old = server.key
    new = server.post("/v1/auth/keys", {"name": "second"})
    cue = server.cue("sync")
    page.go(f"#/cues/{cue['id']}", "cue")
    first = next(key for key in server.get("/v1/auth/keys")["keys"] if old.startswith(key["prefix"]))
    server.key = new["api_key"]
    server.call("DELETE", f"/v1/auth/keys/{first['id']}", key=server.key)
    # Without a wait: the page may have noticed it by itself.
    page.run("document.querySelector('#pause')?.click()")
    page.loaded("sign_in")
    check(page.hash() == f"#/cues/{cue['id']}", "the address is kept")
    page.fill("#key-api_key", server.key)
    page.press("Enter")
    page.loaded("cue")
    page.see("sync", "h1")
    check(server.get(f"/v1/cues/{cue['id']}")["status"] == "active", "nothing was half done")


@test
def a_restored_copy_says_that_it_is_held(world):
    server = world.serve()
    server.new_account()
    server.cue("sync")
    folder = world.enter_context(tempfile.TemporaryDirectory())
    backup, copy = os.path.join(folder, "backup.db"), os.path.join(folder, "copy.db")
    server.administer("backup", backup)
    done = subprocess.run([world.program, "restore", backup, "--db", copy], capture_output=True, text=True, check=False)
    check(done.returncode == 0, done.stderr)
    held = Server(world.program, base=("--test-clock", *BASE, "--limits", "off"))
    held.place = copy
    held.key = server.key
    world.enter_context(held)
    page = world.page.at(held.url)
    page.sign_in(held.key)
    page.see("This is a restored copy on hold: nothing fires.", "[data-banner=held]")
    page.see("Promote…", "[data-banner=held] a")


@contextlib.contextmanager
def small_disk(size):
    """A file system in memory, or `None` where this process may not mount one."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "cued-test", folder]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            yield None
            return
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


@test
def a_full_disk_is_told_and_ends_by_itself(world):
    folder = world.enter_context(small_disk("24m"))
    if folder is None:
        world.report("SKIPPED: no disk can be mounted here")
        return
    server = Server(world.program, base=ALL)
    server.place = os.path.join(folder, "cued.db")
    world.enter_context(server)
    server.new_account()
    cue = server.cue("sync")
    page = world.page.at(server.url)
    page.expect("status of 503", "status of 401")
    filler = os.path.join(folder, "filler")
    fill(filler)
    page.show("", "sign_in")
    page.fill("#key-api_key", server.key)
    page.press("Enter")
    page.see("The database cannot be used now: the disk may be full; try again in 5 s")
    os.remove(filler)
    page.wait("the first sign-in that succeeds", lambda: sign_in(page))
    page.go(f"#/cues/{cue['id']}", "cue")
    fill(filler)
    page.click("#pause")
    page.see("The database cannot be written: the disk may be full.", "[data-banner=disk]")
    os.remove(filler)
    page.wait("the first change that succeeds", lambda: pause(page))
    page.wait("the banner to go", lambda: not page.is_shown("[data-banner=disk]"))


def fill(filler):
    """Writes until the disk has no byte left."""
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def sign_in(page):
    if page.is_shown("#key-api_key"):
        page.press("Enter")
    return "sync" in page.words()


def pause(page):
    if not page.is_shown("#pause", "Resume"):
        page.click("#pause")
    return page.is_shown("#pause", "Resume")
