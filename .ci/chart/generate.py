"""Writes the chart's values.schema.json and README.md from values.yaml, schema.py and docs/configuration.md."""

import json
import pathlib
import re

import yaml

import schema as chart_schema

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/mcp-tasks"


def rows(text):
    """(path, comment, section) of every documented key of values.yaml, in order. A comment is what stands
    right above its key and begins with `# --`."""
    stack, comment, section = [], [], ""
    for line in text.splitlines():
        bare = line.strip()
        if heading := re.match(r"^# --- (.*?) -*$", line):
            section, comment = heading[1], []
        elif bare.startswith("# --"):
            comment = [bare[4:].strip()]
        elif bare.startswith("#"):
            if comment:
                comment.append(bare[1:].strip())
        elif key := re.match(r"^( *)([A-Za-z_]+):(.*)$", line):
            depth = len(key[1]) // 2
            stack[depth:] = [key[2]]
            yield ".".join(stack), " ".join(comment), section, key[3].strip()
            comment = []
        else:
            comment = []


def lookup(values, path):
    for name in path.split("."):
        values = values[name]
    return values


def short(value):
    text = json.dumps(value)
    return f"`{text}`" if len(text) <= 60 else "see values.yaml"


def table(text):
    values = yaml.safe_load(text)
    known, section = set(), None
    listed = list(rows(text))
    for path, comment, title, rest in listed:
        if rest.startswith("*"):
            # Everything below has been said where the anchor is.
            origin = next(p for p, _, _, r in listed if f"&{rest[1:]}" in r.split())
            comment = f"As `{origin}`."
        if not comment:
            continue
        if title != section:
            section = title
            yield f"\n### {title}\n\n| value | default | |\n|---|---|---|"
        known.add(path)
        default = lookup(values, path)
        told = "" if rest.startswith("*") else short(default)
        yield f"| `{path}` | {told} | {comment.replace('|', chr(92) + '|')} |"


def readme():
    text = (CHART / "values.yaml").read_text()
    head = (ROOT / ".ci/chart/README.head").read_text()
    return head.rstrip() + "\n\n## Values\n" + "\n".join(table(text)) + "\n"


def values_schema():
    reference = (ROOT / "docs/configuration.md").read_text()
    return json.dumps(chart_schema.schema(reference), indent=1, ensure_ascii=False) + "\n"


def undocumented():
    """Keys of values.yaml that nothing is said about, and names that the schema has and it has not."""
    text = (CHART / "values.yaml").read_text()
    listed = list(rows(text))
    values = yaml.safe_load(text)
    said = {path for path, comment, _, rest in listed if comment or rest.startswith("*")}
    problems = []

    def walk(value, path):
        if path in said:
            return
        if isinstance(value, dict) and value and any(p.startswith(f"{path}.") for p in said):
            for name, below in value.items():
                walk(below, f"{path}.{name}")
        else:
            problems.append(f"values.yaml says nothing about {path}")

    for name, value in values.items():
        walk(value, name)

    definitions = chart_schema.schema("")["$defs"]

    def compare(schema, value, path):
        schema = definitions[schema["$ref"].split("/")[-1]] if "$ref" in schema else schema
        if path.split(".")[-1] in ("config", "image", "resources", "behavior", "strategy", "lifecycle") or "properties" not in schema:
            return
        optional = set(chart_schema.POD) if path else set()
        if path.endswith("Probe"):
            return
        for name in schema["properties"].keys() - value.keys() - optional - {"global"}:
            problems.append(f"values.yaml does not name {path}.{name}, which its schema knows")
        for name in value.keys() & schema["properties"].keys():
            if isinstance(value[name], dict):
                compare(schema["properties"][name], value[name], f"{path}.{name}".lstrip("."))

    compare(chart_schema.schema(""), values, "")
    return problems


def written():
    return {CHART / "values.schema.json": values_schema(), CHART / "README.md": readme()}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text)
