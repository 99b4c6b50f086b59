"""Tests the chart: see .ci/helm."""

import concurrent.futures
import functools
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time

import jsonschema
import kubernetes_validate.utils as kubernetes
import yaml
from referencing import Registry, Resource

import binary as binaries
import cases
import crds
import deploy
import generate
import live
import outcomes
import pages
import policies
import rendering
import schema as chart_schema
import units
import upgrades
from rendering import CHART, ROOT, Case

VERSIONS = ["1.30", "1.33", "1.35", "1.37"]


class Report:
    def __init__(self):
        self.problems, self.began = [], time.monotonic()

    def __call__(self, what, problems):
        problems = list(problems)
        self.problems += problems
        state = "ok" if not problems else f"FAILED: {len(problems)}"
        print(f"{time.monotonic() - self.began:6.1f} s  {what}: {state}", flush=True)
        for problem in problems[:20]:
            print(f"          {problem}", flush=True)


def lint():
    for example in [None, *cases.EXAMPLES]:
        values = rendering.SCRATCH / "urls.json"
        values.write_text(json.dumps(rendering.URLS))
        ran = rendering.helm("lint", "--strict", CHART, "-f", values, *(["-f", example] if example else []))
        if ran.returncode:
            yield f"helm lint {example.name if example else ''}: {ran.stdout}{ran.stderr}"


@functools.lru_cache(maxsize=None)
def validator(version, kind, api):
    """As kubernetes-validate does it, but made once for each kind: its definitions are large."""
    folder = f"kubernetes-json-schema/v{version}.0-local-strict"
    short = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api)
    schema = kubernetes.schema_contents(f"{folder}/{kind.lower()}-{short}.json", version)
    registry = Resource.from_contents(definitions(version)) @ (Resource.from_contents(schema) @ Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)


@functools.lru_cache(maxsize=None)
def definitions(version):
    return kubernetes.schema_contents(f"kubernetes-json-schema/v{version}.0-local-strict/_definitions.json", version)


@functools.lru_cache(maxsize=None)
def crd(kind, api):
    return jsonschema.Draft202012Validator(crds.SCHEMAS[(api, kind)])


def schemas(objects):
    """Each distinct object against the schemas of all versions of Kubernetes."""
    count = 0
    for o in objects:
        key = (o["apiVersion"], o["kind"])
        checks = [("its CRD", crd(key[1], key[0]))] if key in crds.SCHEMAS else [
            (f"Kubernetes {v}", validator(v, key[1], key[0])) for v in VERSIONS]
        for name, check in checks:
            count += 1
            for error in check.iter_errors(o):
                yield f"{o['kind']}/{o['metadata']['name']} for {name}: {'.'.join(map(str, error.path))}: {error.message[:300]}"
    schemas.count = count


def distinct(renderings):
    seen = {}
    for rendered in renderings:
        for o in rendered.objects:
            seen.setdefault(hashlib.sha256(json.dumps(o, sort_keys=True).encode()).digest(), o)
    return list(seen.values())


def settings(renderings, binary):
    folder, seen = binaries.mounted(), {}
    for rendered in renderings:
        for who, file, environment in binaries.settings_of(rendered, folder):
            environment = {**environment, "SSL_CERT_FILE": str(folder / "ca.crt")}
            seen.setdefault((file, tuple(sorted(environment.items()))), who)

    def ask(number, file, environment):
        path = None
        if file is not None:
            path = rendering.SCRATCH / f"settings-{number}.toml"
            path.write_text(file)
        return binary.refuses(path, dict(environment))

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = {pool.submit(ask, n, *key): who for n, (key, who) in enumerate(seen.items())}
        for future, who in asked.items():
            if refusal := future.result():
                yield f"{who}: config check: {refusal[-500:]}"
    settings.count = len(seen)


def tools(renderings, binary):
    seen = set()
    for rendered in renderings:
        for o in rendered.of("Deployment"):
            brought = rendering.carried(rendered, o, "files")
            if "tools.toml" not in brought or (text := json.dumps(brought, sort_keys=True)) in seen:
                continue
            seen.add(text)
            folder = rendering.SCRATCH / f"tools-{len(seen)}"
            folder.mkdir()
            for name, content in brought.items():
                (folder / name).write_text(content)
                (folder / name).chmod(0o555)
            if refusal := binary.refuses_tools(folder / "tools.toml"):
                yield f"{rendered.case.name}: {o['metadata']['name']}: check: {refusal[-500:]}"
    tools.count = len(seen)


def refusals(pool):
    wanted = list(cases.bad())
    for rendered, (case, parts) in zip(pool.map(rendering.render, [c for c, _ in wanted]), wanted):
        # Helm breaks no lines, but indents.
        told = " ".join(rendered.text.split())
        if rendered.ok:
            yield f"{case.values or case.name}: renders, and should be refused with {parts}"
        else:
            yield from (f"{case.values}: not told {part!r}: {told[:700]}" for part in parts if " ".join(part.split()) not in told)
    refusals.count = len(wanted)


def watching(renderings):
    """Rules are those of files/, and pass promtool with the queries of scalers; dashboards are the tested ones."""
    known = set(re.findall(r"^\| `([a-z_]+)` \|", (ROOT / "docs/metrics.md").read_text(), re.M))
    source = yaml.safe_load((CHART / "files/prometheus-rules.yaml").read_text())
    by_name = {r.case.name: r for r in renderings}
    [rule] = by_name["production"].of("PrometheusRule")
    if rule["spec"]["groups"] != source["groups"]:
        yield "the PrometheusRule is not files/prometheus-rules.yaml"
    [rule] = by_name["rules"].of("PrometheusRule")
    alerts = [r for g in rule["spec"]["groups"] for r in g["rules"] if "alert" in r]
    if any(r["alert"] == "McpTasksRestarts" or r["labels"].get("team") != "a" for r in alerts):
        yield "prometheusRule.disabled and .alertLabels do nothing"
    groups = list(rule["spec"]["groups"])
    for rendered in renderings:
        for scaler in rendered.of("ScaledObject"):
            for trigger in scaler["spec"]["triggers"]:
                query = trigger["metadata"]["query"]
                groups.append({"name": f"q{len(groups)}", "rules": [{"record": "a:b", "expr": query}]})
                yield from (f"{rendered.case.name}: no metric {n}" for n in re.findall(r"mcp_tasks_\w+", query) if n not in known)
        for scaler in rendered.of("HorizontalPodAutoscaler"):
            yield from (f"{rendered.case.name}: no metric {n}" for n in re.findall(r"mcp_tasks_\w+", json.dumps(scaler["spec"]["metrics"])) if n not in known)
    path = rendering.SCRATCH / "rules.yaml"
    for name, some in (("the PrometheusRule", rule["spec"]["groups"]), ("queries of scalers", groups)):
        path.write_text(json.dumps({"groups": some}))
        ran = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
        if ran.returncode:
            yield f"promtool, {name}: {ran.stdout}{ran.stderr}"
    dashboards = {p.name: p.read_text() for p in (CHART / "files/dashboards").glob("*.json")}
    shown = {n: t for o in by_name["dashboards"].of("ConfigMap") for n, t in o["data"].items() if "dashboard" in o["metadata"]["name"]}
    if shown != dashboards:
        yield "the ConfigMaps of dashboards are not files/dashboards"
    # The rules know our processes by the name of their job, which the monitors give them.
    jobs = set(re.findall(r'job=~"([^"]+)"', (CHART / "files/prometheus-rules.yaml").read_text()))
    for kind, field in (("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")):
        [monitor] = by_name["pod-monitor" if kind == "PodMonitor" else "service-monitor"].of(kind)
        [job] = [r for r in monitor["spec"][field][0]["relabelings"] if r["targetLabel"] == "job"]
        for component in ("gateway", "worker-default", "cron"):
            name = re.sub(f"^{job['regex']}$", job["replacement"].replace("$1", r"\1"), component)
            yield from (f"{kind}: the job {name} is not one of the rules ({pattern})" for pattern in jobs if not re.fullmatch(pattern, name))


def packaged(renderings):
    """What is published is the chart as it is tested."""
    ran = rendering.helm("package", CHART, "--destination", rendering.SCRATCH)
    if ran.returncode:
        yield ran.stderr
        return
    [archive] = rendering.SCRATCH.glob("mcp-tasks-*.tgz")
    [case] = [r.case for r in renderings if r.case.name == "production"]
    # Random: the key that seals requestState.
    case = Case("packaged", files=case.files, values={"gateway": {"requestStateKeys": {"create": False}}})
    if rendering.render(case, archive).text != rendering.render(case).text:
        yield "the packaged chart renders differently"


def notes():
    """NOTES.txt is only rendered with a cluster; so it is rendered as something else."""
    chart = rendering.SCRATCH / "notes"
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("NOTES.txt", "examples"))
    (chart / "NOTES").write_text((CHART / "templates/NOTES.txt").read_text())
    (chart / "templates/notes.yaml").write_text('kind: Notes\nout: {{ tpl (.Files.Get "NOTES") $ | quote }}\n')
    for case, wanted in (("default", ["helm test mcp-tasks -n tasks", "loopback", "No group of workers has tools"]),
                         ("trial", ["FOR TRIALS ONLY"]), ("jwt", ["come through the proxy", "exec deployment/mcp-tasks-gateway -- /usr/local/bin/mcp-tasks doctor"]), ("roles", ["user of Postgres of their own"]), ("tokens", ["TOKEN is an access token", "https://mcp.test/mcp", "config.gateway.trusted_proxies"]),
                         ("tls-other", ["curl -sk https://127.0.0.1:3000/mcp", "nothing here tells your Ingress controller"]),
                         ("tls-no-policy", ["curl -sk https://127.0.0.1:3000/mcp", "no BackendTLSPolicy says so"]),
                         ("no-keys", ["no key for requestState"])):
        values = rendering.URLS if case == "default" else cases.merged(rendering.URLS, {**cases.FEATURES, **cases.ALONE}[case])
        rendered = rendering.render(Case(f"notes {case}", values=values), chart)
        said = [o["out"] for o in rendered.objects if o["kind"] == "Notes"]
        if not said:
            yield f"NOTES.txt: {rendered.text}"
        else:
            yield from (f"NOTES.txt, {case}: says nothing of {part!r}" for part in wanted if part not in said[0])


def shared(binary):
    """What the page of settings says of all processes, and names in lists of tables, are what chart and binary have."""
    refused = re.search(r'range \$setting := list (.*?) -', (CHART / "templates/_refusals.tpl").read_text())[1]
    section = ""
    for line in (ROOT / "docs/configuration.md").read_text().splitlines():
        section = m[1] if (m := re.match(r"## `\[([a-z_.]+)\]`", line)) else section
        if (m := re.match(r"\| `([a-z_]+)` .*[Tt]he same (in all processes|for every process)", line)) and f'"{section}.{m[1]}"' not in refused:
            yield f"docs/configuration.md: {section}.{m[1]} is the same in all processes, and the chart takes it for one kind"
    for path, name in (("auth", "issuers"), ("alerts", "receivers")):
        file = rendering.SCRATCH / f"{name}.toml"
        file.write_text(f'[{path}]\n{name} = [{{ no_such_name = 1 }}]\n')
        told = set(re.findall(r"`(\w+)`", binary.refuses(file, {}).partition("expected one of")[2].partition("(")[0]))
        if told != chart_schema.ITEMS[name]["properties"].keys():
            yield f"values.schema.json: config.{path}.{name} has other names than the binary: {sorted(told)}"


def probes():
    """The page for operators suggests what the chart does."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())["gateway"]
    page = (ROOT / "docs/operations.md").read_text()
    for path, name in (("livez", "livenessProbe"), ("readyz", "readinessProbe"), ("startupz", "startupProbe")):
        probe = values[name]
        wanted = f"period {probe['periodSeconds']} s, timeout {probe['timeoutSeconds']} s, {probe['failureThreshold']} failures"
        if not re.search(rf"^\| `/{path}` .*{wanted}", page, re.M):
            yield f"docs/operations.md suggests something else for /{path} than {name} of the chart: {wanted}"


def versions():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    release = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    if chart["appVersion"] != release:
        yield f"Chart.yaml: appVersion is {chart['appVersion']}, the release is {release}"
    told = {name.removeprefix("artifacthub.io/"): yaml.safe_load(text) for name, text in chart["annotations"].items()}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    images = {f"{values['image']['repository']}:{release}", values["tests"]["image"], values["gateway"]["proxy"]["image"],
              *(server["image"] for server in values["trial"].values())}
    if {image["image"] for image in told["images"]} != images:
        yield f"Chart.yaml: it names images {told['images']}, and runs {sorted(images)}"
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    if not told["changes"] or any(change.keys() != {"kind", "description"} or change["kind"] not in kinds for change in told["changes"]):
        yield f"Chart.yaml: changes: {told['changes']}"
    for link in told["links"]:
        if not (ROOT / link["url"].partition("/blob/main/")[2]).is_file():
            yield f"Chart.yaml: nothing is at {link['url']}"


def generated():
    yield from generate.undocumented()
    for path, text in generate.written().items():
        if path.read_text() != text:
            yield f"{path.relative_to(ROOT)} is out of date: run `make helm-docs`"


def main():
    binary = binaries.Binary(sys.argv[1])
    report = Report()
    stack = live.Stack(binary)
    stack.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            report("README.md, values.schema.json, values.yaml", generated())
            report("versions, probes, settings that are shared", [*versions(), *probes(), *shared(binary)])
            report("deploy/", deploy.check(binary))
            found = list(pages.check(binary))
            report(f"{pages.check.count} things that commands of pages say", found)
            problems, count = units.check()
            report(f"{count} values of helpers", problems)
            report("helm lint", lint())
            renderings = list(pool.map(rendering.render, cases.good()))
            objects = distinct(renderings)
            report(f"{len(renderings)} sets of values render, {sum(len(r.objects) for r in renderings)} objects",
                   [f"{r.case.name}: {r.text[-800:]}" for r in renderings if not r.ok])
            if not all(r.ok for r in renderings):
                return
            found = list(refusals(pool))
            report(f"{refusals.count} sets of values are refused with a sentence", found)
            found = list(schemas(objects))
            report(f"{len(objects)} distinct objects, {schemas.count} validations for Kubernetes {', '.join(VERSIONS)}", found)
            report("commands and names in examples", pages.examples(renderings))
            found = list(outcomes.check(renderings))
            report(f"{outcomes.check.count} outcomes of values", found)
            report("policies", (p for r in renderings for p in policies.check(r, binary, cases.EXTERNAL)))
            found = list(settings(renderings, binary))
            report(f"{settings.count} distinct settings pass config check", found)
            found = list(tools(renderings, binary))
            report(f"{tools.count} tools files pass check", found)
            report("rules, dashboards, queries", watching(renderings))
            found = list(upgrades.check(renderings))
            report(upgrades.check.said, found)
            report("helm package", packaged(renderings))
            report("notes", notes())
    finally:
        # A mistake of ours shows with its trace, and what was started still ends.
        stack.join(300)
        report("; ".join(["live", *stack.done]), stack.problems + (["live: it did not end"] if stack.is_alive() else []))
        shutil.rmtree(rendering.SCRATCH, ignore_errors=True)
        if report.problems:
            sys.exit(1)


if __name__ == "__main__":
    main()
