"""What single values do, each looked up where it has to show."""

import base64
import re

import policies
import rendering


def pods(rendered):
    """Pods' specs by name of their object."""
    return {o["metadata"]["name"].removeprefix("mcp-tasks-"): rendering.pod_spec(o)[1] for o in rendered.objects if rendering.pod_spec(o)}


def urls(rendered):
    """Where each container of ours gets its URL of Postgres from: (Secret, key)."""
    for name, spec in pods(rendered).items():
        for container in policies.containers(spec):
            for variable in container.get("env", []):
                if variable["name"] == "MCP_TASKS__POSTGRES__URL":
                    ref = variable["valueFrom"]["secretKeyRef"]
                    yield f"{name}/{container['name']}", (ref["name"], ref["key"])


def settings(rendered, name):
    """The settings file of a Deployment's pods."""
    return rendering.carried(rendered, rendered.by_name[("Deployment", name)], "config").get("mcp-tasks.toml", "")


def passwords(rendered):
    """The file that each settings file names for the password of Postgres."""
    for o in rendered.of("Deployment"):
        for line in settings(rendered, o["metadata"]["name"]).partition("[postgres]")[2].partition("\n[")[0].splitlines():
            if line.startswith("password_file"):
                yield o["metadata"]["name"].removeprefix("mcp-tasks-"), line.split('"')[1]


def ports(rendered, name):
    rules = rendered.by_name[("NetworkPolicy", f"mcp-tasks-{name}")]["spec"]["egress"]
    return {p["port"] for rule in rules for p in rule["ports"]}


def roles(r):
    yield "URLs", dict(urls(r)), {
        "gateway/gateway": ("ext-gateway", "dsn"), "test/gateway": ("ext-gateway", "dsn"), "cron/cron": ("mcp-tasks-urls", "postgres-cron"),
        "worker-default/worker": ("mcp-tasks-urls", "postgres-worker-default"), "migrate/migrate": ("ext-owner", "url")}
    yield "password files", dict(passwords(r)), {"worker-default": "/etc/mcp-tasks/postgres/password/word"}
    data = r.by_name[("Secret", "mcp-tasks-urls")]["data"]
    yield "URLs of the chart's Secret", {k: base64.b64decode(v).decode().partition("@")[0] for k, v in data.items() if k != "redis"}, {
        "postgres-cron": f"postgres://cron:{rendering.PASSWORD}", "postgres-worker-default": "postgres://worker"}
    yield "the migration's arguments", pods(r)["migrate"]["containers"][0]["args"], ["migrate", "--roles"]
    yield "the worker's port", {6543, 5433} & ports(r, "worker-default"), {6543}
    yield "cron's port", {6543, 5433} & ports(r, "cron"), {5433}
    # No process may see what another one, or the owner, logs in with.
    for name, spec in pods(r).items():
        mine = {"gateway": "ext-gateway", "test": "ext-gateway", "cron": "", "worker-default": "ext-worker", "migrate": "ext-owner"}[name]
        yield f"{name} sees of users of Postgres", {s for s in ("ext-gateway", "ext-worker", "ext-owner") if s in str(spec)} - {mine}, set()


def roles_passwords(r):
    yield "password files", dict(passwords(r)), {
        "gateway": "/mnt/csi/password", "worker-default": "/etc/mcp-tasks/postgres/password/password"}
    yield "cron's URL", dict(urls(r))["cron/cron"], ("ext-cron", "url")
    yield "the owner's URL", dict(urls(r))["migrate/migrate"], ("mcp-tasks-migrate", "postgres")
    told = base64.b64decode(r.by_name[("Secret", "mcp-tasks-migrate")]["data"]["postgres"]).decode()
    yield "the owner's authority", told.rpartition("?")[2], "sslmode=verify-full"
    yield "the owner's password", "ext-postgres" in str(pods(r)["migrate"]), False


def mirror(r):
    images = {c["image"] for spec in pods(r).values() for c in policies.containers(spec)}
    yield "images", {i for i in images if not i.startswith("mirror.test:5000/")}, set()
    yield "ours", "mirror.test:5000/mcp-tasks/mcp-tasks:0.2.0" in images, True
    yield "Python's", any(i.startswith("mirror.test:5000/library/python:") for i in images), True
    yield "pull secrets", {str(spec.get("imagePullSecrets")) for spec in pods(r).values()}, {"[{'name': 'pull'}]"}


def pulled(r):
    yield "pull secrets", {name: spec.get("imagePullSecrets") for name, spec in pods(r).items()}, dict.fromkeys(pods(r), [{"name": "pull"}])


def migration(r):
    job = r.by_name[("Job", "mcp-tasks-migrate")]["spec"]
    spec = job["template"]["spec"]
    yield "the Job", (job["ttlSecondsAfterFinished"], job["backoffLimit"], spec["nodeSelector"], spec["tolerations"], spec["serviceAccountName"]), (
        600, 0, {"pool": "jobs"}, [{"key": "jobs"}], "ext-migrate")
    yield "its pods' annotations", job["template"]["metadata"]["annotations"], {"sidecar.istio.io/inject": "false"}
    account = r.by_name[("ServiceAccount", "ext-migrate")]["metadata"]["annotations"]
    yield "its account", (account["eks.amazonaws.com/role-arn"], account["helm.sh/hook-weight"]), ("arn", "-5")
    yield "the gateways", pods(r)["gateway"].get("nodeSelector"), None


def operators(r):
    gateway, cron = (r.by_name[("Deployment", f"mcp-tasks-{name}")] for name in ("gateway", "cron"))
    yield "seconds", [(d["spec"]["minReadySeconds"], d["spec"]["progressDeadlineSeconds"]) for d in (gateway, cron)], [(20, 900), (10, 900)]
    yield "annotations", gateway["metadata"]["annotations"]["reloader.stakater.com/auto"], "true"
    spec = gateway["spec"]["template"]["spec"]
    yield "the pod", (spec["dnsPolicy"], spec["schedulerName"]), ("Default", "bin-packing")
    hooks = [d["spec"]["template"]["spec"]["containers"][0]["lifecycle"] for d in (gateway, cron)]
    yield "hooks", [(sorted(h), h["preStop"]) for h in hooks], [
        (["postStart", "preStop"], {"sleep": {"seconds": 5}}), (["postStart", "preStop"], {"sleep": {"seconds": 1}})]
    budgets = [r.by_name[("PodDisruptionBudget", f"mcp-tasks-{n}")]["spec"]["unhealthyPodEvictionPolicy"] for n in ("gateway", "cron")]
    yield "budgets", budgets, ["IfHealthyBudget", "AlwaysAllow"]
    service = r.by_name[("Service", "mcp-tasks-gateway")]
    yield "the Service", (service["metadata"]["labels"]["tier"], service["spec"]["internalTrafficPolicy"], service["spec"]["ipFamilies"]), (
        "edge", "Local", ["IPv4"])
    rules = r.by_name[("NetworkPolicy", "mcp-tasks-worker-default")]["spec"]
    yield "where spans go", [rule["to"] for rule in rules["egress"] if {"port": 4318, "protocol": "TCP"} in rule["ports"]], [
        [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observability"}}}]]
    yield "who is asked for names", ("openshift-dns" in str(rules["egress"][0]), rules["egress"][0]["ports"]), (
        True, [{"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}])
    yield "who may come besides", "10.0.0.0/8" in str(rules["ingress"]), True


def tls(r):
    spec = pods(r)["gateway"]
    yield "probes", {spec["containers"][0][p]["httpGet"]["port"] for p in ("startupProbe", "livenessProbe", "readinessProbe")}, {"admin"}
    yield "their scheme", {spec["containers"][0][p]["httpGet"].get("scheme") for p in ("startupProbe", "livenessProbe", "readinessProbe")}, {None}
    yield "the Service", r.by_name[("Service", "mcp-tasks-gateway")]["spec"]["ports"][0]["appProtocol"], "https"
    # A volume with a `subPath` would never see a new certificate.
    yield "the mount", [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "tls"], [
        {"name": "tls", "mountPath": "/etc/mcp-tasks/tls", "readOnly": True}]
    yield "the file mode", [v["secret"] for v in spec["volumes"] if v["name"] == "tls"], [{"secretName": "ext-tls", "defaultMode": 0o440}]


def tls_ingress(r):
    yield from tls(r)
    annotations = r.by_name[("Ingress", "mcp-tasks-gateway")]["metadata"]["annotations"]
    yield "the Ingress", annotations["nginx.ingress.kubernetes.io/backend-protocol"], "HTTPS"


def tls_route(r):
    yield from tls(r)
    policy = r.by_name[("BackendTLSPolicy", "mcp-tasks-gateway")]["spec"]
    yield "the policy", (policy["targetRefs"][0]["name"], policy["validation"]), ("mcp-tasks-gateway", {
        "hostname": "gateway.mcp.test", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ext-ca"}]})


def default(r):
    for name in ("gateway", "worker-default", "cron"):
        spec = r.by_name[("Deployment", f"mcp-tasks-{name}")]["spec"]
        yield f"{name}'s strategy", spec["strategy"], {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        yield f"{name}'s history", (spec["replicas"], spec["revisionHistoryLimit"], spec.get("minReadySeconds")), (2, 5, None)
        probes = spec["template"]["spec"]["containers"][0]
        yield f"{name}'s probes", [probes[p]["httpGet"]["path"] for p in ("startupProbe", "livenessProbe", "readinessProbe")], [
            "/startupz", "/livez", "/readyz"]
    # preStop and what the gateway takes by its own settings, and 5 s.
    yield "time to end", {n: pods(r)[n]["terminationGracePeriodSeconds"] for n in ("gateway", "worker-default", "cron")}, {
        "gateway": 5 + 5 + 30 + 5, "worker-default": 10 + 5 + 5, "cron": 5 + 5}
    hook = r.by_name[("Job", "mcp-tasks-migrate")]["metadata"]["annotations"]
    yield "the migration", (hook["helm.sh/hook"], hook["helm.sh/hook-delete-policy"]), (
        "pre-install,pre-upgrade", "before-hook-creation,hook-succeeded")
    rules = {o["metadata"]["name"]: o["metadata"].get("annotations", {}).get("helm.sh/hook-weight") for o in r.of("NetworkPolicy")}
    yield "policies before the migration", {n: w for n, w in rules.items() if w}, {"mcp-tasks-migrate": "-6"}
    yield "kept", r.by_name[("Secret", "mcp-tasks-request-state")]["metadata"]["annotations"], {"helm.sh/resource-policy": "keep"}


def ingress(**wanted):
    def look(r):
        annotations = r.by_name[("Ingress", "mcp-tasks-gateway")]["metadata"]["annotations"]
        yield "annotations", {name: annotations.get(name) for name in wanted}, wanted
    return look


def route_retry(r):
    polls, rest = r.by_name[("HTTPRoute", "mcp-tasks-gateway")]["spec"]["rules"]
    yield "what is repeated", (polls["matches"][0]["headers"], polls["retry"]), (
        [{"type": "Exact", "name": "Mcp-Method", "value": "tasks/get"}], {"attempts": 3, "backoff": "100ms", "codes": [502, 503]})
    # Longer than Postgres is waited for; streams for ever.
    yield "time of a poll", polls["timeouts"], {"request": "30s"}
    yield "all else", (rest["timeouts"], "retry" in rest), ({"request": "0s", "backendRequest": "0s"}, False)


def route(r):
    yield "retries", ["retry" in rule for rule in r.by_name[("HTTPRoute", "mcp-tasks-gateway")]["spec"]["rules"]], [False]


def hpa(r):
    spec = r.by_name[("HorizontalPodAutoscaler", "mcp-tasks-gateway")]["spec"]
    found = [m.get("resource", m.get("pods"))["target"] for m in spec["metrics"]]
    yield "targets", found, [{"type": "Utilization", "averageUtilization": 70}, {"type": "AverageValue", "averageValue": "100"}]
    yield "pods", (spec["minReplicas"], spec["maxReplicas"], spec["behavior"]["scaleDown"]), (2, 3, {"stabilizationWindowSeconds": 300})


def external(r):
    spec = r.by_name[("HorizontalPodAutoscaler", "mcp-tasks-worker-default")]["spec"]
    found = [(m["external"]["metric"]["name"], m["external"]["target"]["averageValue"]) for m in spec["metrics"]]
    yield "targets", found, [("mcp_tasks_tasks_live", "80"), ("mcp_tasks_tasks_due_oldest_age_seconds", "30")]
    told = [e for e in spec["metrics"][0]["external"]["metric"]["selector"]["matchExpressions"] if e["key"] == "phase"]
    yield "phases", told[0]["values"], ["queued", "running", "undoing"]


def groups(r):
    found = {n: pods(r)[n] for n in pods(r) if n.startswith("worker")}
    yield "groups", sorted(found), ["worker-fast", "worker-slow"]
    yield "memory", {n: s["containers"][0]["resources"]["limits"]["memory"] for n, s in found.items()}, {"worker-fast": "2Gi", "worker-slow": "1Gi"}
    yield "images", found["worker-slow"]["containers"][0]["image"], "registry.test/slow@sha256:" + "0" * 64
    yield "tolerations", [s.get("tolerations") for _, s in sorted(found.items())], [[{"key": "a"}], None]
    told = {n: settings(r, f"mcp-tasks-{n}") for n in found}
    yield "settings", ["slots = 10" in told["worker-fast"], "1m 30s" in told["worker-slow"], "slots = 10" in told["worker-slow"]], [
        True, True, False]
    yield "pools", ["pool_size = 5" in told["worker-fast"], "pool_size = 4" in told["worker-slow"]], [True, True]


def of_pods(r):
    """What is said of all pods shows in all of them, the migration's and the test's too."""
    wanted = {"nodeSelector": {"n": "o"}, "tolerations": [{"key": "k", "operator": "Exists"}], "priorityClassName": "high",
              "runtimeClassName": "gvisor", "imagePullSecrets": [{"name": "pull"}], "affinity": {"nodeAffinity": {}},
              "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}], "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}}
    for name, spec in pods(r).items():
        yield name, {key: spec.get(key) for key in wanted}, wanted
        ours = [c for c in policies.containers(spec) if c["name"] != "lesson"]
        yield f"{name}'s environment", [{"name": "RUST_BACKTRACE", "value": "1"} in c["env"] for c in ours], [True] * len(ours)
        yield f"{name}'s further environment", [c["envFrom"] for c in ours], [[{"secretRef": {"name": "ext-env", "optional": True}}]] * len(ours)
    spread = pods(r)["gateway"]["topologySpreadConstraints"]
    yield "spread", [(s["topologyKey"], s["whenUnsatisfiable"], s["labelSelector"]["matchLabels"]["app.kubernetes.io/component"]) for s in spread], [
        ("zone", "DoNotSchedule", "gateway")]
    for o in r.objects:
        yield f"labels of {o['metadata']['name']}", (o["metadata"]["labels"].get("d"), o["metadata"].get("annotations", {}).get("f")), ("e", "g")
    template = r.by_name[("Deployment", "mcp-tasks-cron")]["spec"]["template"]["metadata"]
    yield "labels of pods", (template["labels"]["team"], template["labels"]["d"], template["annotations"]["b"]), ("a", "e", "c")


def containers(r):
    spec = pods(r)["gateway"]
    yield "containers", [c["name"] for c in spec["containers"]], ["gateway", "extra"]
    yield "mounts", {"name": "more", "mountPath": "/more"} in spec["containers"][0]["volumeMounts"], True
    yield "volumes", {"name": "more", "emptyDir": {}} in spec["volumes"], True
    yield "others", "more" in str(pods(r)["cron"]), False


def digest(r):
    images = {c["image"] for name, spec in pods(r).items() for c in policies.containers(spec) if c["name"] != "lesson"}
    yield "images", images, {"registry.test/mcp-tasks@sha256:" + "a" * 64}


def digest_groups(r):
    ours, other = "registry.test/ours", "registry.test/other"
    found = {n: pods(r)[n]["containers"][0]["image"] for n in pods(r) if n != "test"}
    pinned = f"{ours}@sha256:" + "a" * 64
    yield "images", found, {"gateway": pinned, "cron": pinned, "migrate": pinned, "worker-default": pinned, "worker-same": pinned,
                            "worker-tag": f"{ours}:2", "worker-other": f"{other}:1", "worker-pinned": "registry.test/pinned@sha256:" + "b" * 64}


def replaced(r):
    yield "URLs", {n: s for n, s in urls(r) if n.startswith("worker")}, {
        "worker-a/worker": ("mcp-tasks-urls", "postgres-worker-a"), "worker-b/worker": ("ext-worker", "url"),
        "worker-c/worker": ("mcp-tasks-urls", "postgres-worker-c")}
    # No other group's user is in the Secret for the one that has a Secret of its own.
    yield "URLs of the chart's Secret", sorted(r.by_name[("Secret", "mcp-tasks-urls")]["data"]), ["postgres", "postgres-worker-a", "postgres-worker-c", "redis"]
    files = "/etc/mcp-tasks/postgres/password/word"
    yield "password files", {n: f for n, f in passwords(r) if n.startswith("worker")}, {"worker-a": "/mnt/csi/password", "worker-b": files, "worker-c": files}
    told = {n: settings(r, f"mcp-tasks-worker-{n}") for n in "abc"}
    yield "tools", {n: re.search(r'file = "([^"]+tools.toml)"', t)[1] for n, t in told.items()}, {
        "a": "/etc/mcp-tasks/files/tools.toml", "b": "/etc/mcp-tasks/tools/tools.toml", "c": "/etc/mcp-tasks/files/tools.toml"}
    budgets = {n: r.by_name[("PodDisruptionBudget", f"mcp-tasks-worker-{n}")]["spec"] for n in "ab"}
    yield "budgets", [(b.get("minAvailable"), b.get("maxUnavailable")) for b in budgets.values()], [(1, None), (None, "50%")]
    yield "time to end", [pods(r)[f"worker-{n}"]["terminationGracePeriodSeconds"] for n in "ab"], [90, 10 + 5 + 5]
    yield "triggers", [[t["name"] for t in r.by_name[("ScaledObject", f"mcp-tasks-worker-{n}")]["spec"]["triggers"]] for n in "ab"], [["jobs", "lag"], ["jobs"]]
    strategies = {n: r.by_name[("Deployment", f"mcp-tasks-{n}")]["spec"]["strategy"] for n in ("worker-a", "worker-b", "cron")}
    yield "strategies", strategies, {"worker-a": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
                                     "worker-b": {"type": "Recreate"}, "cron": {"type": "Recreate"}}
    yield "hooks", [pods(r)[f"worker-{n}"]["containers"][0]["lifecycle"]["preStop"].keys() for n in "ab"], [{"sleep"}, {"exec"}]
    # Made once, with what each of them says.
    accounts = [o["metadata"] for o in r.of("ServiceAccount") if o["metadata"]["name"] == "ext-account"]
    yield "accounts", [a["annotations"] for a in accounts], [{"a": "b", "c": "d"}]


def tools_replaced(r):
    for name, wanted in (("default", "tools/tools.toml"), ("own", "files/tools.toml")):
        told = settings(r, f"mcp-tasks-worker-{name}")
        yield f"{name}'s tools", re.search(r'file = "([^"]+)"', told)[1], f"/etc/mcp-tasks/{wanted}"
        yield f"{name}'s volumes", [v["name"] for v in pods(r)[f"worker-{name}"]["volumes"] if v["name"] in ("tools", "files")], [wanted.split("/")[0]]


def lag(r):
    yield "triggers", [t["name"] for t in r.by_name[("ScaledObject", "mcp-tasks-worker-default")]["spec"]["triggers"]], ["jobs"]


def accounts(r):
    yield "accounts", {n: pods(r)[n]["serviceAccountName"] for n in ("gateway", "cron")}, {"gateway": "ext-account", "cron": "mcp-tasks-cron"}
    yield "made", sorted(o["metadata"]["name"] for o in r.of("ServiceAccount")), [
        "mcp-tasks-cron", "mcp-tasks-migrate", "mcp-tasks-worker-default"]
    account = r.by_name[("ServiceAccount", "mcp-tasks-worker-default")]
    yield "annotations", account["metadata"]["annotations"], {"eks.amazonaws.com/role-arn": "arn"}


def budgets(r):
    found = {o["metadata"]["name"]: (o["spec"].get("minAvailable"), o["spec"].get("maxUnavailable")) for o in r.of("PodDisruptionBudget")}
    yield "budgets", found, {"mcp-tasks-gateway": (1, None), "mcp-tasks-worker-default": (None, "50%")}


def load_balancer(r):
    spec = r.by_name[("Service", "mcp-tasks-gateway")]["spec"]
    wanted = {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local",
              "trafficDistribution": "PreferClose", "allocateLoadBalancerNodePorts": False, "loadBalancerIP": "10.0.0.7"}
    yield "the Service", {key: spec.get(key) for key in wanted}, wanted
    yield "names", re.findall(r"allowed_hosts = (.*)", settings(r, "mcp-tasks-gateway")), [
        '["mcp-tasks-gateway", "mcp-tasks-gateway:80", "mcp-tasks-gateway.tasks", "mcp-tasks-gateway.tasks:80", "mcp-tasks-gateway.tasks.svc", '
        '"mcp-tasks-gateway.tasks.svc:80", "mcp-tasks-gateway.tasks.svc.cluster.local", "mcp-tasks-gateway.tasks.svc.cluster.local:80", "mcp.test"]']
    # What comes in goes through the proxy, never around it.
    yield "its port", (spec["ports"][0]["port"], spec["ports"][0]["targetPort"]), (80, "proxy")


def node_port(r):
    yield "the port", r.by_name[("Service", "mcp-tasks-gateway")]["spec"]["ports"][0]["nodePort"], 30080


def long_drain(r):
    yield "time to end", pods(r)["gateway"]["terminationGracePeriodSeconds"], 30 + 20 + 120 + 5


def from_files(r):
    """Passwords and authorities that are mounted."""
    yield "password files", dict(passwords(r)), dict.fromkeys(("gateway", "worker-default", "cron"), "/etc/mcp-tasks/postgres/password/password")
    for name in ("gateway", "worker-default", "cron", "migrate"):
        mounted = {m["mountPath"] for m in pods(r)[name]["containers"][0]["volumeMounts"]}
        yield f"{name}'s mounts", "/etc/mcp-tasks/postgres/password" in mounted, True


def csi(r):
    yield "password files", dict(passwords(r)), dict.fromkeys(("gateway", "worker-default", "cron"), "/mnt/csi/password")
    for name, spec in pods(r).items():
        yield f"{name}'s volume", [v["csi"]["driver"] for v in spec["volumes"] if "csi" in v], ["secrets-store.csi.k8s.io"]


def encryption(r):
    for name in ("gateway", "worker-default", "cron", "test"):
        volume = [v["secret"]["secretName"] for v in pods(r)[name]["volumes"] if v["name"] == "encryption"]
        yield f"{name}'s keys", volume, ["ext-encryption"]
    yield "the migration's", "encryption" in str(pods(r)["migrate"]), False
    for name in ("gateway", "worker-default", "cron"):
        told = settings(r, f"mcp-tasks-{name}")
        found = re.findall(r'"id" = "([^"]+)", "key_file" = "([^"]+)"', told)
        yield f"{name}'s settings", found, [("2026-11", "/etc/mcp-tasks/encryption/november"), ("2026-05", "/etc/mcp-tasks/encryption/2026-05")]


def receivers(r):
    """Crons alone have what receivers of alerts are told by, and are let out to them."""
    for name in ("gateway", "worker-default", "cron", "migrate"):
        found = [v["secret"]["secretName"] for v in pods(r)[name]["volumes"] if v["name"] == "alerts"]
        yield f"{name}'s volume", found, ["mcp-tasks-alerts"] * (name == "cron")
    yield "cron's ports", ports(r, "cron"), {53, 5433, 6380, 443}
    yield "cron's settings", re.findall(r'"(\w+_file)" = "([^"]+)"', settings(r, "mcp-tasks-cron")), [
        ("secret_file", "/etc/mcp-tasks/alerts/secret"), ("url_file", "/etc/mcp-tasks/alerts/url")]


def own_file(r):
    """A settings file that the chart cannot read: what it is told of it."""
    env = {n: {v["name"]: v.get("value") for c in policies.containers(spec) for v in c.get("env", []) if "MCP_TASKS" in v["name"]} for n, spec in pods(r).items()}
    yield "where gateways listen", (env["gateway"]["MCP_TASKS__GATEWAY__BIND"], env["gateway"]["MCP_TASKS__AUTH__MODE"]), ("0.0.0.0:3000", "tokens")
    yield "the test's gateway", (env["test"]["MCP_TASKS__GATEWAY__BIND"], env["test"]["MCP_TASKS__AUTH__MODE"]), ("127.0.0.1:3000", "dev")
    yield "the migration", env["migrate"]["MCP_TASKS__AUTH__MODE"], "tokens"
    for name, spec in pods(r).items():
        yield f"{name}'s keys", [v["secret"]["secretName"] for v in spec["volumes"] if v["name"] == "encryption"], ["ext-encryption"]
    for name in ("gateway", "cron", "test"):
        yield f"{name}'s ports", ports(r, name), {53, 5433, 6380, 443, 9093}
    for name, wanted in (("worker-default", {53, 5433, 6380}), ("migrate", {53, 5433})):
        yield f"{name}'s ports", ports(r, name), wanted
    # What pods are killed by is what processes do, whatever the file says.
    times = ("GATEWAY__DRAIN_DELAY", "GATEWAY__DRAIN_DEADLINE", "TRACES__FLUSH_TIMEOUT")
    yield "times of gateways", [env["gateway"][f"MCP_TASKS__{t}"] for t in times], ["5s", "30s", "3s"]
    yield "time to end", {n: pods(r)[n]["terminationGracePeriodSeconds"] for n in ("gateway", "worker-default", "cron")}, {
        "gateway": 5 + 5 + 30 + 3 + 5, "worker-default": 10 + 5 + 3 + 5, "cron": 5 + 3 + 5}
    yield "times of workers", (env["worker-default"]["MCP_TASKS__WORKER__DRAIN_DEADLINE"], env["worker-default"]["MCP_TASKS__WORKER__STOP_GRACE"]), ("10s", "5s")
    yield "time of crons", env["cron"]["MCP_TASKS__POSTGRES__STATEMENT_TIMEOUT"], "5s"


def test_tokens(r):
    """The test's own gateway asks the issuers that gateways ask."""
    yield "ports", (ports(r, "test"), ports(r, "gateway")), ({53, 5433, 6380, 8443, 7000},) * 2


def test_elsewhere(r):
    rules = {n: r.by_name[("NetworkPolicy", f"mcp-tasks-{n}")]["spec"] for n in ("test", "gateway")}
    ours = [rule["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for rule in rules["test"]["egress"] if {"port": "mcp", "protocol": "TCP"} in rule["ports"]]
    yield "to the pods of gateways", ours, ["gateway"]
    yield "who may come", [f.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component") for f in rules["gateway"]["ingress"][0]["from"]], [None, "test"]


def behind_proxy(r):
    told = settings(r, "mcp-tasks-gateway")
    yield "who is believed", re.findall(r"trusted_proxies = (.*)", told), ['["10.42.0.0/16", "127.0.0.1", "::1"]']
    proxy = rendering.carried(r, r.by_name[("Deployment", "mcp-tasks-gateway")], "proxy")["haproxy.cfg"]
    yield "who is told", "option forwardfor" in proxy, True


NGINX, ALB = "nginx.ingress.kubernetes.io", "alb.ingress.kubernetes.io"
# By default it asks for `/`, and a gateway has nothing there.
HEALTH = {f"{ALB}/healthcheck-path": "/.well-known/oauth-protected-resource", f"{ALB}/success-codes": "200-499"}
CASES = {"default": default, "route": route, "route-retry": route_retry, "hpa": hpa, "external": external, "groups": groups,
         "ingress-nginx": ingress(**{f"{NGINX}/proxy-buffering": "off", f"{NGINX}/proxy-read-timeout": "3600", f"{NGINX}/proxy-body-size": "5m"}),
         "ingress-haproxy": ingress(**{"haproxy.org/timeout-server": "3600s", "haproxy.org/timeout-client": "3600s"}),
         "ingress-alb": ingress(**{f"{ALB}/load-balancer-attributes": "idle_timeout.timeout_seconds=3600", "a": "b", **HEALTH}),
         "tls-alb": ingress(**{f"{ALB}/backend-protocol": "HTTPS", **HEALTH}), "digest-groups": digest_groups, "replaced": replaced,
         "tools-replaced": tools_replaced, "lag": lag,
         "pods": of_pods, "containers": containers, "digest": digest, "accounts": accounts, "budgets": budgets, "load-balancer": load_balancer,
         "node-port": node_port, "long-drain": long_drain, "passwords": from_files, "passwords-csi": csi, "encryption": encryption, "own-file-tokens": own_file,
         "trial-mirror": pulled, "test-tokens": test_tokens, "test-elsewhere": test_elsewhere, "jwt-keys": behind_proxy,
         "roles": roles, "roles-passwords": roles_passwords, "mirror": mirror, "migration": migration, "operators": operators,
         "tls": tls_ingress, "tls-route": tls_route, "alerts.md 0": receivers}


def check(renderings):
    by_name, count = {r.case.name: r for r in renderings}, 0
    for name, outcome in CASES.items():
        for what, found, wanted in outcome(by_name[name]):
            count += 1
            if found != wanted:
                yield f"{name}: {what}: {found}, not {wanted}"
    check.count = count
