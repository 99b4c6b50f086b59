"""The pod of `helm test`, played: the gateway of its own with the settings, environment and probes that are rendered,
then the command of its container. Once as a release of two settings makes it; once where gateways check tokens and
encrypt, and there the certificate is replaced as the kubelet does it, which needs no restart."""

import os
import signal
import ssl
import subprocess
import sys
import time

import cases
import rehearsal
import rendering
from issuer import AUDIENCE, ISSUER, Issuer

LESSON_S, READ_S = 120, 60


class Played:
    def __init__(self, stage, name, values):
        self.stage, self.name = stage, name
        rendered = rendering.render(rendering.Case(f"live test {name}", values=values))
        if not rendered.ok:
            raise RuntimeError(rendered.text)
        pod = rendered.by_name[("Pod", "mcp-tasks-test")]["spec"]
        [self.gateway], [self.lesson] = pod["initContainers"], pod["containers"]
        self.folder = stage.folder / f"test-{name}"
        self.folder.mkdir()
        # What the pod mounts, below one folder.
        (self.folder / "lesson").mkdir()
        script = rendered.by_name[("ConfigMap", "mcp-tasks-test")]["data"]["lesson.py"]
        (self.folder / "lesson/lesson.py").write_text(script)
        self.settings = rendering.carried(rendered, rendered.by_name[("Pod", "mcp-tasks-test")], "config")["mcp-tasks.toml"]
        self.port, self.admin = stage.free_port(), stage.free_port()

    def here(self, text):
        for there, here in (("/etc/mcp-tasks", str(self.folder)), ("/lesson/", f"{self.folder}/lesson/"),
                            ("127.0.0.1:3000", f"127.0.0.1:{self.port}"), ("0.0.0.0:9100", f"127.0.0.1:{self.admin}")):
            text = text.replace(there, here)
        return text

    def environment(self, container):
        secrets = {"MCP_TASKS__POSTGRES__URL": self.stage.postgres, "MCP_TASKS__REDIS__URL": self.stage.redis,
                   "MCP_TASKS__GATEWAY__REQUEST_STATE_KEYS": "dGVzdC1rZXktb2YtdGhlLWNoYXJ0LXRlc3RzLTMyLWI="}
        return {"PATH": os.environ["PATH"], **{
            v["name"]: self.here(v["value"]) if "value" in v else secrets[v["name"]] for v in container["env"]}}

    def start(self):
        (self.folder / "config").mkdir()
        (self.folder / "config/mcp-tasks.toml").write_text(self.here(self.settings))
        log = open(self.stage.folder / f"test-{self.name}.log", "wb")
        self.process = subprocess.Popen([self.stage.binary.path, *self.gateway["args"]], env=self.environment(self.gateway),
                                        stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self.stage.processes.append(self.process)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            # In plain text, whatever the gateway speaks.
            self.stage.wait(f"{self.name}: {probe}", lambda: rehearsal.asked(self.gateway, probe, self.admin), self.process,
                            f"test-{self.name}")

    def teach(self):
        ran = subprocess.run([sys.executable, "-I", "-S", *map(self.here, self.lesson["command"][1:])], env=self.environment(self.lesson),
                             capture_output=True, text=True, timeout=LESSON_S, check=False)
        if self.lesson["command"][0] != "python3" or ran.returncode or "The steps held." not in ran.stdout:
            yield f"helm test, {self.name}: {self.lesson['command']}: {ran.stdout[-1500:]}{ran.stderr[-1500:]}"
        elif "short" in self.lesson["command"]:
            yield f"helm test, {self.name}: it left out what it should do"

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        if ended := self.process.wait(60):
            yield f"helm test, {self.name}: the gateway ends with {ended}"


def mount(folder, certificate, key, revision):
    """As the kubelet writes a Secret: files are links to a folder, which is a link that is replaced."""
    data = folder / f"..{revision}"
    data.mkdir(parents=True)
    (data / "tls.crt").write_text(certificate)
    (data / "tls.key").write_text(key)
    (folder / "..new").symlink_to(data.name)
    (folder / "..new").rename(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
                    f"subjectAltName=DNS:{name}", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"],
                   capture_output=True, check=True)
    return (folder / f"{name}.crt").read_text(), (folder / f"{name}.key").read_text()


def check(stage):
    """(problems, what was done). `stage` has a running Postgres and Redis, and a worker with the demo tools."""
    demo = {"config": {"tools": {"demo": True}}}
    plain = Played(stage, "plain", cases.merged(rendering.URLS, demo))
    plain.start()
    problems = [*plain.teach(), *plain.end()]

    keys = Issuer(stage.folder, "test-issuer")
    auth = {"mode": "tokens", "resource": AUDIENCE, "issuers": [{"issuer": ISSUER, "jwks_file": "/etc/mcp-tasks/jwks.json"}]}
    tls = Played(stage, "tls", cases.merged(rendering.URLS, demo, {"config": {"auth": auth}, "gateway": {"tls": {"existingSecret": "ext-tls"}}}))
    (tls.folder / "jwks.json").write_text(keys.jwks())
    mount(tls.folder / "tls", *certificate(stage.folder, "first.test"), 1)
    tls.start()
    problems += tls.teach()

    def served():
        return ssl.get_server_certificate(("127.0.0.1", tls.port)).strip()

    if served() != (stage.folder / "first.test.crt").read_text().strip():
        problems.append("helm test, tls: another certificate than the mounted one")
    mount(tls.folder / "tls", *certificate(stage.folder, "second.test"), 2)
    deadline = time.monotonic() + READ_S
    while served() != (stage.folder / "second.test.crt").read_text().strip():
        if time.monotonic() > deadline:
            problems.append(f"helm test, tls: the new certificate is not served after {READ_S} s")
            break
        time.sleep(0.5)
    problems += tls.end()
    return problems, "helm test's own pod taught the six steps, plain and encrypted; a new certificate was served without a restart"
