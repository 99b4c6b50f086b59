"""A server with fastmcp, as its users write them: nothing of it knows of mcp-tasks."""

import asyncio
import sys

from fastmcp import Context, FastMCP
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

mcp = FastMCP("slow python")
mcp.add_extension(TasksExtension())
port, ledger = int(sys.argv[1]), sys.argv[2]


def note(word: str) -> None:
    with open(ledger, "a") as file:
        file.write(word + "\n")


async def work(seconds: int, ctx: Context) -> None:
    for second in range(seconds):
        await ctx.report_progress(second, seconds, f"second {second}")
        await asyncio.sleep(1)


@mcp.tool(annotations={"readOnlyHint": True})
async def look(seconds: int, ctx: Context) -> dict:
    """Looks at something for a while."""
    note("look")
    await work(seconds, ctx)
    return {"looked": seconds}


@mcp.tool
async def act(seconds: int, ctx: Context) -> str:
    """Does something that must not be done twice."""
    note("act")
    await work(seconds, ctx)
    return "acted"


@mcp.tool
async def ask(ctx: Context) -> str:
    """Asks before it answers."""
    answer = await ctx.elicit("Which colour?", response_type=str)
    return f"{answer.action} {getattr(answer, 'data', None)}"


async def colour(ctx: Context) -> str | InputRequiredResult:
    if not ctx.input_responses:
        schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
        params = ElicitRequestFormParams(message="Which colour?", requested_schema=schema)
        return InputRequiredResult(input_requests={"colour": ElicitRequest(params=params)}, request_state="asked")
    return f"painted {ctx.input_responses['colour'].content['colour']}"


@mcp.tool
async def paint(ctx: Context) -> str:
    """Asks by several round trips."""
    return await colour(ctx)


@mcp.tool(task=True)
async def paint_later(ctx: Context) -> str:
    """Asks in a task of this server's own."""
    note("paint_later")
    return await colour(ctx)


@mcp.tool(task=True)
async def build(seconds: int, ctx: Context) -> str:
    """Works in a task of this server's own."""
    note("build")
    await work(seconds, ctx)
    note("built")
    return "built"


@mcp.tool
async def fail() -> str:
    """Fails."""
    raise ValueError("no such thing")


@mcp.resource("note://one", mime_type="text/plain")
def first_note() -> str:
    """The first note."""
    return "the first note"


@mcp.resource("note://{year}/all", mime_type="text/plain")
def notes_of(year: str) -> str:
    """All notes of a year."""
    return f"all of {year}"


@mcp.prompt
def greet(who: str) -> str:
    """Greets somebody."""
    return f"Hello, {who}!"


mcp.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
