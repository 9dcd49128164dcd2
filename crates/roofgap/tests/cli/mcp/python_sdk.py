"""Drives the server given as command line with the Python SDK, which checks every answer against its schema."""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

CAPTURE = "h200/llama4.sqlite.gz"
CALLS = {
    "list": {},
    "summary": {"input": CAPTURE},
    "findings": {"input": CAPTURE},
    "kernels": {"input": CAPTURE, "filter": "gemm"},
    "steps": {"input": CAPTURE},
    "timeline": {"input": CAPTURE, "limit": 3},
    "compare": {"base": CAPTURE, "head": CAPTURE},
    "explain": {"input": CAPTURE, "finding": "launch-bound"},
}


def field(value, *names):
    """Returns an attribute under the name that this version of the SDK has."""
    for name in names:
        if hasattr(value, name):
            return getattr(value, name)
    raise AttributeError(names)


async def main() -> None:
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == set(CALLS), [tool.name for tool in tools]
        for name, arguments in CALLS.items():
            result = await session.call_tool(name, arguments)
            assert not field(result, "isError", "is_error"), (name, result)
            assert field(result, "structuredContent", "structured_content"), name
        refused = await session.call_tool("summary", {"input": "/etc/passwd"})
        assert field(refused, "isError", "is_error"), refused
        print(len(tools), "tools")


asyncio.run(main())
