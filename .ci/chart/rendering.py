"""Helm, and what it makes of a set of values."""

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/mcp-tasks"
HELM = pathlib.Path(sys.executable).parent / "helm"
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="mcp-tasks-chart-"))
# Nothing of the machine's own Helm or cluster.
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": str(SCRATCH), "KUBECONFIG": "/nonexistent"}
PASSWORD = "s3cr3t-of-the-url"
URLS = {
    "postgres": {"url": f"postgres://mcp_tasks:{PASSWORD}@postgres.test:5433/mcp_tasks"},
    "redis": {"url": f"redis://:{PASSWORD}@redis.test:6380"},
}


class Loader(yaml.CSafeLoader):
    """Refuses a key that is there twice; Kubernetes would take the last one without a word."""


def mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise yaml.constructor.ConstructorError(None, None, f"twice: {sorted(twice)}", node.start_mark)
    return yaml.CSafeLoader.construct_mapping(loader, node, deep=True)


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


@dataclasses.dataclass
class Case:
    """Values to render: files of the project, then `values` over them."""

    name: str
    files: tuple = ()
    values: dict = dataclasses.field(default_factory=dict)
    arguments: tuple = ()


@dataclasses.dataclass
class Rendered:
    case: Case
    ok: bool
    text: str
    objects: list

    def of(self, kind):
        return [o for o in self.objects if o["kind"] == kind]

    @functools.cached_property
    def by_name(self):
        return {(o["kind"], o["metadata"]["name"]): o for o in self.objects}


def helm(*arguments):
    return subprocess.run([HELM, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True, check=False)


def render(case, chart=CHART):
    arguments = ["template", "mcp-tasks", chart, "--namespace", "tasks"]
    for file in case.files:
        arguments += ["-f", file]
    if case.values:
        path = SCRATCH / f"{abs(hash(case.name))}.json"
        path.write_text(json.dumps(case.values))
        arguments += ["-f", path]
    ran = helm(*arguments, *case.arguments)
    if ran.returncode:
        return Rendered(case, False, ran.stderr, [])
    objects = [o for o in yaml.load_all(ran.stdout, Loader) if o]
    return Rendered(case, True, ran.stdout, objects)


def pod_spec(o):
    """The pod that an object makes: (labels, spec); None for others."""
    if o["kind"] == "Pod":
        return o["metadata"]["labels"], o["spec"]
    template = o.get("spec", {}).get("template") if isinstance(o.get("spec"), dict) else None
    if not template or o["kind"] not in ("Deployment", "StatefulSet", "Job"):
        return None
    return template["metadata"]["labels"], template["spec"]


def carried(rendered, o, volume):
    """Files that the pods of an object mount from a ConfigMap of the chart, by name; nothing if the volume is another."""
    pod = o if o["kind"] == "Pod" else o["spec"]["template"]
    [found] = [v for v in pod["spec"].get("volumes", []) if v["name"] == volume] or [{}]
    return rendered.by_name.get(("ConfigMap", found.get("configMap", {}).get("name")), {}).get("data", {})
