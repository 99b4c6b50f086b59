"""The last stage of deploy/Dockerfile, played: a root with nothing in it but what the Dockerfile copies there (and
the C library, which a static binary has inside and the tests' own has not), read-only, as the image's user and
without any privilege. From it the schema is migrated, all three processes run, and a task is done."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import time
import urllib.parse

import compose
import deploy
import rehearsal
import rendering

# Beside what was copied: what engines give to every container.
ROOT = """
set -eu
mount --bind {made} {root}
for device in null zero random urandom; do mount --bind /dev/$device {root}/dev/$device; done
mount --rbind -o ro /proc {root}/proc
mount -o remount,bind,ro {root}
exec env -i {environment} /usr/bin/setpriv --no-new-privs --inh-caps=-all \\
    /usr/sbin/chroot --userspec={user} --groups= {root} {command}
"""
# What `+crt-static` links into the binary.
INSIDE = re.compile(r"^(libgcc_s\.so\.1|libm\.so\.6|libc\.so\.6|ld-linux-.*\.so\.\d|linux-vdso\.so\.1)$")
# A static binary looks up names by itself, as the Dockerfile says; and this root is as it is meant to be.
PROBE = """
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    if (getuid() == 0 || getgid() == 0 || seteuid(0) == 0) return puts("is root"), 1;
    if (open("/made", O_CREAT | O_WRONLY, 0600) >= 0 || open("/probe", O_WRONLY) >= 0) return puts("can write"), 1;
    if (access("/tmp", F_OK) == 0 || access("/bin/sh", F_OK) == 0) return puts("there is more than the image"), 1;
    struct addrinfo *found;
    int failed = getaddrinfo("name.image.test", "5432", 0, &found);
    return failed ? puts(gai_strerror(failed)), 1 : 0;
}
"""


class Image:
    def __init__(self, stage):
        self.stage, self.made, self.count = stage, stage.folder / "image", 0
        text = re.sub(r"\\\n\s*", " ", (deploy.FOLDER / "Dockerfile").read_text())
        final = text.rpartition("\nFROM ")[2]
        self.user = re.search(r"^USER (\S+)", final, re.M)[1]
        self.health = json.loads(re.search(r"^HEALTHCHECK .* CMD (\[.*\])", final, re.M)[1])
        [self.program] = json.loads(re.search(r"^ENTRYPOINT (\[.*\])", final, re.M)[1])
        self.default = json.loads(re.search(r"^CMD (\[.*\])", final, re.M)[1])
        for source, target in re.findall(r"^COPY --from=build (\S+) (\S+)", final, re.M):
            self.put(stage.binary.path if source == "/out/mcp-tasks" else None, target)
        self.problems = []
        listed = subprocess.run(["ldd", stage.binary.path], capture_output=True, text=True, check=False).stdout
        for line in listed.splitlines():
            name, path = line.split()[0], re.search(r"(/\S+) \(0x", line)
            if not INSIDE.match(os.path.basename(name)):
                self.problems.append(f"image: the binary needs {name}, which is in no static one")
            if path:
                self.put(path[1], path[1])
        # Where engines mount what every container has.
        for name in ("null", "zero", "random", "urandom"):
            self.put(None, f"/dev/{name}")
        (self.made / "proc").mkdir()
        (self.made / "etc").mkdir()
        (self.made / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.0.1 name.image.test\n")

    def put(self, source, target):
        path = pathlib.Path(f"{self.made}{target}")
        path.parent.mkdir(parents=True, exist_ok=True)
        if source:
            # Linked: it is large, and the same for everybody.
            source = os.path.realpath(source)
            try:
                os.link(source, path)
            except OSError:
                shutil.copy(source, path)
        else:
            path.write_text("{}")

    def script(self, command, environment):
        self.count += 1
        root = self.stage.folder / f"image-root-{self.count}"
        root.mkdir()
        return ROOT.format(root=shlex.quote(str(root)), made=shlex.quote(str(self.made)), user=self.user,
                           environment=" ".join(shlex.quote(f"{k}={v}") for k, v in environment.items()),
                           command=" ".join(shlex.quote(str(c)) for c in command))

    def run(self, command, environment):
        return subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", self.script(command, environment)],
                              capture_output=True, text=True, check=False, timeout=60)

    def start(self, name, arguments, environment):
        return self.stage.start_process(f"image-{name}", "unshare", "-m", "--propagation", "private", "sh", "-c",
                                        self.script([self.program, *arguments], environment))


def probe(image):
    """A program that is linked as the image's binary is looks around in it."""
    source = image.stage.folder / "probe.c"
    source.write_text(PROBE)
    # The linker warns that names may need libraries; that they do not is what this is about.
    built = subprocess.run(["cc", "-static", "-w", "-o", image.made / "probe", source], capture_output=True, text=True, check=False)
    if built.returncode:
        return [f"image: a static program: {built.stderr[-500:]}"]
    ran = image.run(["/probe"], {})
    return [f"image: a static program in it: {ran.stdout}{ran.stderr}"] if ran.returncode else []


def users(stage):
    """Users of Postgres for a database of the image's own, made by what the page on installation says. They are the
    whole server's, so that nobody else may be making the same ones meanwhile."""
    page = (rendering.ROOT / "docs/install-kubernetes.md").read_text()
    [statements] = [block for block in re.findall(r"```sql\n(.*?)```", page, re.S) if "CREATE DATABASE" in block]
    for statement in statements.replace("DATABASE mcp_tasks", "DATABASE image").replace("…", "word").split(";\n"):
        rehearsal.psql(stage, "-c", statement)


def check(stage):
    """(problems, what was done)."""
    if os.geteuid() != 0:
        return [], "image left out: only root can make its root"
    if subprocess.run(["unshare", "-m", "--propagation", "private", "true"], capture_output=True, check=False).returncode:
        return [], "image left out: no mount namespaces are to be had here"
    image = Image(stage)
    problems = image.problems + probe(image)
    version = image.run([image.program, "--version"], {}).stdout.split()
    if version[:1] != ["mcp-tasks"]:
        problems.append(f"image: --version: {version}")
    # A database of its own, which only the image migrates, and whose users the page makes.
    def environment(user):
        there = urllib.parse.urlsplit(stage.postgres)
        url = there._replace(netloc=f"{user}:word@{there.netloc.rpartition('@')[2]}", path="/image").geturl()
        return {"MCP_TASKS__POSTGRES__URL": url, "MCP_TASKS__REDIS__URL": f"{stage.redis.rstrip('/')}/9"}

    migrated = image.run([image.program, "migrate", "--roles"], environment("owner"))
    if migrated.returncode:
        return [*problems, f"image: migrate: {migrated.stdout}{migrated.stderr}"], ""
    port, processes, environments = stage.free_port(), {}, {}
    if image.default != ["gateway"]:
        problems.append(f"image: runs {image.default} by default, and was played as a gateway")
    for role in ("gateway", "worker", "cron"):
        environments[role] = {**environment(role), "MCP_TASKS__ADMIN__LISTEN": f"127.0.0.1:{stage.free_port()}", "MCP_TASKS__TOOLS__DEMO": "true",
                              "MCP_TASKS__GATEWAY__BIND": f"127.0.0.1:{port}"}
        processes[role] = image.start(role, [role], environments[role])
    for role, process in processes.items():
        stage.wait(f"the image's {role}", lambda: image.run(image.health, environments[role]).returncode == 0, process, f"image-{role}")
    called = {"name": "reindex_corpus", "arguments": {"collection": "small"}}
    answer = json.loads(compose.request(port, "tools/call", called, rehearsal.DECLARED).read())
    deadline = time.monotonic() + 60
    while "result" in answer and answer["result"].get("status") == "working" and time.monotonic() < deadline:
        time.sleep(0.5)
        answer = json.loads(compose.request(port, "tasks/get", {"taskId": answer["result"]["taskId"]}, rehearsal.DECLARED).read())
    told = answer.get("result", {})
    if told.get("status", "completed") != "completed" or not (told.get("content") or told.get("result", {}).get("content")):
        problems.append(f"image: a call ends with {answer}")
    for role, process in processes.items():
        process.send_signal(signal.SIGTERM)
        if ended := process.wait(60):
            problems.append(f"image: {role} ends with {ended}: {stage.tail(f'image-{role}')}")
    return problems, ("the image's processes did a task from a read-only root with nothing in it but the binary, "
                      f"as {image.user} without privileges, and with a user of Postgres each")
