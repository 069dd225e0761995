"""A client of the API, and its event streams, for many callers in one thread."""

import asyncio
import json
import time

# The server closes a connection that is idle for 75 seconds.
IDLE_S = 50
CONNECTION_ERRORS = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)


class Gone(Exception):
    """The server ended before it answered: what was asked may have been done."""


class Refused(Exception):
    """The server answered something else than was expected."""


class Api:
    """One connection, for one request at a time."""

    def __init__(self, port, key=None):
        self.port, self.key = port, key
        self._reader = self._writer = None
        self._used_at = 0

    async def call(self, method, path, body=None, expect=None):
        """The status and the JSON of a response. Another status than one of `expect` raises `Refused`."""
        if time.monotonic() > self._used_at + IDLE_S:
            self.close()
        self._used_at = time.monotonic()
        try:
            status, reply = await asyncio.wait_for(self._exchange(method, path, body), 60)
        except CONNECTION_ERRORS as error:
            self.close()
            raise Gone(repr(error)) from error
        if expect and status not in expect:
            raise Refused(f"{method} {path}: {status} {reply}")
        return status, reply

    async def _exchange(self, method, path, body):
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        data = b"" if body is None else json.dumps(body).encode()
        self._writer.write(self._head(method, path, len(data)) + data)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith("content-length:")), 0)
        reply = await self._reader.readexactly(length)
        if "connection: close" in lines:
            self.close()
        return int(lines[0].split(" ")[1]), json.loads(reply or b"null")

    def _head(self, method, path, length):
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{key}Content-Length: {length}\r\n\r\n".encode()

    async def follow(self, path, note):
        """An event stream, until it ends: calls `note` with the number of events in each piece that arrives."""
        try:
            reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
            self._writer.write(self._head("GET", path, 0))
            while piece := await reader.read(1 << 16):
                note(piece.count(b"\nevent: "))
        except CONNECTION_ERRORS as error:
            raise Gone(repr(error)) from error
        finally:
            self.close()

    def close(self):
        if self._writer:
            self._writer.close()
        self._reader = self._writer = None
