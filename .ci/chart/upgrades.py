"""From the chart before to this one: values of then render, and nothing changes that Kubernetes never lets
change. What the chart before was is kept in previous/ (written anew with every release of the chart:
`.ci/helm remember`)."""

import json
import pathlib
import re
import shutil
import sys

import yaml

import cases
import rendering
from rendering import CHART, Case

BEFORE = pathlib.Path(__file__).parent / "previous"
# Fields that no update can change, by kind.
FIXED = {
    "Deployment": ["selector"],
    "StatefulSet": ["selector", "serviceName", "volumeClaimTemplates", "podManagementPolicy"],
    "Service": ["clusterIP"],
    "PersistentVolumeClaim": ["accessModes", "storageClassName"],
    "Secret": ["type", "immutable"],
    "ConfigMap": ["immutable"],
}
# What must not vanish: somebody's data, or somebody's way in.
LASTING = {"Deployment", "StatefulSet", "Service", "Secret", "PersistentVolumeClaim"}


def situations(examples):
    """Sets of values that releases of then had."""
    yield Case("default", values=rendering.URLS)
    for example in sorted(examples.glob("*.yaml")):
        yield Case(example.stem, files=(example,))
    for name in ("trial", "groups", "names", "service-monitor", "jwt", "tools"):
        yield Case(f"values of {name}", values=cases.merged(rendering.URLS, cases.FEATURES[name]))


def fixed(rendered):
    out = {}
    for o in rendered.objects:
        hook = "helm.sh/hook" in o["metadata"].get("annotations", {})
        if o["kind"] not in FIXED or hook or "-dashboard-" in o["metadata"]["name"]:
            continue
        where = o if o["kind"] in ("Secret", "ConfigMap") else o["spec"]
        out[f"{o['kind']}/{o['metadata']['name']}"] = {f: where[f] for f in FIXED[o["kind"]] if f in where}
    return out


def remember(chart):
    """Keeps what the chart is now as what it was before."""
    shutil.rmtree(BEFORE, ignore_errors=True)
    shutil.copytree(chart / "examples", BEFORE / "examples")
    shutil.copy(chart / "values.yaml", BEFORE)
    shutil.copy(chart / "Chart.yaml", BEFORE)
    told = {}
    for case in situations(BEFORE / "examples"):
        rendered = rendering.render(case, chart)
        if not rendered.ok:
            raise SystemExit(rendered.text)
        told[case.name] = fixed(rendered)
    (BEFORE / "fixed.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


def check(renderings):
    before = yaml.safe_load((BEFORE / "Chart.yaml").read_text())["version"]
    now = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    if before == now:
        yield f"Chart.yaml: {now} is the version of the chart before, too"
    known = json.loads((BEFORE / "fixed.json").read_text())
    count = 0
    for case in situations(BEFORE / "examples"):
        upgrade = Case(case.name, case.files, case.values, ("--is-upgrade",))
        rendered = rendering.render(upgrade)
        if not rendered.ok:
            yield f"values of {before}, {case.name}: {rendered.text[-600:]}"
            continue
        found = fixed(rendered)
        for name, fields in known[case.name].items():
            count += 1
            if name not in found:
                if name.split("/")[0] in LASTING:
                    yield f"{case.name}: {name} of {before} is gone"
            elif found[name] != fields:
                yield f"{case.name}: {name}: {found[name]}, and was {fields}: Kubernetes refuses that"
    # `helm upgrade --reuse-values`: the defaults of then, and none of now.
    chart = rendering.SCRATCH / "reused"
    shutil.copytree(CHART, chart)
    shutil.copy(BEFORE / "values.yaml", chart)
    for case in situations(BEFORE / "examples"):
        reused = rendering.render(Case(f"reused {case.name}", case.files, case.values, ("--is-upgrade",)), chart)
        if not reused.ok:
            yield f"--reuse-values from {before}, {case.name}: {reused.text[-600:]}"
    yield from repeatable(renderings)
    check.said = f"{len(known)} sets of values of chart {before} render with {now}, {count} objects keep what is fixed"


def repeatable(renderings):
    by_name = {r.case.name: r for r in renderings}
    # The keys that seal requestState are random where no cluster can be asked; nothing else may be.
    again = rendering.render(by_name["default"].case)

    def plain(text):
        return re.sub(r'  keys: "[A-Za-z0-9+/=]+"', "", text)
    if plain(again.text) != plain(by_name["default"].text):
        yield "the same values render differently"
    hooks = [o for o in by_name["upgrade"].of("Job") if "pre-upgrade" in o["metadata"]["annotations"]["helm.sh/hook"]]
    if not hooks:
        yield "no migration before an upgrade"


if __name__ == "__main__":
    remember(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else CHART)
