"""A server with FastMCP whose one tool does nothing and becomes a task, kept in Redis.

FASTMCP_DOCKET_URL names the Redis; the argument is the port to listen on. A worker process is
`python -m fastmcp_tasks.worker_cli worker fastmcp_server.py`.
"""

import sys

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

mcp = FastMCP("peer")
mcp.add_extension(TasksExtension())


@mcp.tool(task=True)
async def noop(call: str) -> str:
    """Does nothing."""
    return call


if __name__ == "__main__":
    mcp.run(
        transport="http",
        host="127.0.0.1",
        port=int(sys.argv[1]),
        stateless_http=True,
        log_level="error",
        show_banner=False,
    )
