"""FastMCP's client waits for one task that takes a while. Usage: python_fastmcp_waits.py URL SECONDS

It polls by itself: after 20, 40, 80 ms … up to what the server asks for.
"""

from __future__ import annotations

import asyncio
import sys

import fastmcp_tasks  # noqa: F401  (Importing it is what turns the client's task support on.)
from fastmcp import Client

URL, SECONDS = sys.argv[1], float(sys.argv[2])


async def main() -> None:
    async with Client(URL, auth="alice") as client:
        result = await client.call_tool("slow_compute", {"seconds": SECONDS})
        text = "".join(block.text for block in result.content)
        assert text.startswith("Computed"), text
    print("fastmcp: the result came")


asyncio.run(main())
