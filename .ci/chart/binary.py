"""What the built binary says about itself: commands, flags, settings; and what it says of settings."""

import base64
import functools
import pathlib
import re
import subprocess

import rendering

SETTING = re.compile(r"^MCP_TASKS__[A-Z_]+$")


class Binary:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.commands = set(re.findall(r"^  ([a-z-]+) ", self.says("--help"), re.M))
        self.settings = set()
        section = ""
        for line in self.says("config", "reference").splitlines():
            if head := re.match(r"## `\[([a-z_.]+)\]`", line):
                section = head[1]
            elif setting := re.match(r"\| `([a-z_]+)` \| ", line):
                self.settings.add(f"{section}.{setting[1]}")
        if not self.commands or not self.settings:
            raise SystemExit(f"{path}: no commands or settings in its help")

    @functools.lru_cache(maxsize=None)
    def says(self, *arguments):
        return subprocess.run([self.path, *arguments], capture_output=True, text=True, check=True, env={}).stdout

    def misunderstands(self, arguments, names):
        """Arguments and environment variables that it does not know."""
        words = [a for a in arguments if not a.startswith("-")]
        if not words or words[0] not in self.commands:
            yield f"there is no command {arguments}"
            return
        told = self.says(words[0], "--help")
        for flag in arguments:
            if flag.startswith("-") and not re.search(rf"{re.escape(flag.split('=')[0])}\b", told):
                yield f"{words[0]} has no flag {flag}"
        for name in names:
            if SETTING.match(name):
                setting = name.removeprefix("MCP_TASKS__").lower().replace("__", ".")
                if setting not in self.settings:
                    yield f"there is no setting {setting} ({name})"
            elif name.startswith("MCP_TASKS") and f"[env: {name}=" not in told:
                yield f"{words[0]} reads no {name}"

    def refuses_tools(self, file):
        """What `check` has against a tools file."""
        ran = subprocess.run([self.path, "check", file], capture_output=True, text=True, check=False,
                             env={"PATH": "/usr/bin:/bin"})
        return (ran.stdout + ran.stderr).strip() if ran.returncode else ""

    def refuses(self, file, environment):
        """What `config check` has against them; nothing if they can be used."""
        arguments = [self.path, "config", "check"]
        if file:
            arguments += ["--config", file]
        ran = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)
        return (ran.stdout + ran.stderr).strip() if ran.returncode else ""


def mounted():
    """A folder with what Secrets of the user would bring, in place of `/etc/mcp-tasks` and `/mnt`."""
    folder = rendering.SCRATCH / "mounted"
    certificate = folder / "ca.crt"
    folder.mkdir(exist_ok=True)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ca.test",
                    "-keyout", folder / "ca.key", "-out", certificate], capture_output=True, check=True)
    (folder / "tls").mkdir(exist_ok=True)
    (folder / "tls/tls.crt").write_text(certificate.read_text())
    (folder / "tls/tls.key").write_text((folder / "ca.key").read_text())
    for kind in ("postgres", "redis"):
        for what, name in (("password", "password"), ("ca", "ca.crt")):
            path = folder / kind / what
            path.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(certificate.read_text() if what == "ca" else "word\n")
    (folder / "postgres/password/word").write_text("word\n")
    for place, name in (("encryption", "november"), ("encryption", "2026-05"), ("encryption", "2026-11"), ("csi", "november")):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / name).write_text(f"{len(place + name):064x}\n")
    (folder / "csi").mkdir(exist_ok=True)
    (folder / "csi/password").write_text("word\n")
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config/mcp-tasks.toml").write_text('''[auth]
resource = "https://mcp.test/mcp"
issuers = [{issuer = "https://issuer.test/"}]
[encryption]
keys = [{id = "a", key_file = "/etc/mcp-tasks/encryption/november"}]
[gateway]
drain_deadline = "1h"
'''.replace("/etc/mcp-tasks", str(folder)))
    (folder / "files").mkdir(exist_ok=True)
    (folder / "files/tools.toml").write_text("")
    (folder / "alerts").mkdir(exist_ok=True)
    (folder / "alerts/url").write_text("https://hooks.test/a\n")
    (folder / "alerts/secret").write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
    (folder / "tools").mkdir(exist_ok=True)
    for name in ("tools.toml", "mine.toml"):
        (folder / "tools" / name).write_text("")
    return folder


def settings_of(rendered, folder):
    """(who, file, environment) for each container of ours."""
    for o in rendered.objects:
        found = rendering.pod_spec(o)
        for container in [*found[1].get("initContainers", []), *found[1]["containers"]] if found else []:
            if container["name"] not in ("gateway", "worker", "cron", "migrate") or container.get("command"):
                continue
            environment, file = {}, None
            for variable in container["env"]:
                name, value = variable["name"], variable.get("value")
                if value is None:
                    value = secret(rendered, variable["valueFrom"]["secretKeyRef"], name)
                if name == "MCP_TASKS_CONFIG":
                    file = value
                elif name.startswith("MCP_TASKS__"):
                    environment[name] = value.replace("/etc/mcp-tasks", str(folder)).replace("/mnt", str(folder))
            if file:
                text = rendering.carried(rendered, o, "config").get("mcp-tasks.toml") or (folder / "config/mcp-tasks.toml").read_text()
                file = text.replace("/etc/mcp-tasks", str(folder)).replace("/mnt", str(folder))
            yield f"{rendered.case.name}: {o['kind']}/{o['metadata']['name']}: {container['name']}", file, environment


def secret(rendered, ref, name):
    found = rendered.by_name.get(("Secret", ref["name"]))
    if found:
        return base64.b64decode(found["data"][ref["key"]]).decode()
    if name.endswith("_KEYS"):
        return ",".join(base64.b64encode(bytes([n] * 32)).decode() for n in (1, 2))
    if ref["name"] == "ext-cron":
        # Who names an authority, and has the URL in a Secret, says so there.
        return f"{rendering.URLS['postgres']['url']}?sslmode=verify-full"
    return rendering.URLS["redis" if "REDIS" in name else "postgres"]["url"]
