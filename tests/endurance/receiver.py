"""The receiver of the webhooks: answers what the ledger says, which notes every arrival before the answer."""

import asyncio
import re
import time

HEADERS = re.compile(rb"\r\nx-cueapi-(cue-id|execution-id|scheduled-for|attempt): ([^\r]*)", re.IGNORECASE)
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
ANSWERS = {
    200: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    500: b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
}
# Each is a destination of its own for the server, which shares its threads among them.
HOSTS = [f"127.0.0.{number}" for number in range(11, 31)]


class Connection(asyncio.Protocol):
    def __init__(self, ledger):
        self.ledger, self.data = ledger, b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[: end + 2]
            length = LENGTH.search(head)
            rest = end + 4 + (int(length[1]) if length else 0)
            if len(self.data) < rest:
                return
            self.data = self.data[rest:]
            fields = {name.lower(): value.decode() for name, value in HEADERS.findall(head)}
            answer = self.ledger.arrived(
                fields[b"cue-id"], fields[b"execution-id"], fields[b"scheduled-for"], int(fields[b"attempt"]), time.time()
            )
            # Without one the server waits until its timeout, and closes the connection.
            if answer:
                self.transport.write(ANSWERS[answer])


async def listen(ledger):
    """The listening receiver, and the URL of each of its destinations."""
    loop = asyncio.get_running_loop()
    first = await loop.create_server(lambda: Connection(ledger), HOSTS[0], 0, backlog=1024)
    port = first.sockets[0].getsockname()[1]
    others = await loop.create_server(lambda: Connection(ledger), HOSTS[1:], port, backlog=1024)
    return [first, others], [f"http://{host}:{port}/" for host in HOSTS]
