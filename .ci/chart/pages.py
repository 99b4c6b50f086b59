"""What pages show: commands are those of the built binary, with flags that it has; targets are those of the
Makefile; what Helm is told to install renders, and what kubectl is told of is there. (Links are tidy's.)"""

import json
import re
import shlex

import cases
import rendering
from rendering import CHART, ROOT, SCRATCH, URLS

# `mcp-tasks …` in a line of code or between backticks; not names of other things, not placeholders for commands.
SHOWN = re.compile(r"(?:^|`|\$ |-- |\s)(?:/usr/local/bin/|target/debug/)?mcp-tasks ([a-z][^`\n|#&;]*)")


def check(binary):
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", CHART / "README.md", *sorted((ROOT / "docs").rglob("*.md")),
             CHART / "templates/NOTES.txt"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    count = 0
    for page in pages:
        text = page.read_text()
        for code in pieces(text):
            for target in re.findall(r"(?:^|`)make ([a-z-]+)", code):
                count += 1
                if target not in targets:
                    yield f"{page.relative_to(ROOT)}: there is no make {target}"
            for shown in SHOWN.findall(code):
                count += 1
                for problem in wrong(binary, shown):
                    yield f"{page.relative_to(ROOT)}: mcp-tasks {shown.strip()}: {problem}"
        for line in typed(text):
            for problem in cluster(line):
                count += 1
                if problem:
                    yield f"{page.relative_to(ROOT)}: {line}: {problem}"
    check.count = count


def typed(text):
    """Lines of blocks that are typed, continued ones joined; of NOTES.txt and of comments in examples, too."""
    for line in re.sub(r"\\\n\s*#?\s*", " ", text).splitlines():
        if found := re.match(r"^[#\s]*(?:\$ )?((?:helm|kubectl) .*?)(?:\s&|\s#.*)?$", line):
            yield found[1]


def cluster(line):
    """Problems, or nothing, of each thing that a command for a cluster says."""
    try:
        words = shlex.split(re.sub(r"\{\{.*?\}\}", "mcp-tasks", line))
    except ValueError as error:
        yield str(error)
        return
    if words[0] == "kubectl":
        for word in words:
            if found := re.fullmatch(r"deployment/(\S+)", word):
                yield None if found[1] in shown() else f"there is no Deployment {found[1]}"
        return
    told = rendering.helm(words[1], "--help").stdout
    for flag in (w.split("=")[0] for w in words[2:] if w.startswith("-")):
        yield None if re.search(rf"(?<![\w-]){re.escape(flag)}\b", told) else f"helm {words[1]} has no flag {flag}"
    if words[1] not in ("install", "upgrade") or words[3] != "./helm/mcp-tasks":
        return
    given, files = [], [words[at + 1] for at, word in enumerate(words) if word == "-f"]
    for file in files:
        # Somebody's own values; in an example's comments, the example.
        found = next((p for p in (ROOT / file, CHART / "examples" / file) if p.is_file()), None)
        if found is None and file == "values.yaml":
            found = SCRATCH / "their-values.json"
            found.write_text(json.dumps(URLS))
        if found is None:
            yield f"there is no {file}"
            return
        given += ["-f", found]
    sets = [word for at, word in enumerate(words) if "--set" in (word, words[at - 1])]
    ran = rendering.helm("template", words[2], CHART, *given, *sets)
    yield ran.stderr[-500:] if ran.returncode else None


def shown():
    """Names of Deployments that releases called mcp-tasks have."""
    if not hasattr(shown, "names"):
        shown.names = {o["metadata"]["name"] for o in rendering.render(cases.Case("shown", values=URLS)).of("Deployment")}
    return shown.names


def examples(renderings):
    """Each example says how to make all that it needs and does not bring."""
    by_name = {r.case.name: r for r in renderings}
    for example in cases.EXAMPLES:
        text = example.read_text()
        made = set(re.findall(r"^#.*kubectl create (?:secret generic|configmap) (\S+)", text, re.M))
        for line in typed(text):
            yield from (f"{example.name}: {line}: {p}" for p in cluster(line) if p)
        rendered = by_name[example.stem]
        needed = set(re.findall(r"'(?:secretName|secretKeyRef|configMap)': (?:\{'name': |\{[^}]*'name': )?'([^']+)'", str(rendered.objects)))
        needed -= {o["metadata"]["name"] for o in rendered.objects} | {t["secretName"] for o in rendered.of("Ingress") for t in o["spec"]["tls"]}
        if needed != made:
            yield f"{example.name}: needs {sorted(needed)}, and says how to make {sorted(made)}"


def pieces(text):
    """Code of a page: blocks, then what stands between backticks."""
    blocks = re.findall(r"```(?:sh|console|bash)?\n(.*?)```", text, re.S)
    yield from (line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines())
    rest = re.sub(r"```.*?```", "", text, flags=re.S)
    yield from (f"`{' '.join(code.split())}`" for code in re.findall(r"`([^`]+)`", rest))


def wrong(binary, shown):
    try:
        words = shlex.split(shown)
    except ValueError:
        words = shown.split()
    path, told = [], binary.says("--help")
    for word in words:
        if word.startswith("--"):
            flag = re.sub(r"[^a-z-].*", "", word)
            if not re.search(rf"{re.escape(flag)}(?![a-z-])", told):
                yield f"no flag {flag}"
        elif re.fullmatch(r"[a-z-]+", word) and (commands := set(re.findall(r"^  ([a-z-]+)(?:  |$)", told, re.M))):
            if word not in commands:
                # Of several, as in `gateway|worker|cron`, the first one counts.
                yield f"no command {word}"
                return
            path.append(word)
            told = binary.says(*path, "--help")
