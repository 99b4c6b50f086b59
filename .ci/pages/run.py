"""Runs what pages show: see .ci/docs."""

import concurrent.futures
import re
import subprocess
import sys
import time
import uuid

import drills
from stack import ROOT, Stack

PAGES = ["README.md", "CONTRIBUTING.md", "migrations/README.md", "helm/mcp-tasks/README.md", "docs"]
BLOCK = re.compile(r"^<!-- (run|not run)(?::(.*?))? -->\n```(\w*)\n(.*?)^```", re.S | re.M)
PAGE_S = 300
# A page's pauses end when all work has come to rest: a slow machine needs longer than the page says.
PRELUDE = r"""
sleep() {
    command sleep "$1"
    for _ in $(seq 100); do
        [ "$(psql "$STACK_POSTGRES" -Atc "SELECT count(*) FROM tasks WHERE phase IN ('queued', 'running')")" != 0 ] || break
        command sleep 0.5
    done
}
"""


def pages(names):
    for name in names or PAGES:
        path = ROOT / name
        yield from sorted(path.rglob("*.md")) if path.is_dir() else [path]


def blocks(path):
    """(what the marker asks for, the commands) of each block that is to be run."""
    for marker, rest, language, text in BLOCK.findall(path.read_text()):
        if marker != "run":
            continue
        sees = re.findall(r"`([^`]+)`", rest)
        if language in ("", "console"):
            text = "".join(line[2:] + "\n" for line in text.splitlines() if line.startswith("$ "))
        yield sees, text


def here(stack, text):
    """With this stack's addresses and files in place of those of a default one."""
    admin = stack.described["gateways"][0]["admin"].removeprefix("http://")
    text = text.replace("127.0.0.1:3000", f"127.0.0.1:{stack.port}").replace("127.0.0.1:9100", admin)
    return text.replace(".dev/", f"{stack.data}/").replace("01963d5c-7a10-7abc-8def-0123456789ab", stack.task)


def some_task(stack):
    """A task that pages may look at."""
    lesson = ROOT / "helm/mcp-tasks/tests/lesson.py"
    ran = subprocess.run([sys.executable, "-B", lesson], capture_output=True, text=True, check=False,
                         env=stack.environment(LESSON_URL=f"http://127.0.0.1:{stack.port}/mcp"))
    if ran.returncode:
        raise RuntimeError(ran.stdout + ran.stderr)
    shown = subprocess.run(["psql", stack.postgres, "-Atc", "SELECT id FROM tasks LIMIT 1"], capture_output=True, text=True,
                           check=True, env=stack.environment())
    return shown.stdout.strip()


def run(stack, path):
    found = list(blocks(path))
    if not found:
        return []
    mark = f"==== {uuid.uuid4()}"
    script = PRELUDE + "".join(f"echo '{mark}'\n{here(stack, text)}\n" for _, text in found)
    began = time.monotonic()
    try:
        ran = subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PAGE_S,
                             check=False, stdin=subprocess.DEVNULL,
                             env=stack.environment(MCP_TASKS_CONFIG=stack.config, STACK_POSTGRES=stack.postgres, HOME=stack.folder))
    except subprocess.TimeoutExpired as late:
        return [f"{path.relative_to(ROOT)}: still runs after {PAGE_S} s: {late.stdout}"]
    outputs = ran.stdout.split(f"{mark}\n")[1:]
    problems = []
    if ran.returncode:
        problems.append(f"{path.relative_to(ROOT)}: block {len(outputs)} of those that are run ended with {ran.returncode}: "
                        f"{(outputs or [''])[-1][-600:]} {ran.stderr[-1500:]}")
    for (sees, text), output in zip(found, outputs):
        problems += [f"{path.relative_to(ROOT)}: {wanted!r} is not in what {text.strip()[:60]!r}… prints: {output[-1500:]}"
                     for wanted in sees if wanted not in output]
    if not problems:
        print(f"{time.monotonic() - began:6.1f} s  {path.relative_to(ROOT)}: {len(found)} blocks ran", flush=True)
    return problems


def main():
    problems, count = [], 0
    with Stack(sys.argv[1]) as stack, concurrent.futures.ThreadPoolExecutor(1) as pool:
        # Beside the pages: they have databases of their own.
        drilled = None if sys.argv[2:] else pool.submit(drills.run, stack)
        stack.task = some_task(stack)
        for path in pages(sys.argv[2:]):
            count += len(list(blocks(path)))
            problems += run(stack, path)
        problems += drilled.result() if drilled else []
    for problem in problems:
        print(f"FAILED: {problem}", flush=True)
    if not problems:
        print(f"{count} blocks of commands ran")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
