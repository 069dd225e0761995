"""The published client of the Model Context Protocol, unmodified, against `cued mcp`: agent.py PATH-TO-CUED

It parses every message by the models of the version that both speak: the newest one, and the newest with a handshake.
"""

import asyncio
import os
import sys

from mcp import Client, MCPError, StdioServerParameters, stdio_client
from rows import Rows, contains, same
from server import Cued

rows = Rows("mcp")


class World:
    def __init__(self, server):
        key, _ = server.account()
        # Nothing but these two: the client passes little of its own environment on.
        self.env = {"CUED_URL": server.url, "CUED_API_KEY": key}
        self.program = os.path.abspath(server.program)

    def talk(self, mode, conversation):
        async def run():
            parameters = StdioServerParameters(command=self.program, args=["mcp"], env=self.env)
            async with Client(stdio_client(parameters), mode=mode) as client:
                await conversation(client)

        asyncio.run(run())


async def journey(client):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    same(tools["deleteCue"].annotations.destructive_hint, True)
    cue = {"name": "report", "transport": "worker", "schedule": {"type": "recurring", "cron": "@daily"}}
    created = await client.call_tool("createCue", cue)
    cue_id = created.structured_content["id"]
    same(created.is_error or False, False)
    failed = await client.call_tool("createCue", {**cue, "schedule": {"type": "recurring", "cron": "0 25 * * *"}})
    same(failed.is_error, True)
    contains(failed.content[0].text, "hour: 25 is out of range", "previewSchedule")
    deleted = await client.call_tool("deleteCue", {"cue_id": cue_id})
    same(deleted.content[0].text, "Done.")
    try:
        await client.call_tool("dropTables", {})
    except MCPError as error:
        same(error.code, -32602)
    else:
        raise AssertionError("a tool that does not exist was called")


@rows.shows("the newest version")
def newest(world):
    async def conversation(client):
        same(client.protocol_version, "2026-07-28")
        await journey(client)

    world.talk("auto", conversation)


@rows.shows("the newest version with a handshake")
def handshake(world):
    async def conversation(client):
        same(client.protocol_version, "2025-11-25")
        same(client.server_info.name, "cued")
        await journey(client)

    world.talk("legacy", conversation)


if __name__ == "__main__":
    with Cued(sys.argv[1]) as server:
        sys.exit(rows.run(World(server), {}))
