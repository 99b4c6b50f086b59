"""The files of deploy/ against the built binary and the repository: commands, flags, settings, ports, paths."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import yaml

import rendering
from rendering import ROOT

FOLDER = ROOT / "deploy"
COMPOSE = pathlib.Path(sys.executable).parent / "docker-compose"
# What the images of others are started with is asked of Debian's.
OTHERS = {"prom/prometheus": "prometheus", "prom/alertmanager": "prometheus-alertmanager"}


def check(binary):
    return [*dockerfile(binary), *compose(binary)]


def dockerfile(binary):
    stages, stage, bases = [], None, {}
    text = re.sub(r"\\\n\s*", " ", (FOLDER / "Dockerfile").read_text())
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "ARG" and stage is None:
            name, _, bases[name] = rest.partition("=")
        elif word == "FROM":
            # A builder pins a base by its digest without another Dockerfile.
            base = re.match(r"\$\{(\w+)\}", rest)
            if not base or not bases.get(base[1]):
                yield f"Dockerfile: {rest} is no argument with a default"
            stage = {"FROM": bases.get(base[1], "") if base else rest}
            stages.append(stage)
        elif word.isupper():
            stage.setdefault(word, []).append(rest)
    build, finals = stages[0], stages[1:]
    channel = re.search(r'channel = "(.+)"', (ROOT / "rust-toolchain.toml").read_text())[1]
    if not build["FROM"].startswith(f"rust:{channel}-"):
        yield f"Dockerfile: it builds with {build['FROM']}, not with {channel} of rust-toolchain.toml"
    [run] = build["RUN"]
    packages = re.findall(r"-p ([a-z-]+)", run)
    names = [re.search(r'^name = "(.+)"', (ROOT / f"crates/{p}/Cargo.toml").read_text(), re.M)[1]
             for p in packages if (ROOT / f"crates/{p}/Cargo.toml").exists()]
    if not packages or names != packages:
        yield f"Dockerfile: there is no package {packages}"
    for wanted in ("--locked", "--release", '--target "$target"', "deploy/sbom"):
        if wanted not in run:
            yield f"Dockerfile: it builds without {wanted}"
    for wanted in ("+crt-static", "--remap-path-prefix=/src=."):
        if wanted not in " ".join(build["ENV"]):
            yield f"Dockerfile: it builds without {wanted}"
    ports = sorted(re.findall(r"`\"127\.0\.0\.1:(\d+)\"`", binary.says("config", "reference")))
    for final in finals:
        where = f"Dockerfile: {final['FROM']}"
        copies = dict(copy.split()[-2:] for copy in final["COPY"])
        if any(f" {source}" not in run for source in copies):
            yield f"{where}: copies {sorted(copies)}, which are not all made"
        target = copies.get(f"/out/{packages[0]}")
        if json.loads(final["ENTRYPOINT"][0]) != [target]:
            yield f"{where}: {target} is the binary, and {final['ENTRYPOINT'][0]} is run"
        if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", final["USER"][-1]):
            yield f"{where}: runs as {final['USER'][-1]}"
        if sorted(final["EXPOSE"][0].split()) != ports:
            yield f"{where}: exposes {final['EXPOSE'][0]}, the binary listens at {ports}"
        yield from (f"{where}: {p}" for p in binary.misunderstands(json.loads(final["CMD"][0]), []))
        asks = json.loads(final["HEALTHCHECK"][0].partition("CMD ")[2])
        if asks[0] != target:
            yield f"{where}: its health is asked with {asks[0]}"
        yield from (f"{where}: {p}" for p in binary.misunderstands(asks[1:], []))
        # The chart and its page name the binary for `kubectl exec`.
        for page in ("helm/mcp-tasks/templates/NOTES.txt", "docs/install-kubernetes.md"):
            for path in re.findall(r"-- (/\S+/mcp-tasks)\b", (ROOT / page).read_text()):
                if path != target:
                    yield f"{page}: runs {path}, the image has {target}"
    labels = dict(re.findall(r'(\S+)="([^"]*)"', " ".join(finals[-1]["LABEL"])))
    if labels.get("dev.mcp-tasks.sbom") != copies[f"/out/{packages[0]}.cdx.json"]:
        yield "Dockerfile: the label does not name the bill of materials"
    yield from sbom(packages[0])


def sbom(package):
    """What the image says that it is made of: the same every time, whole, and nothing but that."""
    host = subprocess.run(["rustc", "--print", "host-tuple"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    made = [subprocess.run([FOLDER / "sbom", package, host], cwd=ROOT, capture_output=True, text=True, check=True).stdout
            for _ in range(2)]
    if made[0] != made[1]:
        yield "deploy/sbom: differs from itself"
    bill = json.loads(made[0])
    components = {c["name"]: c for c in bill["components"]}
    if bill["bomFormat"] != "CycloneDX" or bill["metadata"]["component"]["name"] != package:
        yield f"deploy/sbom: is of {bill['metadata']}"
    for name in ("tokio", "hyper", "tokio-postgres", "redis", "ring", "mcp-tasks-store"):
        if name not in components:
            yield f"deploy/sbom: lacks {name}"
    for name, c in components.items():
        if "licenses" not in c or ("hashes" not in c and not name.startswith("mcp-tasks")):
            yield f"deploy/sbom: {c} has no licence or checksum"
    for name in ("proptest", "rmcp", "mcp-tasks-tidy"):
        if name in components:
            yield f"deploy/sbom: {name} is not in the binary"


# What a whole trial needs (and how many of each).
SERVICES = {"gateway": 3, "worker": 2, "cron": 1, "migrate": 1}
BESIDE = {"postgres", "redis", "proxy", "prometheus", "alertmanager", "grafana", "otel-collector"}


def resolved():
    """compose.yaml as Docker Compose itself understands it."""
    ran = subprocess.run([COMPOSE, "-f", FOLDER / "compose.yaml", "config", "--format", "json"], capture_output=True,
                         text=True, check=False, env={"PATH": "/usr/bin:/bin", "HOME": str(rendering.SCRATCH)})
    if ran.returncode:
        raise SystemExit(f"docker compose config: {ran.stderr}")
    return json.loads(ran.stdout)


def compose(binary):
    stack = resolved()
    ours = {}
    for name, service in stack["services"].items():
        where = f"compose.yaml: {name}"
        image = service["image"]
        if ":" not in image or image.endswith(":latest"):
            yield f"{where}: an image that may change: {image}"
        if image.startswith("mcp-tasks:"):
            if not service.get("read_only") or service.get("cap_drop") != ["ALL"]:
                yield f"{where}: may write to its image, or has rights of the system's"
            if service.get("security_opt") != ["no-new-privileges:true"]:
                yield f"{where}: may get further rights"
        for volume in service.get("volumes", []):
            if volume["type"] == "bind" and not pathlib.Path(volume["source"]).exists():
                yield f"{where}: there is no {volume['source']}"
            if volume["type"] == "bind" and not volume.get("read_only"):
                yield f"{where}: may write to {volume['source']}"
        if inline := service.get("build", {}).get("dockerfile_inline"):
            linter = ROOT / os.environ.get("MCP_TASKS_TOOLS", ".tools") / "lint/bin/hadolint"
            ran = subprocess.run([linter, "-"], input=inline, capture_output=True, text=True, check=False)
            if ran.returncode:
                yield f"{where}: hadolint: {ran.stdout}{ran.stderr}"
        health = service.get("healthcheck", {})
        command = service.get("command") or []
        if not health.get("test") and command != ["migrate"]:
            yield f"{where}: nobody asks how it is"
        elif command != ["migrate"] and not {"interval", "timeout", "retries"} <= health.keys():
            yield f"{where}: asks how it is without interval, timeout and retries"
        for other, needs in service.get("depends_on", {}).items():
            wanted = {"service_completed_successfully": lambda o: o.get("command") == ["migrate"],
                      "service_healthy": lambda o: o.get("healthcheck", {}).get("test")}.get(needs["condition"])
            if wanted and not wanted(stack["services"][other]):
                yield f"{where}: waits in vain for {other}: {needs['condition']}"
        program = OTHERS.get(image.split(":")[0])
        if program:
            told = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
            for argument in command:
                flag = argument.split("=")[0]
                if not re.search(rf"{re.escape(flag)}\b", told.stdout + told.stderr):
                    yield f"{where}: {program} has no flag {flag}"
        if image.startswith("mcp-tasks:"):
            ours[name] = service
            yield from run(binary, where, service)
            if not (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).exists():
                yield f"{where}: there is no {service['build']}"
            if command != ["migrate"]:
                yield from (f"{where}: health: {p}" for p in binary.misunderstands(health["test"][2:], []))
    for role, count in SERVICES.items():
        if (found := sum(s["command"][0] == role for s in ours.values())) != count:
            yield f"compose.yaml: runs {found} of {role}, not {count}"
    if missing := BESIDE - stack["services"].keys():
        yield f"compose.yaml: lacks {sorted(missing)}"
    listens = [value for service in ours.values() for name, value in service.get("environment", {}).items()
               if name.endswith(("__BIND", "__LISTEN"))]
    if len(set(listens)) != len(listens):
        yield f"compose.yaml: an address twice: {listens}"
    # Everybody drains longer than Docker's ten seconds.
    for name, service in ours.items():
        if service["command"][0] != "migrate" and service.get("stop_grace_period") != "30s":
            yield f"compose.yaml: {name}: is killed while it drains"
    yield from proxy(ours)
    yield from watched(stack, ours)
    yield from grafana(stack)
    yield from servers(stack)


def proxy(ours):
    """The proxy leads to the gateways, and asks each at its own admin address."""
    config = (FOLDER / "haproxy.cfg").read_text()
    gateways = sorted((s["environment"]["MCP_TASKS__GATEWAY__BIND"], s["environment"]["MCP_TASKS__ADMIN__LISTEN"].split(":")[1])
                      for s in ours.values() if s["command"][0] == "gateway")
    asked = re.findall(r"server \S+ (\S+) check port (\d+)", config)
    if sorted(asked) != gateways:
        yield f"haproxy.cfg: leads to {asked}, the gateways are {gateways}"
    tracking = re.findall(r"server \S+ (\S+) track", config)
    if sorted(tracking) != [g for g, _ in gateways]:
        yield f"haproxy.cfg: polls go to {tracking}"
    [bind] = re.findall(r"frontend mcp\n  bind (\S+)", config)
    for service in ours.values():
        if service["command"][0] == "gateway" and bind not in service["environment"]["MCP_TASKS__GATEWAY__ALLOWED_HOSTS"].split(","):
            yield f"compose.yaml: a gateway refuses the Host {bind}"
    [told] = [s["environment"].get("MCP_TASKS__GATEWAY__TRUSTED_PROXIES") for s in ours.values() if s["command"] == ["gateway"]][:1]
    if told != bind.split(":")[0] or "option forwardfor" not in config:
        yield f"haproxy.cfg: gateways believe {told} who their clients are, and {bind} has to tell them"
    ran = subprocess.run(["/usr/sbin/haproxy", "-c", "-f", FOLDER / "haproxy.cfg"], capture_output=True, text=True, check=False)
    if ran.returncode or "warning" in ran.stderr.lower():
        yield f"haproxy.cfg: {ran.stderr}"


def watched(stack, ours):
    """Traces reach the collector, and the collector reaches Jaeger; Prometheus scrapes what there is."""
    collector = yaml.safe_load((FOLDER / "otel-collector.yaml").read_text())
    service = collector["service"]
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in service["pipelines"].values() for name in pipeline[kind]}
        if used != collector[kind].keys():
            yield f"otel-collector.yaml: {kind}: {sorted(used)} are used, {sorted(collector[kind])} are there"
    if set(service["extensions"]) != collector["extensions"].keys():
        yield "otel-collector.yaml: extensions"
    takes = f"http://{collector['receivers']['otlp']['protocols']['http']['endpoint']}/v1/traces"
    sends = {s["environment"].get("MCP_TASKS__TRACES__ENDPOINT") for s in ours.values()}
    if sends != {takes}:
        yield f"compose.yaml: spans go to {sends}, the collector listens at {takes}"
    asked = stack["services"]["otel-collector"]["healthcheck"]["test"][-1]
    if asked != f"http://{collector['extensions']['health_check']['endpoint']}/":
        yield f"compose.yaml: otel-collector: is asked at {asked}"
    published = {f"{p['host_ip']}:{p['published']}": p["target"] for p in stack["services"]["jaeger"]["ports"]}
    if published.get(collector["exporters"]["otlp/jaeger"]["endpoint"]) != 4317:
        yield f"otel-collector.yaml: Jaeger takes OTLP at {published}"
    reader = service["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"]["prometheus"]
    config = (FOLDER / "prometheus.yml").read_text()
    exporter = re.search(r"frontend metrics\n  bind (\S+)", (FOLDER / "haproxy.cfg").read_text())[1]
    for target in (f"{reader['host']}:{reader['port']}", exporter):
        if f'"{target}"' not in config:
            yield f"prometheus.yml: does not look at {target}"


def grafana(stack):
    """It looks for dashboards where they are mounted, and asks the Prometheus that there is."""
    service = stack["services"]["grafana"]
    mounts = {v["target"] for v in service["volumes"]}
    for provider in yaml.safe_load((FOLDER / "grafana/dashboards.yaml").read_text())["providers"]:
        if provider["options"]["path"] not in mounts:
            yield f"grafana/dashboards.yaml: nothing is mounted at {provider['options']['path']}"
    if not {f"/etc/grafana/provisioning/{kind}/mcp-tasks.yaml" for kind in ("datasources", "dashboards")} <= mounts:
        yield f"compose.yaml: grafana is provisioned with {sorted(mounts)}"
    listens = next(a.partition("=")[2] for a in stack["services"]["prometheus"]["command"] if a.startswith("--web.listen-address="))
    [source] = yaml.safe_load((FOLDER / "grafana/datasources.yaml").read_text())["datasources"]
    if source["url"] != f"http://{listens}":
        yield f"grafana/datasources.yaml: asks {source['url']}, Prometheus listens at {listens}"
    uids = {uid for path in (ROOT / "helm/mcp-tasks/files/dashboards").glob("*.json")
            for uid in re.findall(r'"type": "prometheus",\s*"uid": "([^"]+)"', path.read_text())}
    # A variable lets people choose; a name has to be ours.
    if unknown := {uid for uid in uids if not uid.startswith("$")} - {source["uid"]}:
        yield f"grafana/datasources.yaml: is {source['uid']}, dashboards ask {sorted(unknown)}"


def servers(stack):
    """Redis takes what it is started with; health checks are commands that these programs have."""
    redis = stack["services"]["redis"]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="redis-", dir=rendering.SCRATCH))
    socket = folder / "s"
    process = subprocess.Popen([*redis["command"], "--port", "0", "--unixsocket", socket, "--dir", folder], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while subprocess.run(["redis-cli", "-s", socket, *redis["healthcheck"]["test"][2:]], capture_output=True, check=False).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                yield f"compose.yaml: redis does not start with {redis['command']}"
                return
            time.sleep(0.1)
        flags = redis["command"][1:]
        for flag, wanted in zip(flags[::2], flags[1::2], strict=True):
            told = subprocess.run(["redis-cli", "-s", socket, "CONFIG", "GET", flag.removeprefix("--")], capture_output=True, text=True, check=True)
            if told.stdout.split() != [flag.removeprefix("--"), wanted]:
                yield f"compose.yaml: redis: {flag} is {told.stdout.split()}, not {wanted}"
    finally:
        process.terminate()
        process.wait()
    test = stack["services"]["postgres"]["healthcheck"]["test"]
    # Nobody listens there: 2; a command line that it does not understand: 3.
    if subprocess.run([*test[1:], "-p", "1"], capture_output=True, check=False).returncode != 2:
        yield f"compose.yaml: postgres: {test}"


def run(binary, where, service):
    arguments, environment = service["command"], service.get("environment", {})
    yield from (f"{where}: {p}" for p in binary.misunderstands(arguments, environment))
    mounts = {v["target"]: v["source"] for v in service.get("volumes", [])}
    file = None
    if "--config" in arguments:
        inside = arguments[arguments.index("--config") + 1]
        file = mounts.get(inside)
        if not file:
            yield f"{where}: reads {inside}, which is not mounted"
    if refusal := binary.refuses(pathlib.Path(file) if file else None, environment):
        yield f"{where}: config check: {refusal}"
