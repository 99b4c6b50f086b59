"""The Python SDK (PyPI `mcp`) drives the stack. Usage: python_mcp.py URL

The SDK has no tasks client, only the hooks for one: this is a small extension on them.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from contextlib import asynccontextmanager
from typing import Any, Literal

import mcp_types
from mcp import Client, MCPError
from mcp.client import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from pydantic import ConfigDict, Field

URL = sys.argv[1]
TASKS = "io.modelcontextprotocol/tasks"
IDEMPOTENCY_KEY = "io.github.mcp-tasks/idempotencyKey"
UNKNOWN_TASK = "01900000-0000-7000-8000-000000000000"
TERMINAL = ("completed", "failed", "cancelled")


# --- the extension: SEP-2663 on the SDK's hooks ---------------------------------------------------


class TaskFields(mcp_types.Result):
    model_config = ConfigDict(populate_by_name=True, extra="allow")

    task_id: str = Field(alias="taskId")
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = Field(default=None, alias="statusMessage")
    created_at: str = Field(alias="createdAt")
    last_updated_at: str = Field(alias="lastUpdatedAt")
    ttl_ms: int | None = Field(alias="ttlMs")
    poll_interval_ms: int = Field(default=1000, alias="pollIntervalMs")


class CreateTaskResult(TaskFields):
    result_type: Literal["task"] = Field(alias="resultType")


class DetailedTask(TaskFields):
    result_type: Literal["complete"] = Field(alias="resultType")
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = Field(default=None, alias="inputRequests")


class Acknowledgement(mcp_types.Result):
    model_config = ConfigDict(extra="forbid")

    result_type: Literal["complete"] = Field(alias="resultType")


class TaskParams(mcp_types.RequestParams):
    model_config = ConfigDict(populate_by_name=True)

    task_id: str = Field(serialization_alias="taskId")


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(serialization_alias="inputResponses")


class GetTask(mcp_types.Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class UpdateTask(mcp_types.Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams
    name_param = "taskId"


class CancelTask(mcp_types.Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param = "taskId"


async def get_task(client: Client, task_id: str) -> DetailedTask:
    return await client.session.send_request(GetTask(params=TaskParams(task_id=task_id)), DetailedTask)


async def update_task(client: Client, task_id: str, responses: dict[str, Any]) -> None:
    request = UpdateTask(params=UpdateParams(task_id=task_id, input_responses=responses))
    await client.session.send_request(request, Acknowledgement)


async def cancel_task(client: Client, task_id: str) -> None:
    await client.session.send_request(CancelTask(params=TaskParams(task_id=task_id)), Acknowledgement)


class Tasks(ClientExtension):
    identifier = TASKS

    def claims(self):
        return (ResultClaim(result_type="task", model=CreateTaskResult, resolve=self.resolve),)

    async def resolve(self, _task: CreateTaskResult, _context: ClaimContext) -> mcp_types.CallToolResult:
        raise AssertionError("every call here takes the handle itself")


# --- the test -------------------------------------------------------------------------------------


@asynccontextmanager
async def connect(user: str, *extensions: ClientExtension):
    async def answer(_context, _params):
        raise AssertionError("nothing was to be asked outside of tasks")

    async with create_mcp_http_client(headers={"Authorization": f"Bearer {user}"}) as http:
        transport = streamable_http_client(URL, http_client=http)
        async with Client(transport, elicitation_callback=answer, extensions=extensions) as client:
            yield client


async def call(client: Client, tool: str, arguments: dict[str, Any], key: str | None = None):
    """Calls a tool; the answer may be a handle."""
    meta = None if key is None else {IDEMPOTENCY_KEY: key}
    return await client.session.call_tool(tool, arguments, meta=meta, allow_claimed=True)


async def start(client: Client, tool: str, arguments: dict[str, Any], key: str | None = None) -> CreateTaskResult:
    task = await call(client, tool, arguments, key)
    assert isinstance(task, CreateTaskResult), f"{tool} did not become a task: {task!r}"
    assert task.status_message, f"the handle of {tool} does not say that there is no result yet"
    return task


async def until(client: Client, task_id: str, *statuses: str, within: float = 30) -> DetailedTask:
    """Polls at the server's pace until the task has one of the statuses."""
    deadline = time.monotonic() + within
    while True:
        task = await get_task(client, task_id)
        if task.status in statuses:
            return task
        assert task.status not in TERMINAL, f"the task ended as {task.status}: {task.error or task.result}"
        assert time.monotonic() < deadline, f"the task is {task.status} after {within} s, not {statuses}"
        await asyncio.sleep(task.poll_interval_ms / 1000)


async def refusal(awaitable) -> tuple[int, str]:
    try:
        answer = await awaitable
    except MCPError as error:
        return error.code, error.message
    raise AssertionError(f"not refused: {answer!r}")


def text(content: list[Any]) -> str:
    return "".join(block["text"] if isinstance(block, dict) else block.text for block in content)


def step(name: str) -> None:
    print(f"- {name}", flush=True)


async def undeclared() -> None:
    step("a client that does not know tasks gets results")
    async with connect("alice") as client:
        result = await client.call_tool("slow_compute", {"seconds": 1})
        assert text(result.content), "an undeclared slow call has no content"
        code, _ = await refusal(client.call_tool("failing_job", {}))
        assert code == -32021, f"a tool that is only offered as a task answers {code}"


async def provided() -> None:
    step("resources, prompts and completions")
    asked: list[str] = []

    async def answer(_context, params):
        asked.append(params.message)
        return mcp_types.ElicitResult(action="accept", content={"context": "trees"})

    async with create_mcp_http_client(headers={"Authorization": "Bearer alice"}) as http:
        transport = streamable_http_client(URL, http_client=http)
        async with Client(transport, elicitation_callback=answer) as client:
            assert "Static text" in {one.name for one in (await client.list_resources()).resources}
            templates = await client.list_resource_templates()
            assert "Template" in {one.name for one in templates.resource_templates}
            assert "test_simple_prompt" in {one.name for one in (await client.list_prompts()).prompts}
            assert (await client.read_resource("test://static-text")).contents[0].text
            assert (await client.read_resource("test://static-binary")).contents[0].blob
            assert len((await client.read_resource("test://folder")).contents) == 2
            read = await client.read_resource("test://template/42/data")
            assert "Data of 42" in read.contents[0].text, read
            code, _ = await refusal(client.read_resource("test://none"))
            assert code == -32602, f"an unknown resource answers {code}"
            arguments = {"arg1": "x", "arg2": "y"}
            prompt = await client.get_prompt("test_prompt_with_arguments", arguments)
            assert "arg1='x', arg2='y'" in prompt.messages[0].content.text, prompt
            code, message = await refusal(client.get_prompt("test_prompt_with_arguments"))
            assert code == -32602 and "arg1, arg2" in message, message
            prompt = await client.get_prompt("test_input_required_result_prompt")
            assert "trees" in prompt.messages[0].content.text, prompt
            assert len(asked) == 1, asked
            reference = mcp_types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
            argument = {"name": "arg2", "value": ""}
            completed = await client.complete(reference, argument, {"arg1": "one"})
            assert completed.completion.values == ["one-2"], completed

            step("a resource that changes")
            watched = "test://watched-resource"
            async with client.listen(resource_subscriptions=[watched]) as subscription:
                await client.call_tool("test_trigger_resource_update", {})
                async with asyncio.timeout(15):
                    async for event in subscription:
                        assert event.uri == watched, event
                        break


async def main() -> None:
    await undeclared()
    await provided()
    async with connect("alice", Tasks()) as client:
        step("discover and list")
        assert client.protocol_version == "2026-07-28", f"fell back to {client.protocol_version}"
        assert client.server_capabilities.extensions == {TASKS: {}}, client.server_capabilities
        listed = {tool.name for tool in (await client.list_tools()).tools}
        wanted = {"greet", "slow_compute", "build_report", "run_suite", "reindex_corpus"}
        assert wanted <= listed, f"not listed: {wanted - listed}"

        step("inline call")
        greeting = await call(client, "greet", {"name": "Ada"})
        assert text(greeting.content) == "Hello, Ada!", greeting

        step("slow call, task, poll, question, answer, completed")
        started = time.monotonic()
        report = await start(client, "build_report", {"month": "2026-10"})
        assert time.monotonic() - started < 5, "the handle did not come at once"
        assert (await get_task(client, report.task_id)).status == "working"
        parked = await until(client, report.task_id, "input_required")
        assert list(parked.input_requests) == ["charts"], parked.input_requests
        assert parked.input_requests["charts"]["method"] == "elicitation/create", parked.input_requests
        answer = {"action": "accept", "content": {"charts": True}}
        await update_task(client, report.task_id, {"charts": answer})
        seen = await get_task(client, report.task_id)
        assert seen.status != "input_required", "the answer was acknowledged, but the question is still shown"
        done = await until(client, report.task_id, "completed")
        assert done.result["resultType"] == "complete" and text(done.result["content"]), done.result
        again = await get_task(client, report.task_id)
        assert again.result == done.result and again.last_updated_at == done.last_updated_at

        step("cancel")
        long = await start(client, "slow_compute", {"seconds": 60})
        await cancel_task(client, long.task_id)
        await until(client, long.task_id, "cancelled")
        await cancel_task(client, long.task_id)

        step("a tool's error completes, a protocol error fails")
        job = await start(client, "failing_job", {})
        assert (await until(client, job.task_id, "completed")).result["isError"] is True
        job = await start(client, "protocol_error_job", {})
        failed = await until(client, job.task_id, "failed")
        assert isinstance(failed.error["code"], int) and failed.error["message"], failed.error
        assert failed.result is None, failed.result

        step("another user's token")
        async with connect("bob", Tasks()) as other:
            not_found = (-32602, "Failed to retrieve task: Task not found")
            for task_id in (report.task_id, UNKNOWN_TASK):
                assert await refusal(get_task(other, task_id)) == not_found
                assert await refusal(cancel_task(other, task_id)) == not_found
                assert await refusal(update_task(other, task_id, {})) == not_found

        step("the same idempotency key")
        key = f"python-{time.time_ns()}"
        once = await start(client, "slow_compute", {"seconds": 2}, key)
        twice = await start(client, "slow_compute", {"seconds": 2}, key)
        assert twice.task_id == once.task_id, "a repeat made a second task"
        code, message = await refusal(call(client, "slow_compute", {"seconds": 3}, key))
        assert code == -32602, f"the key with other arguments answers {code}: {message}"
        finished = await until(client, once.task_id, "completed")
        repeat = await call(client, "slow_compute", {"seconds": 2}, key)
        assert isinstance(repeat, mcp_types.CallToolResult), f"a repeat after the end gives {repeat!r}"
        assert text(repeat.content) == text(finished.result["content"])
    print("python mcp: every step held")


try:
    asyncio.run(main())
except BaseException as error:
    # The SDK's task groups wrap what broke in groups of one.
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    traceback.print_exception(error)
    sys.exit(1)
