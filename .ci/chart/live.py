"""What only shows when it runs: the test of `helm test`, through the proxy of the chart, against a stack of
the built binary; and that the probes and the binary's admin listener speak of the same paths."""

import concurrent.futures
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import compose
import image
import rehearsal
import rendering
import testpod
import trial
from issuer import AUDIENCE, ISSUER, Issuer

START_S, LESSON_S = 90, 120


GIVEN = set()


def free_port():
    """Never twice, and none that the system gives to a connection before its owner listens: those begin at 32768."""
    while True:
        port = random.randrange(10240, 32768)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            if port not in GIVEN:
                GIVEN.add(port)
                return port


class Stack(threading.Thread):
    """Started at once, asked for later: it takes some seconds."""

    def __init__(self, binary):
        super().__init__(daemon=True)
        self.binary, self.problems, self.done = binary, [], []
        self.folder = rendering.SCRATCH / "live"
        self.processes = []
        self.free_port = free_port
        self.crons, self.lock = [], threading.Lock()
        self.haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")

    def run(self):
        try:
            self.folder.mkdir()
            # Postgres does not run as root, and has to get here.
            os.chmod(rendering.SCRATCH, 0o755)
            self.go()
        except Exception as error:  # noqa: BLE001  it is told, with all else that is wrong
            self.problems.append(f"live: {error!r}")
        finally:
            for process in reversed(self.processes):
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()

    def start_process(self, name, *arguments):
        log = open(self.folder / f"{name}.log", "wb")
        process = subprocess.Popen([str(a) for a in arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                   start_new_session=True)
        self.processes.append(process)
        return process

    def tail(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def wait(self, what, ready, process, name):
        deadline = time.monotonic() + START_S
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{what} did not start: {self.tail(name)}")
            time.sleep(0.1)

    def go(self):
        if not self.haproxy:
            raise RuntimeError("haproxy is missing: run .ci/install test")
        port, data = free_port(), self.folder / "dev"
        dev = self.start_process("dev", self.binary.path, "dev", "--port", port, "--data-dir", data)
        issuer, stranger = Issuer(self.folder), Issuer(self.folder, "stranger")
        described = data / "processes.json"
        self.wait("the stack", described.exists, dev, "dev")
        stack = json.loads(described.read_text())
        self.postgres, self.redis = stack["postgres"]["url"], stack["redis"]["url"]
        image.users(self)
        parts = (rehearsal.rehearse, testpod.check, compose.check, trial.check, image.check)
        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            others = [pool.submit(part, self) for part in parts]
            self.probes(stack)
            self.queries(stack)
            proxy = free_port()
            self.start_proxy(proxy, port)
            url = f"http://127.0.0.1:{proxy}/mcp"
            self.refusals(url, issuer, stranger)
            self.lesson(url, issuer)
            for other in others:
                problems, figures = other.result()
                self.problems += problems
                self.done.append(figures)

    def probes(self, described):
        """Every probe's path of the chart is one that each process answers."""
        paths = set(re.findall(r'"(/[a-z]+z)"', (rendering.CHART / "templates/workloads.yaml").read_text()
                               + (rendering.CHART / "templates/_pod.tpl").read_text()))
        admins = re.findall(r'"admin": "http://([^"]+)"', json.dumps(described))
        if len(paths) != 3 or len(admins) < 3:
            raise RuntimeError(f"expected 3 probes and 3 admin addresses: {paths}, {admins} of {described}")
        for address in admins:
            for path in paths:
                if (status := answers(f"http://{address}{path}")) != 200:
                    self.problems.append(f"live: {address}{path} answers {status}")
        self.done.append(f"{len(paths)} probes of {len(admins)} processes")

    def scrape(self, address):
        with self.lock:
            self.crons.append(address)
            file = self.folder / "crons.json"
            file.with_suffix(".new").write_text(json.dumps([{"targets": self.crons, "labels": {"namespace": "tasks"}}]))
            file.with_suffix(".new").replace(file)

    def queries(self, stack):
        """A real Prometheus answers the queries of the scalers; with the jobs of the rehearsal there are some."""
        rendered = rendering.render(rendering.Case("live scaler", values={**rendering.URLS, "workerDefaults": {
            "autoscaling": {"enabled": True, "maxReplicas": 3, "tools": ["build_report"]}}}))
        [scaler] = rendered.of("ScaledObject")
        port = free_port()
        for process in stack["cron"]:
            self.scrape(process["admin"].removeprefix("http://"))
        # Any cron may lead the sweep that counts, those of the rehearsal too.
        found = {"files": [str(self.folder / "crons.json")], "refresh_interval": "1s"}
        job = {"job_name": "mcp-tasks-cron", "file_sd_configs": [found]}
        (self.folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
        process = self.start_process(
            "prometheus", "prometheus", f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/prometheus", f"--web.listen-address=127.0.0.1:{port}")
        for trigger in scaler["spec"]["triggers"]:
            asked = urllib.parse.urlencode({"query": trigger["metadata"]["query"]})

            def some(least):
                with contextlib.suppress(OSError), urllib.request.urlopen(
                        f"http://127.0.0.1:{port}/api/v1/query?{asked}", timeout=10) as response:
                    found = json.load(response)["data"]["result"]
                    return len(found) == 1 and float(found[0]["value"][1]) >= least
                return False

            self.wait(f"the query {trigger['name']}", lambda: some(0), process, "prometheus")
            # The rehearsal's clients call it all the time.
            if trigger["name"] == "jobs":
                self.wait("the count of jobs", lambda: some(1), process, "prometheus")
        self.done.append(f"{len(scaler['spec']['triggers'])} queries of a scaler answered")

    def start_proxy(self, port, gateway):
        case = rendering.Case("live proxy", values={**rendering.URLS, "gateway": {"proxy": {
            "enabled": True, "port": port, "jwt": {
                "issuer": ISSUER, "audience": AUDIENCE, "existingSecret": "s", "keys": ["issuer.pem"]}}}})
        rendered = rendering.render(case)
        config = rendering.carried(rendered, rendered.by_name[("Deployment", "mcp-tasks-gateway")], "proxy")["haproxy.cfg"]
        config = config.replace("/etc/proxy-keys", str(self.folder)).replace("127.0.0.1:3000", f"127.0.0.1:{gateway}")
        (self.folder / "haproxy.cfg").write_text(config)
        process = self.start_process("haproxy", self.haproxy, "-W", "-f", self.folder / "haproxy.cfg")
        self.wait("the proxy", lambda: answers(f"http://127.0.0.1:{port}/mcp") is not None, process, "haproxy")

    def refusals(self, url, issuer, stranger):
        now = int(time.time())
        tokens = {
            "no token": None, "no JWT": "alice", "another's signature": stranger.token(),
            "no signature": issuer.token(signature=""), "alg none": issuer.token(header={"alg": "none"}, signature=""),
            "alg HS256": issuer.token(header={"alg": "HS256"}),
            "another issuer": issuer.token(iss="https://other.test/"), "no issuer": issuer.token(iss=None),
            "for another": issuer.token(aud="https://other.test/"), "for nobody": issuer.token(aud=None),
            "over": issuer.token(exp=now - 5), "never over": issuer.token(exp=None), "not yet": issuer.token(nbf=now + 600),
            "nobody": issuer.token(sub=None), "empty subject": issuer.token(sub=""), "a header in the subject": issuer.token(sub="a\r\nX-A: b"),
        }
        for name, token in tokens.items():
            if (status := answers(url, token, b"{}")) != 401:
                self.problems.append(f"live: the proxy answers {status} to: {name}")
        # What is let in is judged by the gateway: an empty object is no request.
        if (status := answers(url, issuer.token(), b"{}")) != 400:
            self.problems.append(f"live: the proxy answers {status} to a good token")
        self.done.append(f"{len(tokens)} tokens refused")

    def lesson(self, url, issuer):
        environment = {**os.environ, "LESSON_URL": url, "ALICE": issuer.token(), "BOB": issuer.token(sub="bob")}
        for arguments in ((), ("short",)):
            ran = subprocess.run([sys.executable, "-I", "-S", "-B", rendering.CHART / "tests/lesson.py", *arguments],
                                 env=environment, capture_output=True, text=True, timeout=LESSON_S, check=False)
            if ran.returncode or "The steps held." not in ran.stdout:
                self.problems.append(f"live: the lesson {arguments}: {ran.stdout[-1500:]}{ran.stderr[-1500:]}")
        self.done.append("lesson of helm test held, through the proxy")


def answers(url, token=None, body=None):
    """The status; nothing if nobody is there."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
