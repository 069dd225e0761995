"""The server that is checked."""

import http.client
import time
from urllib.parse import urlsplit

from values import as_text, read_json

# Seconds for a response.
PATIENCE = 20

# What the library raises if there is no response.
NO_RESPONSE = (OSError, http.client.HTTPException, ValueError)


class Response:
    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode(errors="replace")
        self.json = read_json(self.text)

    def __str__(self):
        return f"{self.status} {self.text}"


class Server:
    def __init__(self, url, key, has_test_clock):
        parts = urlsplit(url)
        self.connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.host, self.prefix = parts.netloc, parts.path.rstrip("/")
        self.key, self.has_test_clock = key, has_test_clock

    def call(self, method, path, headers, body=None):
        """Makes a request on a connection of its own; a header that is None is left out. Errors: NO_RESPONSE."""
        connection = self.connection(self.host, timeout=PATIENCE)
        defaults = {"authorization": f"Bearer {self.key}", "connection": "close", "content-type": "application/json"}
        headers = {name: as_text(value) for name, value in {**defaults, **headers}.items() if value is not None}
        try:
            connection.request(method, self.prefix + path, None if body is None else as_text(body).encode(), headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # A server that refuses early may close before everything is sent; its response can be read.
        try:
            return Response(connection.getresponse())
        finally:
            connection.close()

    def pause(self, seconds):
        if self.has_test_clock:
            self.call("POST", "/v1/test/clock", {}, {"advance": f"PT{seconds}S"})
        else:
            time.sleep(seconds)
