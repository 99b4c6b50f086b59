"""An upgrade and the way back, rehearsed: what the chart says of surge, readiness, preStop and grace, played by a
small kubelet over real processes, with an L4 proxy that learns late of who is gone, and under load. The schema
changes in the middle, each kind of process has a user of its own in Postgres, and one group of workers becomes
two. No request may fail, and no try of a job may be burned."""

import concurrent.futures
import http.client
import json
import os
import select
import socket
import subprocess
import threading
import time
import urllib.parse

import rendering

# A load balancer hears this late (s) that an endpoint is gone; less than preStop and drain_delay together.
LAG = 6
READY_S = 60
USERS = {f"rehearsal-{role}": role for role in ("gateway", "worker", "cron")}
BEFORE = {
    "config": {"tools": {"demo": True}}, "migrate": {"roles": True},
    "gateway": {"postgres": {"existingSecret": "rehearsal-gateway"}}, "cron": {"postgres": {"existingSecret": "rehearsal-cron"}},
    "workerDefaults": {"postgres": {"existingSecret": "rehearsal-worker"}},
}
# The release after: other settings, and other groups of workers.
AFTER = {**BEFORE, "config": {**BEFORE["config"], "gateway": {"keep_alive": "5s"}},
         "workers": {"default": {"enabled": False}, "fast": {"replicas": 1}, "slow": {"replicas": 1}}}
# What a migration of a later release may do: it takes the locks, and changes what statements were planned for.
NEXT_SCHEMA = [
    "ALTER TABLE tasks ADD COLUMN rehearsal text; ALTER TABLE steps ADD COLUMN rehearsal int NOT NULL DEFAULT 7; "
    "CREATE TABLE rehearsal (task_id uuid REFERENCES tasks (id) ON DELETE CASCADE)",
    "CREATE INDEX CONCURRENTLY tasks_rehearsal ON tasks (tool) WHERE rehearsal IS NOT NULL",
    "INSERT INTO schema_migrations (version, name, checksum) VALUES (9999, '9999_rehearsal', '')",
]
FORM = {"elicitation": {"form": {}}}
DECLARED = {**FORM, "extensions": {"io.modelcontextprotocol/tasks": {}}}


def asked(container, name, admin):
    """What the kubelet would find, at an admin port of this machine."""
    probe = container[name]
    if probe["httpGet"].get("scheme", "HTTP") != "HTTP":
        raise RuntimeError(f"{name}: {probe}")
    connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=probe["timeoutSeconds"])
    try:
        connection.request("GET", probe["httpGet"]["path"])
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def url_of(stage, role):
    """The stage's Postgres, for a user who may do what this role may."""
    there = urllib.parse.urlsplit(stage.postgres)
    return there._replace(netloc=f"rehearsal_{role}@{there.netloc.rpartition('@')[2]}").geturl()


class Pod:
    """One process as the chart's Deployment runs it, at ports of this machine."""

    def __init__(self, stage, deployment, rendered, number, port=None):
        self.name = f"{deployment['metadata']['name']}-{number}"
        self.spec = deployment["spec"]["template"]["spec"]
        [container] = self.spec["containers"]
        self.container = container
        self.port, self.admin = port or stage.free_port(), stage.free_port()
        config = rendering.carried(rendered, deployment, "config")["mcp-tasks.toml"]
        file = stage.folder / f"{self.name}.toml"
        file.write_text(config)
        [secret] = [v["valueFrom"]["secretKeyRef"]["name"] for v in container["env"] if v["name"] == "MCP_TASKS__POSTGRES__URL"]
        environment = {
            **os.environ, "MCP_TASKS_CONFIG": str(file), "MCP_TASKS__ADMIN__LISTEN": f"127.0.0.1:{self.admin}",
            "MCP_TASKS__GATEWAY__BIND": f"127.0.0.1:{self.port}",
            "MCP_TASKS__POSTGRES__URL": url_of(stage, USERS[secret]), "MCP_TASKS__REDIS__URL": stage.redis,
        }
        self.log = stage.folder / f"{self.name}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([stage.binary.path, *container["args"]], env=environment, stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        stage.processes.append(self.process)
        self.killed = None
        if container["name"] == "cron":
            stage.scrape(f"127.0.0.1:{self.admin}")

    def probe(self, name):
        return asked(self.container, name, self.admin)

    def become_ready(self):
        """Started, then ready, asked as often as the probes say."""
        for probe in ("startupProbe", "readinessProbe"):
            deadline = time.monotonic() + READY_S
            while not self.probe(probe):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name}: {probe}: {self.log.read_text()[-1500:]}")
                time.sleep(self.container[probe]["periodSeconds"])

    def end(self):
        """As the kubelet does it; how long it took."""
        began = time.monotonic()
        time.sleep(self.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0))
        self.process.terminate()
        try:
            self.process.wait(max(0, began + self.spec["terminationGracePeriodSeconds"] - time.monotonic()))
            self.killed = False
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.killed = True
        return time.monotonic() - began


class Balancer:
    """HAProxy on layer 4, as kube-proxy: who is gone gets no new connections, old ones go on."""

    def __init__(self, stage, ports):
        self.port, self.socket = stage.free_port(), str(stage.folder / "balancer.sock")
        servers = "\n".join(f"  server s{port} 127.0.0.1:{port} disabled" for port in ports)
        (stage.folder / "balancer.cfg").write_text(f"""global
  stats socket {self.socket} mode 600 level admin
  maxconn 500
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  retries 0
listen mcp
  bind 127.0.0.1:{self.port}
  balance roundrobin
{servers}
""")
        stage.start_process("balancer", stage.haproxy, "-db", "-f", stage.folder / "balancer.cfg")
        deadline = time.monotonic() + READY_S
        while not os.path.exists(self.socket):
            if time.monotonic() > deadline:
                raise RuntimeError("the balancer did not start")
            time.sleep(0.05)

    def set(self, port, state):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            connection.sendall(f"set server mcp/s{port} state {state}\n".encode())
            if answer := connection.recv(1000).decode().strip():
                raise RuntimeError(f"balancer: {answer}")


class Client(threading.Thread):
    """Calls, polls, answers; one connection that is kept, unless it is told otherwise."""

    def __init__(self, load, number):
        super().__init__(daemon=True)
        self.load, self.number, self.connection = load, number, None

    def mcp(self, capabilities, method, params):
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "rehearsal", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": capabilities}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}})
        name = params.get("name") or params.get("taskId")
        headers = {"Authorization": f"Bearer client-{self.number}", "Content-Type": "application/json",
                   "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28",
                   "Mcp-Method": method, **({"Mcp-Name": name} if name else {})}
        # As every client does, before it sends anything again: is the other side gone? Nothing is ever sent
        # twice: a gateway must not close a kept connection in the moment of its next request.
        if self.connection and select.select([self.connection.sock], [], [], 0)[0]:
            self.connection.close()
            self.connection = None
        try:
            status, text = self.post(body, headers)
        except (OSError, http.client.HTTPException) as error:
            raise RuntimeError(f"{method}: {error!r}") from error
        lines = [text] if text.startswith("{") else [l[5:] for l in text.splitlines() if l.startswith("data:")]
        found = [m for m in map(json.loads, lines) if m.get("id") == 1 and "method" not in m]
        if status != 200 or not found or "result" not in found[0]:
            raise RuntimeError(f"{method}: {status} {text[-300:]}")
        with self.load.lock:
            self.load.requests += 1
        return found[0]["result"]

    def post(self, body, headers):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.load.port, timeout=60)
        try:
            self.connection.request("POST", "/mcp", body, headers)
            response = self.connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):
            self.connection = None
            raise
        if response.will_close:
            self.connection.close()
            self.connection = None
        return response.status, text

    def run(self):
        kind = self.number % 4
        while not self.load.over.is_set():
            try:
                if kind == 0:
                    # Never a task: the answer streams for as long as the tool works.
                    self.mcp(FORM, "tools/call", {"name": "build_report", "arguments": {"month": "2026-11"}})
                elif kind == 1:
                    self.mcp(DECLARED, "tools/call", {"name": "reindex_corpus", "arguments": {"collection": "small"}})
                    time.sleep(0.05)
                else:
                    self.task()
            except RuntimeError as error:
                with self.load.lock:
                    self.load.failures.append(f"client {self.number}: {error}")
                time.sleep(0.2)

    def task(self):
        task = self.mcp(DECLARED, "tools/call", {"name": "build_report", "arguments": {"month": "2026-11"}})
        if task.get("resultType") != "task":
            raise RuntimeError(f"no task: {task}")
        name, now = task["taskId"], task
        while now["status"] in ("working", "input_required"):
            if now["status"] == "input_required":
                answer = {"charts": {"action": "accept", "content": {"charts": True}}}
                self.mcp(DECLARED, "tasks/update", {"taskId": name, "inputResponses": answer})
            time.sleep(now["pollIntervalMs"] / 1000)
            now = self.mcp(DECLARED, "tasks/get", {"taskId": name})
        with self.load.lock:
            self.load.tasks += 1
        if now["status"] != "completed":
            raise RuntimeError(f"the task {name} ended {now}")


class Load:
    def __init__(self, port, clients):
        self.port, self.lock, self.over = port, threading.Lock(), threading.Event()
        self.requests, self.tasks, self.failures = 0, 0, []
        self.clients = [Client(self, number) for number in range(clients)]
        for client in self.clients:
            client.start()

    def stop(self):
        self.over.set()
        for client in self.clients:
            client.join(90)
        return [c.number for c in self.clients if c.is_alive()]


def release(values):
    rendered = rendering.render(rendering.Case("rehearsal", values={**rendering.URLS, **values}))
    if not rendered.ok:
        raise RuntimeError(rendered.text)
    return rendered


def deployments(rendered):
    return {o["metadata"]["name"].removeprefix("mcp-tasks-"): o for o in rendered.of("Deployment")}


def psql(stage, *arguments):
    ran = subprocess.run(["psql", stage.postgres, "-AtqX", "-v", "ON_ERROR_STOP=1", *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"psql: {ran.stderr}")
    return ran.stdout.strip()


def hook(stage, rendered):
    """The Job before an upgrade."""
    [job] = rendered.of("Job")
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    migrated = subprocess.run([stage.binary.path, *arguments], capture_output=True, text=True, check=False, env={
        **os.environ, "MCP_TASKS__POSTGRES__URL": stage.postgres})
    if migrated.returncode:
        raise RuntimeError(f"{arguments}: {migrated.stdout}{migrated.stderr}")


def alter(stage):
    """A later schema, while everybody works. A lock that is not to be had is asked for again, as `migrate` does."""
    for statement in NEXT_SCHEMA:
        for tries_left in reversed(range(20)):
            try:
                psql(stage, "-c", "SET lock_timeout = '5s'", "-c", statement)
                break
            except RuntimeError as error:
                if "lock timeout" not in str(error) or not tries_left:
                    raise


def rehearse(stage):
    """`stage` has a running Postgres and Redis, and starts and ends processes; (problems, what was done)."""
    before, after = release(BEFORE), release(AFTER)
    hook(stage, before)
    for role in USERS.values():
        psql(stage, "-c", f"CREATE ROLE rehearsal_{role} LOGIN IN ROLE mcp_tasks_{role}")
    pods = {name: [Pod(stage, o, before, f"first-{n}") for n in range(o["spec"]["replicas"])] for name, o in deployments(before).items()}
    # HAProxy takes servers by name only if it knew them before.
    spare = [[stage.free_port() for _ in pods["gateway"]] for _ in range(2)]
    balancer = Balancer(stage, [*(p.port for p in pods["gateway"]), *spare[0], *spare[1]])
    for pod in [p for some in pods.values() for p in some]:
        pod.become_ready()
    for pod in pods["gateway"]:
        balancer.set(pod.port, "ready")
    load = Load(balancer.port, 12)
    time.sleep(3)
    alter(stage)
    hook(stage, after)
    everyone, times, said, problems = [p for some in pods.values() for p in some], [], [], []
    # Up, and back; Helm runs no hook of ours on the way back.
    for way, rendered, ports in (("upgrade", after, spare[0]), ("rollback", before, spare[1])):
        requests = load.requests
        pods, ended = roll_all(stage, way, rendered, pods, balancer, ports)
        everyone += [p for some in pods.values() for p in some]
        times += ended
        said.append(f"{way} of {len(ended)} pods: {load.requests - requests} requests")
        problems += serving(pods)
    stuck = load.stop()
    problems += [f"rehearsal: {failure}" for failure in load.failures]
    if stuck:
        problems.append(f"rehearsal: clients {stuck} got no answer")
    problems += [f"rehearsal: {p.name} was killed at the end of its grace" for p in everyone if p.killed]
    burned = psql(stage, "-c", "SELECT count(*) FROM tasks WHERE tries > 0")
    if burned != "0":
        problems.append(f"rehearsal: {burned} tasks burned a try")
    if load.requests < 50 or load.tasks < 4:
        problems.append(f"rehearsal: {load.requests} requests and {load.tasks} tasks are no load")
    return problems, (f"{', '.join(said)}, with a user of Postgres for each kind of process and a changed schema: "
                      f"{load.requests} requests, {len(load.failures)} failed, none repeated; "
                      f"{load.tasks} tasks, {burned} tries burned; pods ended in {min(times):.0f} to {max(times):.0f} s")


def serving(pods):
    """Everybody who should run does."""
    for pod in [p for some in pods.values() for p in some]:
        if pod.process.poll() is not None:
            yield f"rehearsal: {pod.name} has ended: {pod.log.read_text()[-1500:]}"


def roll_all(stage, way, rendered, pods, balancer, ports):
    """What `helm upgrade` does with all workloads at once: (the pods that run then, how long the old ones took)."""
    wanted = deployments(rendered)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        rolled = {name: pool.submit(roll, stage, way, deployment, pods.get(name, []), rendered, balancer,
                                    ports if name == "gateway" else None) for name, deployment in wanted.items()}
        # Deployments that are not there any more are deleted, and nobody waits for what takes their place.
        gone = [pool.submit(pod.end) for name in pods.keys() - wanted.keys() for pod in pods[name]]
        now = {name: future.result()[0] for name, future in rolled.items()}
        return now, [seconds for future in rolled.values() for seconds in future.result()[1]] + [f.result() for f in gone]


def roll(stage, way, deployment, pods, rendered, balancer, ports):
    """maxSurge 1, maxUnavailable 0: a new one first, then an old one goes; nobody waits for it to be gone."""
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]
    if (rolling["maxSurge"], rolling["maxUnavailable"]) != (1, 0):
        raise RuntimeError(f"{deployment['metadata']['name']}: the rehearsal plays another strategy than {rolling}")
    now = []
    with concurrent.futures.ThreadPoolExecutor(max(1, len(pods))) as pool:
        ending = []
        for number in range(deployment["spec"]["replicas"]):
            new = Pod(stage, deployment, rendered, f"{way}-{number}", ports[number] if ports else None)
            now.append(new)
            new.become_ready()
            if ports:
                balancer.set(new.port, "ready")
            if number < len(pods):
                old = pods[number]
                if ports:
                    late = threading.Timer(LAG, balancer.set, (old.port, "drain"))
                    late.daemon = True
                    late.start()
                ending.append(pool.submit(old.end))
        return now, [future.result() for future in ending]
