"""A private stack (`mcp-tasks dev`), and processes beside it; nothing outlives the caller."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
READY_S = 120
GIVEN = set()


def free_port():
    """Never twice, and none that the system gives to connections by itself: those begin at 32768."""
    while True:
        port = random.randrange(10240, 32768)
        if port in GIVEN:
            continue
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        GIVEN.add(port)
        return port


class Stack:
    def __init__(self, binary):
        self.binary = pathlib.Path(binary).resolve()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mcp-tasks-docs-"))
        # Postgres does not run as root, and has to get here.
        os.chmod(self.folder, 0o755)
        self.processes = []
        bin_dir = self.folder / "bin"
        bin_dir.mkdir()
        (bin_dir / "mcp-tasks").symlink_to(self.binary)
        postgres = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name))
        self.path = ":".join([str(bin_dir), *(str(p) for p in postgres[-1:]), os.environ["PATH"]])

    def __enter__(self):
        self.port, self.data = free_port(), self.folder / "dev"
        self.start("dev", [self.binary, "dev", "--port", self.port, "--data-dir", self.data])
        described = self.data / "processes.json"
        self.wait("the stack", described.exists, "dev")
        self.described = json.loads(described.read_text())
        self.postgres, self.redis = self.described["postgres"]["url"], self.described["redis"]["url"]
        self.config = self.data / "run/cron-1.toml"
        return self

    def __exit__(self, *_):
        for name, process in reversed(self.processes):
            self.end(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MCP_TASKS", "PG"))}
        return {**kept, "PATH": self.path, **{k: str(v) for k, v in more.items()}}

    def start(self, name, arguments, **more):
        log = open(self.folder / f"{name}.log", "ab")
        process = subprocess.Popen([str(a) for a in arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                   env=self.environment(**more), start_new_session=True)
        self.processes.append((name, process))
        return process

    def end(self, process, how=signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait(self, what, ready, name=None):
        deadline = time.monotonic() + READY_S
        while not (found := ready()):
            process = next((p for n, p in reversed(self.processes) if n == name), None)
            if time.monotonic() > deadline or (process and process.poll() is not None):
                log = (self.folder / f"{name}.log").read_text(errors="replace")[-2000:] if name else ""
                raise RuntimeError(f"in vain: {what} {log}")
            time.sleep(0.1)
        return found
