"""Pictures of the fixed story: all of them for whoever looks, and those of the README where PICTURES=1 asks for it."""

import base64
import os
import struct
import zlib
from collections import Counter

from rig import check, test
from story import Story

SCREENS = (("phone", 360, 780), ("desktop", 1280, 860))
LOOKS = [(scheme, *screen) for scheme in ("light", "dark") for screen in SCREENS]
README = os.path.join(".github", "images")
MOST_BYTES = 100_000


COLOURS = 256
PIXELS = """
const [data, done] = arguments;
fetch("data:image/png;base64," + data).then((answer) => answer.blob()).then(createImageBitmap).then((image) => {
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const bytes = canvas.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  done([image.width, image.height, btoa(text)]);
});
"""


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def with_few_colours(page, source, path):
    """Writes a picture again with its 256 most frequent colours: a third of the bytes, and no eye sees it."""
    with open(source, "rb") as file:
        page.open("about:blank")
        width, height, text = page.run_async(PIXELS, base64.b64encode(file.read()).decode())
    pixels = memoryview(base64.b64decode(text)).cast("I")
    counted = Counter(pixels)
    kept = [colour.to_bytes(4, "little")[:3] for colour, _ in counted.most_common(COLOURS)]

    def nearest(colour):
        red, green, blue = colour.to_bytes(4, "little")[:3]
        return min(range(len(kept)), key=lambda at: abs(kept[at][0] - red) + abs(kept[at][1] - green) + abs(kept[at][2] - blue))

    place = {colour: nearest(colour) for colour in counted}
    rows = [bytes(map(place.__getitem__, pixels[at : at + width])) for at in range(0, len(pixels), width)]
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    packed = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"PLTE", b"".join(kept)))
        file.write(chunk(b"IDAT", packed) + chunk(b"IEND", b""))


@test
def pictures_of_the_story(world):
    server = world.serve()
    server.key = server.call("POST", "/v1/auth/register", {"email": "ann@example.com"})["api_key"]
    story = Story(server, world.receiver)
    page = world.page.at(server.url)
    page.sign_in(server.key)
    wanted = {"overview": "#/", "cue": f"#/cues/{story.backup['id']}", "run": f"#/runs/{story.failed['id']}",
              "editor": f"#/cues/{story.backup['id']}/edit", "cues": "#/cues", "runs": "#/runs", "workers": "#/workers",
              "alerts": "#/alerts", "notifications": "#/notifications",
              "plan": "#/account/plan", "keys": "#/account/keys", "settings": "#/settings"}
    for scheme, screen, width, height in LOOKS:
        page.look(scheme, width, height)
        page.show("#/", "overview")
        page.wait("the stream", lambda: page.count("#tools .live.on") == 1)
        for name, hash in wanted.items():
            page.go(hash, name)
            page.run("document.querySelector('[data-banner=clock]').style.display = 'none'")
            path = os.path.join(world.folder, f"{name}-{scheme}-{screen}.png")
            page.screenshot(path)
    for scheme in ("light", "dark"):
        for name in ("overview", "run"):
            for_readme(page, os.path.join(world.folder, f"{name}-{scheme}-desktop.png"), os.path.join(README, f"{name}-{scheme}.png"))


def size_of(path):
    with open(path, "rb") as file:
        return struct.unpack(">II", file.read(24)[16:24])


def for_readme(page, made, kept):
    if os.environ.get("PICTURES"):
        os.makedirs(README, exist_ok=True)
        with_few_colours(page, made, kept)
    check(os.path.getsize(kept) <= MOST_BYTES, f"{kept}: {os.path.getsize(kept)} bytes")
    check(size_of(kept) == size_of(made), f"{kept} has another size: rebuild it with PICTURES=1")
