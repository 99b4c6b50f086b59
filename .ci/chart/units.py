"""The helpers of the templates, one by one: a chart of nothing but them."""

import json
import shutil

import rendering

DURATIONS = {
    "30s": 30, "5m": 300, "1m 30s": 90, "1m30s": 90, "500ms": 1, "1500ms": 2, "1h": 3600, "7days": 604800,
    "2 hours 5 minutes": 7500, "1day": 86400, "1w": 604800, "0s": 0, "250us": 1,
}
TOML = [
    ("text", '"text"'), ('with "quotes" \\ and\nlines', '"with \\"quotes\\" \\\\ and\\nlines"'),
    ("a <b> & c", '"a \\u003cb\\u003e \\u0026 c"'), (16777216, "16777216"), (0.25, "0.25"), (1.0, "1"), (True, "true"),
    (["a", 1], '["a", 1]'), ({"k": "v", "n": None}, '{ "k" = "v" }'), ([], "[]"),
]
ADDRESSES = [("0.0.0.0", 3000, "0.0.0.0:3000"), ("::", 9100, "[::]:9100"), ("127.0.0.1", 1, "127.0.0.1:1")]
PODS = [  # replicas, strategy, autoscaling: what there may be at most
    (2, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}, None, (2, 1)),
    (5, {"rollingUpdate": {"maxSurge": "25%"}}, None, (5, 2)),
    (4, {"rollingUpdate": {"maxSurge": "100%"}}, None, (4, 4)),
    (3, {}, None, (3, 1)),
    (3, {"type": "Recreate"}, None, (3, 0)),
    (2, {"rollingUpdate": {"maxSurge": "10%"}}, {"enabled": True, "maxReplicas": 20}, (20, 2)),
    (2, {"rollingUpdate": {"maxSurge": 3}}, {"enabled": False, "maxReplicas": 20}, (2, 3)),
]
LAYERS = [
    ([{"a": {"x": 1, "y": 1}}, {"a": {"y": 2}}], {"a": {"x": 1, "y": 2}}),
    ([{"l": [1]}, {"l": [2]}, {}], {"l": [1, 2]}),
    ([{"e": [{"name": "A", "value": "1"}, {"name": "B"}]}, {"e": [{"name": "A", "value": "2"}]}], {"e": [{"name": "B"}, {"name": "A", "value": "2"}]}),
    ([{"t": [{"key": "a"}]}, {"t": [{"key": "a"}]}], {"t": [{"key": "a"}, {"key": "a"}]}),
    ([{"extraVolumeMounts": [{"name": "a", "mountPath": "/1"}]}, {"extraVolumeMounts": [{"name": "a", "mountPath": "/2"}]}],
     {"extraVolumeMounts": [{"name": "a", "mountPath": "/1"}, {"name": "a", "mountPath": "/2"}]}),
    ([{"args": ["a"]}, {"args": ["b"]}], {"args": ["b"]}),
    ([{"args": ["a"]}, {"args": []}], {"args": ["a"]}),
    ([{"s": "a"}, {"s": ""}], {"s": "a"}),
    ([{"s": "a"}, {"s": None}], {"s": "a"}),
    ([{"n": 2}, {"n": 0}], {"n": 0}),
    ([{"b": True}, {"b": False}], {"b": False}),
    ([{"lagSecondsPerReplica": 30}, {"lagSecondsPerReplica": None}, {}], {"lagSecondsPerReplica": None}),
    ([{"l": {"preStop": {"sleep": {"seconds": 1}}}}, {"l": {"preStop": {"exec": {}}}}, {"l": {"preStop": {}}}], {"l": {"preStop": {"exec": {}}}}),
    ([{"postgres": {"url": "a", "passwordFile": {"path": "p", "key": "k"}}}, {"postgres": {"existingSecret": "b"}}], {
        "postgres": {"existingSecret": "b", "passwordFile": {"key": "k"}}}),
    ([{"image": {"repository": "a", "tag": "1", "digest": "d"}}, {"image": {"repository": "a"}}], {"image": {"repository": "a", "tag": "1", "digest": "d"}}),
    ([{"image": {"repository": "a", "tag": "1", "digest": "d"}}, {"image": {"repository": "b"}}], {"image": {"repository": "b", "tag": "1"}}),
    ([{"tools": {"demo": True}}, {"tools": {"file": "f"}}], {"tools": {"demo": True, "file": "f"}}),
]
TABLES = [
    ({"a": {"b": 1, "c": {"tasks:admin": ["x"], "d e": {"f": True}}}}, '[a]\nb = 1\n\n[a.c]\n"tasks:admin" = ["x"]\n\n[a.c."d e"]\nf = true'),
    ({"a": {"b": None, "c": {}}}, "[a]"),
]
TEMPLATE = """
{{- $out := dict }}
{{- $list := list }}{{ range .Values.durations }}{{ $list = append $list (include "mcp-tasks.seconds" (list "x" .)) }}{{ end }}
{{- $_ := set $out "durations" $list }}
{{- $list = list }}{{ range .Values.toml }}{{ $list = append $list (include "mcp-tasks.toml.value" .) }}{{ end }}
{{- $_ := set $out "toml" $list }}
{{- $list = list }}{{ range .Values.addresses }}{{ $list = append $list (include "mcp-tasks.address" .) }}{{ end }}
{{- $_ := set $out "addresses" $list }}
{{- $list = list }}{{ range .Values.tables }}{{ $list = append $list (include "mcp-tasks.toml.table" (list "" .) | trim) }}{{ end }}
{{- $_ := set $out "tables" $list }}
{{- $list = list }}{{ range .Values.pods }}{{ $list = append $list (include "mcp-tasks.pods" (list $ (dict "values" .)) | fromJson) }}{{ end }}
{{- $_ := set $out "pods" $list }}
{{- $list = list }}{{ range .Values.layers }}{{ $list = append $list (include "mcp-tasks.layers" . | fromJson) }}{{ end }}
{{- $_ := set $out "layers" $list }}
kind: Units
out: {{ toJson $out | quote }}
"""


def check():
    chart = rendering.SCRATCH / "units"
    (chart / "templates").mkdir(parents=True)
    for helpers in (rendering.CHART / "templates").glob("_*.tpl"):
        shutil.copy(helpers, chart / "templates")
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: units\nversion: 0.0.0\n")
    (chart / "templates/units.yaml").write_text(TEMPLATE)
    values = {
        "durations": list(DURATIONS), "toml": [given for given, _ in TOML], "addresses": [a[:2] for a in ADDRESSES],
        "pods": [{"replicas": r, "strategy": s, **({"autoscaling": a} if a else {})} for r, s, a, _ in PODS],
        "tables": [given for given, _ in TABLES], "layers": [given for given, _ in LAYERS],
    }
    rendered = rendering.render(rendering.Case("units", values=values), chart)
    if not rendered.ok:
        return [f"units: {rendered.text}"], 0
    got = json.loads(rendered.objects[0]["out"])
    wanted = {
        "durations": [str(seconds) for seconds in DURATIONS.values()], "toml": [toml for _, toml in TOML],
        "addresses": [a[2] for a in ADDRESSES], "tables": [toml for _, toml in TABLES],
        "pods": [{"replicas": most, "surge": surge} for *_, (most, surge) in PODS], "layers": [out for _, out in LAYERS],
    }
    problems, count = [], 0
    for name, values in wanted.items():
        for given, here, there in zip(list(DURATIONS) if name == "durations" else range(len(values)), got[name], values, strict=True):
            count += 1
            if here != there:
                problems.append(f"units: {name} {given}: {here!r}, not {there!r}")
    return problems, count
