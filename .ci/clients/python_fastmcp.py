"""FastMCP's client with its tasks part (PyPI `fastmcp[tasks]`) drives the stack. Usage: python_fastmcp.py URL

It polls transparently, faster than it was told to, never sends `Mcp-Name` on `tasks/*`, and shows
of a failure only the message.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import fastmcp_tasks  # Importing it is what turns the client's task support on.
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.exceptions import ToolError
from mcp import MCPError

URL = sys.argv[1]
TASKS = "io.modelcontextprotocol/tasks"
IDEMPOTENCY_KEY = "io.github.mcp-tasks/idempotencyKey"

asked: list[str] = []


async def answer(message: str, _type: Any, _params: Any, _context: Any) -> ElicitResult:
    asked.append(message)
    return ElicitResult(action="accept", content={"charts": True})


def client_of(user: str) -> Client:
    return Client(URL, auth=user, elicitation_handler=answer)


async def start(client: Client, tool: str, arguments: dict[str, Any], key: str | None = None) -> fastmcp_tasks.ToolTask:
    meta = None if key is None else {IDEMPOTENCY_KEY: key}
    return await fastmcp_tasks.call_tool_task(client, tool, arguments, meta=meta)


def text(result: Any) -> str:
    return "".join(block.text for block in result.content)


def step(name: str) -> None:
    print(f"- {name}", flush=True)


async def main() -> None:
    async with client_of("alice") as client:
        step("discover and list")
        assert client.session.server_capabilities.extensions == {TASKS: {}}, client.session.server_capabilities
        listed = {tool.name for tool in await client.list_tools()}
        wanted = {"greet", "slow_compute", "build_report", "run_suite", "reindex_corpus"}
        assert wanted <= listed, f"not listed: {wanted - listed}"

        step("inline call")
        assert text(await client.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"

        step("one call that polls, answers the question and returns the result")
        result = await client.call_tool("build_report", {"month": "2026-10"})
        assert text(result), "build_report's result is empty"
        assert len(asked) == 1, f"the question was asked {len(asked)} times: {asked}"

        step("handle, poll, question, answer, completed")
        started = time.monotonic()
        task = await start(client, "build_report", {"month": "2026-11"})
        assert time.monotonic() - started < 5, "the handle did not come at once"
        assert (await task.status()).status == "working"
        parked = await task.wait(state="input_required", timeout=30)
        assert list(parked.input_requests) == ["charts"], parked.input_requests
        assert text(await task.result()), "build_report's result is empty"
        assert len(asked) == 2, f"the question was asked {len(asked) - 1} times"
        assert (await task.status()).status == "completed"

        step("resources, prompts and completions")
        assert "Static text" in {one.name for one in await client.list_resources()}
        assert "Template" in {one.name for one in await client.list_resource_templates()}
        assert "test_simple_prompt" in {one.name for one in await client.list_prompts()}
        assert (await client.read_resource("test://static-text"))[0].text
        assert (await client.read_resource("test://static-binary"))[0].blob
        assert "Data of 42" in (await client.read_resource("test://template/42/data"))[0].text
        try:
            await client.read_resource("test://none")
        except MCPError as error:
            assert error.code == -32602, error
        else:
            raise AssertionError("an unknown resource was read")
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "x", "arg2": "y"})
        assert "arg1='x', arg2='y'" in prompt.messages[0].content.text, prompt

        step("cancel")
        long = await start(client, "slow_compute", {"seconds": 60})
        await long.cancel()
        assert (await long.wait(timeout=15)).status == "cancelled"

        step("a tool's error completes, a protocol error fails")
        job = await start(client, "failing_job", {})
        assert (await job.wait(timeout=15)).status == "completed"
        try:
            await job.result()
        except ToolError:
            pass
        else:
            raise AssertionError("failing_job's result is not an error")
        job = await start(client, "protocol_error_job", {})
        failed = await job.wait(timeout=15)
        assert failed.status == "failed", failed.status
        assert isinstance(failed.error["code"], int) and failed.error["message"], failed.error

        step("another user's token")
        async with client_of("bob") as other:
            foreign = fastmcp_tasks.ToolTask(other, "build_report", task.create_result)
            try:
                shown = await foreign.status()
            except MCPError as error:
                refusal = (error.code, error.message)
                assert refusal == (-32602, "Failed to retrieve task: Task not found"), refusal
            else:
                raise AssertionError(f"bob read a task that is not his: {shown!r}")

        step("the same idempotency key")
        key = f"fastmcp-{time.time_ns()}"
        once = await start(client, "slow_compute", {"seconds": 2}, key)
        twice = await start(client, "slow_compute", {"seconds": 2}, key)
        assert twice.task_id == once.task_id, "a repeat made a second task"
        finished = await once.result()
        repeat = await client.call_tool("slow_compute", {"seconds": 2}, meta={IDEMPOTENCY_KEY: key})
        assert text(repeat) == text(finished), "a repeat after the end differs"
    print("fastmcp: every step held")


asyncio.run(main())
