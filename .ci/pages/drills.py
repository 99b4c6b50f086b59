"""The drills of docs/disasters.md that need no cluster: done by the commands that the page names, over real
processes, and what the page says of the outcome is checked."""

import contextlib
import http.client
import json
import re
import subprocess
import time
import urllib.parse

from stack import READY_S, ROOT, free_port

DECLARED = {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
REPORT = {"name": "build_report", "arguments": {"month": "2026-11"}}
NEVER = "01900000-0000-7000-8000-000000000000"
KEY = "io.github.mcp-tasks/idempotencyKey"


class Site:
    """A database of its own in the stack's Postgres, and one process of each kind on it."""

    def __init__(self, stack, name):
        self.stack, self.name = stack, name
        self.url = urllib.parse.urlsplit(stack.postgres)._replace(path=f"/{name}").geturl()
        self.port, self.running, self.starts = free_port(), [], 0
        self.settings = {
            "MCP_TASKS__POSTGRES__URL": self.url, "MCP_TASKS__REDIS__URL": stack.redis, "MCP_TASKS__REDIS__KEY_PREFIX": name,
            "MCP_TASKS__TOOLS__DEMO": "true", "MCP_TASKS__GATEWAY__BIND": f"127.0.0.1:{self.port}",
            "MCP_TASKS__GATEWAY__DRAIN_DELAY": "0s", "MCP_TASKS__GATEWAY__DRAIN_DEADLINE": "2s",
            "MCP_TASKS__WORKER__DRAIN_DEADLINE": "1s",
        }

    def shell(self, *arguments, check=True):
        ran = subprocess.run([str(a) for a in arguments], env=self.stack.environment(**self.settings), capture_output=True,
                             text=True, check=False)
        if check and ran.returncode:
            raise RuntimeError(f"{self.name}: {arguments}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    def start(self):
        """Cron, workers, gateways: in the order of the page."""
        self.starts += 1
        for role in ("cron", "worker", "gateway"):
            admin = free_port()
            settings = {**self.settings, "MCP_TASKS__ADMIN__LISTEN": f"127.0.0.1:{admin}"}
            name = f"{self.name}-{role}-{self.starts}"
            self.running.append(self.stack.start(name, [self.stack.binary, role], **settings))

            def ready():
                asked = subprocess.run([self.stack.binary, "health"], env=self.stack.environment(**settings),
                                       capture_output=True, check=False)
                return asked.returncode == 0

            self.stack.wait(f"{name} is ready", ready, name)
        self.stack.wait("the tools are listed", lambda: "build_report" in json.dumps(self.mcp("tools/list", {})))

    def stop(self):
        for process in reversed(self.running):
            self.stack.end(process)
        self.running = []

    def mcp(self, method, params, key=None):
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": DECLARED,
                "io.modelcontextprotocol/clientInfo": {"name": "drill", "version": "1"}, **({KEY: key} if key else {})}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}})
        headers = {"Authorization": "Bearer alice", "Content-Type": "application/json", "Mcp-Method": method,
                   "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28"}
        if name := params.get("name") or params.get("taskId"):
            headers["Mcp-Name"] = name
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("POST", "/mcp", body, headers)
            text = connection.getresponse().read().decode()
        lines = [text] if text.startswith("{") else [l[5:] for l in text.splitlines() if l.startswith("data:")]
        [answer] = [m for m in map(json.loads, lines) if "method" not in m]
        return answer

    def call(self, key=None):
        return self.mcp("tools/call", REPORT, key)["result"]["taskId"]

    def get(self, task):
        return self.mcp("tasks/get", {"taskId": task})

    def until(self, task, status):
        deadline = time.monotonic() + READY_S
        while True:
            now = self.get(task)
            if now.get("result", {}).get("status") == status:
                return now["result"]
            if time.monotonic() > deadline or "error" in now:
                raise RuntimeError(f"{self.name}: {task} does not become {status}: {now}")
            time.sleep(0.3)

    def answer(self, task):
        answers = {"charts": {"action": "accept", "content": {"charts": True}}}
        self.mcp("tasks/update", {"taskId": task, "inputResponses": answers})


def expect(what, found):
    if not found:
        raise RuntimeError(f"not so: {what}")


def restored(stack):
    """An older Postgres comes back: docs/backup.md, "What an older Postgres means"."""
    site = Site(stack, "drill_restore")
    dump = stack.folder / "older.dump"
    site.shell("psql", stack.postgres, "-c", f"CREATE DATABASE {site.name}")
    site.shell("mcp-tasks", "migrate")
    site.start()
    asked = site.call("before")
    site.until(asked, "input_required")
    # The moment that everything goes back to.
    site.shell("pg_dump", "--format=custom", f"--file={dump}", site.url)
    site.answer(asked)
    site.until(asked, "completed")
    lost = site.call("after")
    site.until(lost, "input_required")
    # 1. Nothing acts any more.
    site.stop()
    # 2. The older state is the state.
    site.shell("psql", stack.postgres, "-c", f"DROP DATABASE {site.name}", "-c", f"CREATE DATABASE {site.name}")
    site.shell("pg_restore", "--no-owner", f"--dbname={site.url}", dump)
    # 4. It fits; 5. and one can look, and hold back, while nothing runs.
    site.shell("mcp-tasks", "migrate")
    site.shell("mcp-tasks", "doctor", check=False)
    shown = site.shell("mcp-tasks", "tasks", "list", "--phase", "parked")
    expect("the open question is listed, and the later task is not", asked in shown and lost not in shown)
    site.shell("mcp-tasks", "tools", "pause", "build_report", "--jobs")
    # 6. Again.
    site.start()
    never = site.get(NEVER)["error"]
    expect("a later task is as if it had never been", site.get(lost)["error"] == never and never["code"] == -32602)
    expect("the question is open again", site.until(asked, "input_required")["inputRequests"])
    again = site.call("after")
    expect("a forgotten key makes a new task", again != lost)
    expect("a known key leads to its task", site.call("before") == asked)
    site.answer(asked)
    time.sleep(2)
    expect("a paused tool does nothing", site.get(asked)["result"]["status"] == "working")
    site.shell("mcp-tasks", "tools", "resume", "build_report")
    site.until(asked, "completed")
    site.until(again, "input_required")
    site.stop()


def emptied(stack):
    """Redis loses everything, while jobs run and wait."""
    site = Site(stack, "drill_redis")
    site.shell("psql", stack.postgres, "-c", f"CREATE DATABASE {site.name}")
    site.shell("mcp-tasks", "migrate")
    site.start()
    tasks = [site.call() for _ in range(3)]
    for task in tasks:
        site.until(task, "input_required")
    for task in tasks[:2]:
        site.answer(task)
    port = re.search(r":(\d+)", stack.redis.removeprefix("redis:"))[1]
    site.shell("redis-cli", "-p", port, "FLUSHALL")
    site.answer(tasks[2])
    for task in tasks:
        site.until(task, "completed")
    burned = site.shell("psql", site.url, "-Atc", "SELECT count(*) FROM tasks WHERE tries > 0").strip()
    expect("nobody burned a try", burned == "0")
    site.stop()


# As docs/disasters.md names them.
DRILLS = {"restored": restored, "emptied": emptied}


def run(stack):
    page = (ROOT / "docs/disasters.md").read_text()
    named = set(re.findall(r"`drills::(\w+)`", page))
    problems = [f"docs/disasters.md names {sorted(named)}, the drills are {sorted(DRILLS)}"] if named != DRILLS.keys() else []
    for name, drill in DRILLS.items():
        began = time.monotonic()
        try:
            drill(stack)
            print(f"{time.monotonic() - began:6.1f} s  drill: {name}: what docs/disasters.md says holds", flush=True)
        except (RuntimeError, OSError, KeyError, ValueError) as error:
            problems.append(f"drill {name}: {error!r}")
    return problems
