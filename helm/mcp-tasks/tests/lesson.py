"""The lesson in six steps: durable tasks over plain HTTP, as `helm test` runs it.

    LESSON_URL=http://127.0.0.1:3000/mcp python3 lesson.py [short]

`short` leaves out what needs the demo tools. The tokens of two callers are in ALICE and BOB; without
them, their names are their tokens (development authentication). Standard library only.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request

URL = os.environ.get("LESSON_URL", "http://127.0.0.1:3000/mcp")
TOKENS = {name: os.environ.get(name.upper()) or name for name in ("alice", "bob")}
CONTEXT = ssl._create_unverified_context() if os.environ.get("LESSON_ANY_CERTIFICATE") else None
FORM = {"elicitation": {"form": {}}}
DECLARED = {**FORM, "extensions": {"io.modelcontextprotocol/tasks": {}}}
REPORT = {"name": "build_report", "arguments": {"month": "2026-10"}}


def mcp(user, capabilities, method, params):
    """One MCP request; its response, from JSON or from the end of a stream."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "helm-test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        "Authorization": f"Bearer {TOKENS[user]}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
    }
    name = params.get("name") or params.get("taskId")
    if name:
        headers["Mcp-Name"] = name
    request = urllib.request.Request(URL, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60, context=CONTEXT) as response:
            text = response.read().decode()
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        if not text.startswith("{"):
            raise SystemExit(f"FAILED: {method}: HTTP {error.code}: {text}")
    lines = [text] if text.startswith("{") else [l[5:] for l in text.splitlines() if l.startswith("data:")]
    found = [m for m in map(json.loads, lines) if "method" not in m and m.get("id") in (1, None)]
    if not found:
        raise SystemExit(f"FAILED: {method}: no response in {text!r}")
    return found[0]


def result(answer):
    if "result" not in answer:
        raise SystemExit(f"FAILED: an error instead of a result: {json.dumps(answer.get('error'))}")
    return answer["result"]


def expect(what, got, wanted):
    if got != wanted:
        raise SystemExit(f"FAILED: {what} is {got!r}, not {wanted!r}")
    print(f"   {what}: {got}", flush=True)


def step(text):
    print(f"\n{text}", flush=True)


def poll(task, until, seconds):
    """Polls as told until the status is `until`; the statuses on the way, and the last answer."""
    seen, deadline = [], time.monotonic() + seconds
    while True:
        now = result(mcp("alice", DECLARED, "tasks/get", {"taskId": task}))
        if now["status"] not in seen:
            seen.append(now["status"])
            print(f"   {now['status']}: {now.get('statusMessage')}", flush=True)
        if now["status"] == until or now["status"] in ("completed", "failed", "cancelled"):
            return seen, now
        if time.monotonic() > deadline:
            raise SystemExit(f"FAILED: still {now['status']} after {seconds} s, not {until}")
        time.sleep(now["pollIntervalMs"] / 1000)


def discover():
    step("1. Discover: the server says that it speaks the tasks extension.")
    deadline = time.monotonic() + 60
    while True:
        try:
            answer = mcp("alice", DECLARED, "server/discover", {})
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"FAILED: {URL} does not answer: {error}")
            time.sleep(1)
    extensions = result(answer)["capabilities"]["extensions"]
    expect("the tasks extension", extensions["io.modelcontextprotocol/tasks"], {})


def durable():
    step("2. A slow call of a client that declared tasks returns a handle, not a result.")
    handle = result(mcp("alice", DECLARED, "tools/call", REPORT))
    expect("resultType", handle.get("resultType"), "task")
    expect("status", handle["status"], "working")
    expect("it holds no result", "content" in handle or "result" in handle, False)
    task = handle["taskId"]

    step("3. Polling shows it working, then waiting for an answer of ours.")
    _, now = poll(task, "input_required", 90)
    expect("status", now["status"], "input_required")
    expect("what it asks", now["inputRequests"]["charts"]["method"], "elicitation/create")

    step("4. Our answer leads to its completion.")
    answers = {"charts": {"action": "accept", "content": {"charts": True}}}
    result(mcp("alice", DECLARED, "tasks/update", {"taskId": task, "inputResponses": answers}))
    _, now = poll(task, "completed", 90)
    expect("status", now["status"], "completed")
    print(f"   result: {now['result']['content'][0]['text']}")

    step("5. The same call of a client that did not declare tasks never becomes one.")
    done = result(mcp("alice", FORM, "tools/call", REPORT))
    expect("resultType", done.get("resultType"), "complete")
    expect("it has a taskId", "taskId" in done, False)
    return task


def foreign(task):
    step("6. Another user's token is answered as if the task did not exist.")
    error = mcp("bob", DECLARED, "tasks/get", {"taskId": task})["error"]
    never = mcp("bob", DECLARED, "tasks/get", {"taskId": "01900000-0000-7000-8000-000000000000"})["error"]
    expect("the error", error, never)
    expect("its code", error["code"], -32602)


def main():
    short = sys.argv[1:] == ["short"]
    discover()
    if short:
        step("2.-5. Left out: no worker serves the demo tools (config.tools.demo).")
        names = [tool["name"] for tool in result(mcp("alice", DECLARED, "tools/list", {}))["tools"]]
        print(f"   tools served: {', '.join(names) or 'none'}")
    foreign("01900000-0000-7000-8000-000000000001" if short else durable())
    print("\nThe steps held.")


if __name__ == "__main__":
    main()
