"""The trial of deploy/compose.yaml, played by processes: our services with their commands, environment and
health checks, and the proxy with its file, at ports of this machine. Streams come through as they are made;
a killed gateway costs no poll, one that is asked to end nothing at all."""

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import deploy
import rehearsal

READY_S = 60
ADDRESS = re.compile(r"(127\.0\.0\.1|localhost):(\d+)")


class Trial:
    def __init__(self, stage):
        self.stage, self.ports, self.nodes = stage, {}, {}
        self.services = {name: s for name, s in deploy.resolved()["services"].items() if s["image"].startswith("mcp-tasks:")}

    def here(self, text):
        """With ports that are free on this machine, each always the same."""
        def moved(found):
            port = self.ports.setdefault(found[2], self.stage.free_port())
            return f"{found[1]}:{port}"
        return ADDRESS.sub(moved, text)

    def environment(self, service):
        # Spans would go to a collector that is not there.
        found = {k: self.here(v) for k, v in service["environment"].items() if "TRACES" not in k}
        return {"PATH": os.environ["PATH"], **found, "MCP_TASKS__POSTGRES__URL": self.stage.postgres,
                "MCP_TASKS__REDIS__URL": self.stage.redis}

    def start(self, name):
        service = self.services[name]
        mounts = {v["target"]: v["source"] for v in service.get("volumes", [])}
        command = []
        for word in service["command"]:
            if word in mounts:
                file = self.stage.folder / f"compose-{name}.toml"
                file.write_text(self.here(open(mounts[word]).read()))
                word = file
            command.append(word)
        log = open(self.stage.folder / f"compose-{name}.log", "ab")
        self.nodes[name] = subprocess.Popen([self.stage.binary.path, *command], env=self.environment(service), stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self.stage.processes.append(self.nodes[name])

    def healthy(self, name):
        """What Docker would find: its health check, in its environment."""
        test = self.services[name]["healthcheck"]["test"]
        if test[:2] != ["CMD", "/usr/local/bin/mcp-tasks"]:
            raise RuntimeError(f"compose: {name}: {test}")
        asked = subprocess.run([self.stage.binary.path, *test[2:]], env=self.environment(self.services[name]),
                               capture_output=True, check=False)
        return asked.returncode == 0

    def until_healthy(self, name):
        self.stage.wait(name, lambda: self.healthy(name), self.nodes[name], f"compose-{name}")

    def admin(self, name):
        return "http://" + self.here(self.services[name]["environment"]["MCP_TASKS__ADMIN__LISTEN"])


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def request(port, method, params, capabilities, meta=None):
    """One request over a connection of its own; its answer, of which nothing is read yet."""
    told = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "compose", "version": "1"}, **(meta or {})}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": told}})
    headers = {"Authorization": "Bearer alice", "Content-Type": "application/json", "Mcp-Method": method,
               "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28"}
    if name := params.get("name") or params.get("taskId"):
        headers["Mcp-Name"] = name
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/mcp", body, headers)
    return connection.getresponse()


def streams(port):
    """A call that is never a task: its progress comes while it works, not at its end."""
    answer = request(port, "tools/call", {"name": "build_report", "arguments": {"month": "2026-11"}}, rehearsal.FORM,
                     {"progressToken": "p"})
    times, last = [], None
    while line := answer.readline():
        if line.startswith(b"data:") and line[5:].strip():
            times.append(time.monotonic())
            last = json.loads(line[5:])
    if not last or "result" not in last:
        return [f"compose: the stream ended with {last}"]
    # Its stages take seconds.
    if len(times) < 3 or times[-1] - times[0] < 3:
        return [f"compose: {len(times)} events within {times[-1] - times[0]:.1f} s: the proxy keeps them back"]
    return []


def spread(trial, port):
    """Every gateway gets some of the requests."""
    for _ in range(30):
        answer = request(port, "server/discover", {}, rehearsal.DECLARED)
        if answer.status != 200:
            yield f"compose: server/discover: {answer.status} {answer.read()[:300]}"
            return
        answer.read()
    for name in sorted(trial.services):
        if name.startswith("gateway"):
            with urllib.request.urlopen(f"{trial.admin(name)}/metrics", timeout=10) as page:
                if not re.search(r'mcp_tasks_gateway_requests_total\{[^}]*server/discover', page.read().decode()):
                    yield f"compose: {name} got none of 30 requests"


def polls(trial, port):
    """Polls while a gateway is killed: the proxy makes them again elsewhere."""
    task = json.loads(request(port, "tools/call", {"name": "build_report", "arguments": {"month": "2026-11"}},
                              rehearsal.DECLARED).read())["result"]["taskId"]
    over, failures, counts = threading.Event(), [], []

    def poll():
        count = 0
        while not over.is_set():
            try:
                answer = request(port, "tasks/get", {"taskId": task}, rehearsal.DECLARED)
                told = answer.read()
                if answer.status != 200 or b'"result"' not in told:
                    failures.append(f"compose: a poll: {answer.status} {told[-300:]}")
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"compose: a poll: {error!r}")
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=poll, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    trial.nodes["gateway-2"].kill()
    trial.nodes["gateway-2"].wait()
    time.sleep(3)
    over.set()
    for thread in threads:
        thread.join(60)
    return failures[:5], sum(counts)


def check(stage):
    """(problems, what was done). `stage` has a running Postgres and Redis, and a worker with the demo tools."""
    trial = Trial(stage)
    migrated = subprocess.run([stage.binary.path, "migrate"], env=trial.environment(trial.services["migrate"]),
                              capture_output=True, text=True, check=False)
    if migrated.returncode:
        return [f"compose: migrate: {migrated.stderr}"], ""
    names = [name for name in trial.services if name != "migrate"]
    for name in names:
        trial.start(name)
    config = stage.folder / "compose-haproxy.cfg"
    moved = trial.here((deploy.FOLDER / "haproxy.cfg").read_text())
    config.write_text(re.sub(r"check port (\d+)", lambda found: f"check port {trial.ports[found[1]]}", moved))
    port = int(trial.ports["3000"])
    proxy = stage.start_process("compose-proxy", stage.haproxy, "-db", "-f", config)
    for name in names:
        trial.until_healthy(name)
    stage.wait("the proxy", lambda: status(f"http://127.0.0.1:{port}/proxy-health") == 200, proxy, "compose-proxy")
    up = re.compile(r'haproxy_server_status\{proxy="gateways",server="gateway-\d",state="UP"\} 1')

    def all_up():
        with urllib.request.urlopen(f"http://127.0.0.1:{trial.ports['8405']}/metrics", timeout=10) as page:
            return len(up.findall(page.read().decode())) == 3

    stage.wait("all gateways, for the proxy", all_up, proxy, "compose-proxy")
    problems = [*streams(port), *spread(trial, port)]
    failed, count = polls(trial, port)
    problems += failed
    if trial.healthy("gateway-2"):
        problems.append("compose: a killed gateway is healthy")
    trial.start("gateway-2")
    trial.until_healthy("gateway-2")
    stage.wait("all gateways, for the proxy", all_up, proxy, "compose-proxy")
    # One after another is asked to end and begins again, under every kind of call.
    load = rehearsal.Load(port, 8)
    time.sleep(1)
    for name in ("gateway-1", "gateway-3"):
        trial.nodes[name].send_signal(signal.SIGTERM)
        trial.nodes[name].wait(60)
        trial.start(name)
        trial.until_healthy(name)
        stage.wait("all gateways, for the proxy", all_up, proxy, "compose-proxy")
    stuck = load.stop()
    problems += [f"compose: {failure}" for failure in load.failures]
    if stuck or load.requests < 30:
        problems.append(f"compose: {load.requests} requests; clients {stuck} got no answer")
    return problems, (f"compose: {len(names)} services healthy; a stream not kept back; {count} polls around a killed gateway, "
                      f"{len(failed)} failed; {load.requests} requests over two replaced gateways, {len(load.failures)} failed")
