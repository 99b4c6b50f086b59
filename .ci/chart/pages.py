"""What pages show: commands are those of the built binary, with flags that it has; targets are those of the
Makefile. (Links are tidy's.)"""

import re
import shlex

from rendering import CHART, ROOT

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
    check.count = count


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
