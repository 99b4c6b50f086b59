"""The Postgres and the Redis that the chart brings for trials: their commands, arguments, environment and
volumes, run by this machine's programs as the pods' user, in a root of their own that can be written only
where the pods have volumes. What their images' entrypoints do before is played by hand."""

import base64
import json
import os
import pathlib
import shlex
import signal
import subprocess
import time

import cases
import rendering

START_S = 60
# What the image's entrypoint does with an empty folder, and then with its arguments.
POSTGRES = """
set -eu
case ${1:-} in -*) set -- postgres "$@" ;; esac
mkdir -p "$PGDATA"
chmod 700 "$PGDATA"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb --username="$POSTGRES_USER" --pwfile=/tmp/password
    rm /tmp/password
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    pg_ctl -w start -o "-c listen_addresses='' -p $PGPORT"
    psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d postgres -c "CREATE DATABASE $POSTGRES_DB"
    pg_ctl -w -m fast stop
fi
exec "$@"
"""
# A root with the system read-only, and volumes; then the user, without any privilege.
ROOT = """
set -eu
root={root}
mount -t tmpfs -o mode=755 tmpfs "$root"
for path in usr bin sbin lib lib64 etc dev proc; do
    [ -e "/$path" ] || continue
    if [ -L "/$path" ]; then cp -P "/$path" "$root/$path"; continue; fi
    mkdir -p "$root/$path"
    mount --rbind -o ro "/$path" "$root/$path"
done
mkdir -p "$root/run" "$root/var"
{volumes}
printf '%s\\n' 'root:x:0:0::/:/bin/sh' 'app:x:{user}:{group}::/:/bin/sh' > "$root/passwd"
mount --bind -o ro "$root/passwd" "$root/etc/passwd"
mount -o remount,ro "$root"
exec chroot "$root" setpriv --reuid={user} --regid={group} --clear-groups --no-new-privs --bounding-set=-all \\
    --inh-caps=-all env -i {environment} {command}
"""


class Pod:
    """The only container of a workload, as its image would begin it; volumes live on between starts."""

    def __init__(self, stage, rendered, kind, name, entry=None):
        self.stage, self.name, self.entry = stage, name, entry
        self.workload = rendered.by_name[(kind, f"mcp-tasks-{name}")]
        self.spec = self.workload["spec"]["template"]["spec"]
        [self.container] = self.spec["containers"]
        self.rendered, self.process, self.starts = rendered, None, 0
        self.volumes = {v["name"] for v in self.spec["volumes"]} | {
            c["metadata"]["name"] for c in self.workload["spec"].get("volumeClaimTemplates", [])}

    def environment(self):
        for variable in self.container.get("env", []):
            value = variable.get("value")
            if value is None:
                ref = variable["valueFrom"]["secretKeyRef"]
                value = base64.b64decode(self.rendered.by_name[("Secret", ref["name"])]["data"][ref["key"]]).decode()
            yield variable["name"], value

    def start(self, more, arguments=()):
        """`more`: environment of this machine; `arguments`: its ports."""
        self.starts += 1
        security = {**self.spec["securityContext"], **self.container["securityContext"]}
        if not security["readOnlyRootFilesystem"]:
            raise RuntimeError(f"{self.name}: this plays pods whose root cannot be written")
        folder = self.stage.folder / f"trial-{self.name}"
        volumes = []
        for mount in self.container["volumeMounts"]:
            if mount["name"] not in self.volumes:
                raise RuntimeError(f"{self.name}: no volume {mount['name']}")
            # As fsGroup makes them: the group's, and everybody's.
            kept = folder / mount["name"]
            if not kept.exists():
                kept.mkdir(parents=True)
                os.chown(kept, 0, security["fsGroup"])
                os.chmod(kept, 0o2777)
            path = mount["mountPath"]
            volumes.append(f'mkdir -p "$root{path}"; mount --bind {shlex.quote(str(kept))} "$root{path}"')
        root = folder / f"root-{self.starts}"
        root.mkdir()
        command = [*self.container.get("command", []), *self.container["args"], *arguments]
        if self.entry:
            command = ["sh", "-c", self.entry, "entrypoint", *command]
        script = ROOT.format(
            root=shlex.quote(str(root)), volumes="\n".join(volumes), user=security["runAsUser"], group=security["runAsGroup"],
            environment=" ".join(shlex.quote(f"{k}={v}") for k, v in {**dict(self.environment()), **more}.items()),
            command=" ".join(map(shlex.quote, map(str, command))))
        self.process = self.stage.start_process(f"trial-{self.name}-{self.starts}", "unshare", "-m", "--propagation",
                                                "private", "sh", "-c", script)

    def ready(self, more):
        """Asked as its readiness probe asks."""
        deadline = time.monotonic() + START_S
        command = self.container["readinessProbe"]["exec"]["command"]
        log = f"trial-{self.name}-{self.starts}"
        while subprocess.run(command, env=more, capture_output=True, check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} of the trial did not start: {self.stage.tail(log)}")
            time.sleep(0.2)

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(20)


def check(stage):
    """(problems, what was done)."""
    if os.geteuid() != 0:
        return [], "trial pods left out: only root can become their users"
    if subprocess.run(["unshare", "-m", "--propagation", "private", "true"], capture_output=True, check=False).returncode:
        return [], "trial pods left out: no mount namespaces are to be had here"
    trial = dict(cases.FEATURES["trial"])
    rendered = rendering.render(rendering.Case("live trial", values=cases.merged(rendering.URLS, trial)))
    if not rendered.ok:
        return [f"trial: {rendered.text}"], ""
    programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    path = f"{programs}:/usr/bin:/bin"
    postgres, redis = stage.free_port(), stage.free_port()
    here = {"PATH": path, "PGPORT": str(postgres)}
    database = Pod(stage, rendered, "StatefulSet", "postgres", POSTGRES)
    hints = Pod(stage, rendered, "Deployment", "redis")
    problems = []
    database.start(here, ["-c", "listen_addresses=127.0.0.1"])
    hints.start({"PATH": path}, ["--port", str(redis)])
    database.ready(here)
    # The probe of Redis names no port: it is asked at ours by an option of its client.
    hints.container["readinessProbe"]["exec"]["command"][1:1] = ["-p", str(redis)]
    hints.ready(here)
    urls = rendered.by_name[("Secret", "mcp-tasks-urls")]["data"]
    url = {kind: base64.b64decode(urls[kind]).decode() for kind in urls}
    environment = {
        "PATH": path,
        "MCP_TASKS__POSTGRES__URL": url["postgres"].replace("mcp-tasks-postgres:5432", f"127.0.0.1:{postgres}"),
        "MCP_TASKS__REDIS__URL": url["redis"].replace("mcp-tasks-redis:6379", f"127.0.0.1:{redis}"),
    }

    def ours(*arguments):
        return subprocess.run([stage.binary.path, *arguments], env=environment, capture_output=True, text=True, check=False)

    def look(when):
        migrated = ours("migrate")
        if migrated.returncode:
            problems.append(f"trial: migrate {when}: {migrated.stderr[-500:]}")
        found = {c["check"]: c for c in json.loads(ours("doctor", "--output", "json").stdout or "[]")}
        for name in ("postgres", "sessions", "schema", "rights", "redis", "redis eviction", "connections"):
            if found.get(name, {}).get("verdict") != "ok":
                problems.append(f"trial: doctor {when}: {name}: {found.get(name)}")
        return found

    look("at first")
    shown = subprocess.run(["psql", environment["MCP_TASKS__POSTGRES__URL"], "-Atc", "SHOW max_connections"],
                           capture_output=True, text=True, check=False, env=here).stdout.strip()
    wanted = dict(a.split("=") for a in database.container["args"] if "=" in a)["max_connections"]
    if shown != wanted:
        problems.append(f"trial: max_connections is {shown}, not {wanted}")
    # The image stops Postgres by SIGINT, Redis by SIGTERM; then both begin again with what they kept.
    database.end(signal.SIGINT)
    hints.end(signal.SIGTERM)
    database.start(here, ["-c", "listen_addresses=127.0.0.1"])
    hints.start({"PATH": path}, ["--port", str(redis)])
    database.ready(here)
    hints.ready(here)
    kept = subprocess.run(["psql", environment["MCP_TASKS__POSTGRES__URL"], "-Atc", "SELECT count(*) FROM tasks"],
                          capture_output=True, text=True, check=False, env=here)
    if kept.stdout.strip() != "0":
        problems.append(f"trial: the schema is gone: {kept.stderr}")
    look("once more")
    database.end(signal.SIGINT)
    hints.end(signal.SIGTERM)
    return problems, "Postgres and Redis of the trial began twice as their pods would, and migrate and doctor were content"
