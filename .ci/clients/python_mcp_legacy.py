"""The Python SDK 1.x (PyPI `mcp<2`), which speaks MCP 2025-11-25, drives the stack, its experimental tasks
too. Usage: python_mcp_legacy.py URL
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import Any

import httpx
import mcp.types as types
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client

URL = sys.argv[1]
VERSION = "2025-11-25"
UNKNOWN_TASK = "01900000-0000-7000-8000-000000000000"
RELATED = "io.modelcontextprotocol/related-task"
# Without a session a call that shall be asked says so itself.
ASKABLE = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}

asked: list[types.ElicitRequestParams] = []


async def answer(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    asked.append(params)
    return types.ElicitResult(action="accept", content={"charts": True})


@asynccontextmanager
async def session_of(user: str | None):
    headers = {} if user is None else {"Authorization": f"Bearer {user}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        async with streamable_http_client(URL, http_client=http) as (read, write, session_id):
            async with ClientSession(read, write, elicitation_callback=answer) as session:
                started = await session.initialize()
                assert started.protocolVersion == VERSION, started
                assert session_id() is None, "a session was begun"
                yield session, started


def text(result: types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


def step(name: str) -> None:
    print(f"- {name}", flush=True)


async def refused(awaitable: Any, code: int) -> str:
    try:
        await awaitable
    except McpError as error:
        assert error.error.code == code, error.error
        return error.error.message
    raise AssertionError(f"nothing was refused with {code}")


async def run(session: ClientSession, tool: str, arguments: dict[str, Any], meta: dict[str, Any] | None = None) -> Any:
    """Calls a tool as a task and polls it: the task as it was at last."""
    created = await session.experimental.call_tool_as_task(tool, arguments, meta=meta)
    assert created.task.status == "working", created
    assert created.task.pollInterval and created.task.ttl, created
    async for task in session.experimental.poll_task(created.task.taskId):
        last = task
        if task.status == "input_required":
            # Asked on this stream; the answer goes in a request of its own.
            await session.experimental.get_task_result(task.taskId, types.CallToolResult)
    return last


async def result_of(session: ClientSession, task_id: str) -> types.CallToolResult:
    return await session.experimental.get_task_result(task_id, types.CallToolResult)


async def main() -> None:
    async with session_of("alice") as (session, started):
        step("initialize, ping and list")
        tasks = started.capabilities.tasks
        assert tasks and tasks.list is not None and tasks.cancel is not None, started.capabilities
        assert tasks.requests and tasks.requests.tools and tasks.requests.tools.call is not None
        await session.send_ping()
        listed = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert listed["slow_compute"].execution.taskSupport == "optional", listed["slow_compute"]
        assert listed["failing_job"].execution.taskSupport == "required"

        step("ordinary calls")
        assert text(await session.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"
        assert text(await session.call_tool("slow_compute", {"seconds": 1}))
        progress: list[float] = []

        async def report(at: float, _total: float | None, _message: str | None) -> None:
            progress.append(at)

        await session.call_tool("test_tool_with_progress", {}, progress_callback=report)
        assert len(progress) >= 3, progress
        await refused(session.call_tool("no_such_tool", {}), -32602)
        await refused(session.call_tool("failing_job", {}), -32601)

        step("a task to its end")
        done = await run(session, "slow_compute", {"seconds": 2})
        assert done.status == "completed", done
        result = await result_of(session, done.taskId)
        assert text(result) and result.meta == {RELATED: {"taskId": done.taskId}}, result

        step("a task that asks, as far as its call allows")
        built = await run(session, "build_report", {"month": "2026-10"}, ASKABLE)
        assert built.status == "completed", built
        assert len(asked) == 1, asked
        quiet = await run(session, "build_report", {"month": "2026-11"})
        assert quiet.status in ("completed", "failed") and len(asked) == 1, (quiet, asked)

        step("what a task does when a tool or the protocol fails")
        failed = await run(session, "failing_job", {})
        assert failed.status == "failed", failed
        assert (await result_of(session, failed.taskId)).isError
        broken = await run(session, "protocol_error_job", {})
        assert broken.status == "failed", broken
        try:
            await result_of(session, broken.taskId)
            raise AssertionError("a failed task has a result")
        except McpError:
            pass
        await refused(session.experimental.call_tool_as_task("greet", {"name": "Ada"}), -32601)

        step("cancel")
        long = await session.experimental.call_tool_as_task("slow_compute", {"seconds": 60})
        cancelled = await session.experimental.cancel_task(long.task.taskId)
        assert cancelled.status == "cancelled", cancelled
        message = await refused(session.experimental.cancel_task(long.task.taskId), -32602)
        assert "already in terminal status" in message, message

        step("list, and only one's own")
        mine: set[str] = set()
        cursor: str | None = None
        while True:
            page = await session.experimental.list_tasks(cursor)
            mine |= {task.taskId for task in page.tasks}
            cursor = page.nextCursor
            if cursor is None:
                break
        assert {done.taskId, built.taskId, failed.taskId, long.task.taskId} <= mine, mine
        async with session_of("bob-python-legacy") as (bob, _):
            assert (await bob.experimental.list_tasks()).tasks == []
            for task_id in (done.taskId, UNKNOWN_TASK):
                for attempt in (
                    bob.experimental.get_task(task_id),
                    bob.experimental.cancel_task(task_id),
                    result_of(bob, task_id),
                ):
                    assert "Task not found" in await refused(attempt, -32602)
        async with session_of(None) as (nobody, anonymous):
            assert anonymous.capabilities.tasks.list is None, anonymous.capabilities
            await refused(nobody.experimental.list_tasks(), -32601)
    print("python mcp legacy: every step held")


asyncio.run(main())
