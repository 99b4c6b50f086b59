"""The files of deploy/ against the built binary and the repository: commands, flags, settings, ports, paths."""

import json
import pathlib
import re
import subprocess

import yaml

import rendering
from rendering import ROOT

FOLDER = ROOT / "deploy"
# What the images of others are started with is asked of Debian's.
OTHERS = {"prom/prometheus": "prometheus", "prom/alertmanager": "prometheus-alertmanager"}


def check(binary):
    return [*dockerfile(binary), *compose(binary)]


def dockerfile(binary):
    stages, stage = [], None
    text = re.sub(r"\\\n\s*", " ", (FOLDER / "Dockerfile").read_text())
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            stage = {"FROM": rest}
            stages.append(stage)
        elif word.isupper():
            stage.setdefault(word, []).append(rest)
    build, finals = stages[0], stages[1:]
    channel = re.search(r'channel = "(.+)"', (ROOT / "rust-toolchain.toml").read_text())[1]
    if not build["FROM"].startswith(f"rust:{channel}-"):
        yield f"Dockerfile: it builds with {build['FROM']}, not with {channel} of rust-toolchain.toml"
    packages = re.findall(r"-p ([a-z-]+)", " ".join(build["RUN"]))
    names = [re.search(r'^name = "(.+)"', (ROOT / f"crates/{p}/Cargo.toml").read_text(), re.M)[1]
             for p in packages if (ROOT / f"crates/{p}/Cargo.toml").exists()]
    if not packages or names != packages:
        yield f"Dockerfile: there is no package {packages}"
    ports = sorted(re.findall(r"`\"127\.0\.0\.1:(\d+)\"`", binary.says("config", "reference")))
    for final in finals:
        where = f"Dockerfile: {final['FROM']}"
        source, target = final["COPY"][0].split()[-2:]
        if source != f"/src/target/release/{packages[0]}" or json.loads(final["ENTRYPOINT"][0]) != [target]:
            yield f"{where}: {source} becomes {target}, and {final['ENTRYPOINT'][0]} is run"
        if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", final["USER"][-1]):
            yield f"{where}: runs as {final['USER'][-1]}"
        if sorted(final["EXPOSE"][0].split()) != ports:
            yield f"{where}: exposes {final['EXPOSE'][0]}, the binary listens at {ports}"
        yield from (f"{where}: {p}" for p in binary.misunderstands(json.loads(final["CMD"][0]), []))
        # The chart and its page name the binary for `kubectl exec`.
        for page in ("helm/mcp-tasks/templates/NOTES.txt", "docs/install-kubernetes.md"):
            for path in re.findall(r"-- (/\S+/mcp-tasks)\b", (ROOT / page).read_text()):
                if path != target:
                    yield f"{page}: runs {path}, the image has {target}"


def compose(binary):
    stack = yaml.load((FOLDER / "compose.yaml").read_text(), rendering.Loader)
    ours = {}
    for name, service in stack["services"].items():
        where = f"compose.yaml: {name}"
        image = service["image"]
        if ":" not in image or image.endswith(":latest"):
            yield f"{where}: an image that may change: {image}"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith(".") and not (FOLDER / source).exists():
                yield f"{where}: there is no {source}"
            if not source.startswith(".") and source not in stack["volumes"]:
                yield f"{where}: there is no volume {source}"
        for other in service.get("depends_on", {}):
            if other not in stack["services"]:
                yield f"{where}: depends on {other}, which there is not"
        program = OTHERS.get(image.split(":")[0])
        if program:
            told = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
            for argument in service.get("command", []):
                flag = argument.split("=")[0]
                if not re.search(rf"{re.escape(flag)}\b", told.stdout + told.stderr):
                    yield f"{where}: {program} has no flag {flag}"
        if image.startswith("mcp-tasks:"):
            ours[name] = service
            yield from run(binary, where, service)
            if not (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).exists():
                yield f"{where}: there is no {service['build']}"
    roles = {service["command"][0] for service in ours.values()}
    if not {"gateway", "worker", "cron", "migrate"} <= roles:
        yield f"compose.yaml: runs only {roles}"
    listens = [value for service in ours.values() for name, value in service.get("environment", {}).items()
               if name.endswith(("__BIND", "__LISTEN"))]
    if len(set(listens)) != len(listens):
        yield f"compose.yaml: an address twice: {listens}"


def run(binary, where, service):
    arguments, environment = service["command"], service.get("environment", {})
    yield from (f"{where}: {p}" for p in binary.misunderstands(arguments, environment))
    mounts = {v.split(":")[1]: FOLDER / v.split(":")[0] for v in service.get("volumes", [])}
    file = None
    if "--config" in arguments:
        inside = arguments[arguments.index("--config") + 1]
        file = mounts.get(inside)
        if not file:
            yield f"{where}: reads {inside}, which is not mounted"
    if refusal := binary.refuses(pathlib.Path(file) if file else None, environment):
        yield f"{where}: config check: {refusal}"
