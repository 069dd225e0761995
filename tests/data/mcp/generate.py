"""Writes the schemas beside it: generate.py, in an environment with mcp-types 2.3.0.

The models of that package are generated from the official schema of each version of the protocol.
"""

import importlib
import json
from pathlib import Path

from pydantic import TypeAdapter

BOTH = "JSONRPCResultResponse JSONRPCErrorResponse ListToolsRequest ListToolsResult CallToolRequest CallToolResult"
HANDSHAKE = "InitializeRequest InitializeResult InitializedNotification CancelledNotification PingRequest EmptyResult"
STATELESS = "DiscoverRequest DiscoverResult UnsupportedProtocolVersionError"


def plain(schema, is_map=False):
    """Without texts, and without the null that stands for an absent field in Python."""
    if isinstance(schema, list):
        return [plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if not is_map:
        schema = {name: part for name, part in schema.items() if name not in ("title", "description")}
        if "anyOf" in schema and schema.get("default", "") is None:
            kinds = [kind for kind in schema.pop("anyOf") if kind != {"type": "null"}]
            del schema["default"]
            schema.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
    return {name: plain(part, name in ("properties", "$defs") and not is_map) for name, part in schema.items()}


for version, more in (("2025-11-25", HANDSHAKE), ("2026-07-28", STATELESS)):
    module = importlib.import_module("mcp_types._v" + version.replace("-", "_"))
    definitions = {}
    for name in f"{BOTH} {more}".split():
        schema = TypeAdapter(getattr(module, name)).json_schema()
        definitions.update(schema.pop("$defs", {}))
        if "$ref" not in schema:
            definitions[name] = schema
    definitions = plain({"$defs": dict(sorted(definitions.items()))})["$defs"]
    lines = [f"{json.dumps(name)}: {json.dumps(schema)}" for name, schema in definitions.items()]
    Path(__file__).with_name(f"{version}.json").write_text('{"$defs": {\n' + ",\n".join(lines) + "\n}}\n")
