"""What single values do, each looked up where it has to show."""

import base64

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


def passwords(rendered):
    """The file that each settings file names for the password of Postgres."""
    for o in rendered.of("ConfigMap"):
        for line in o["data"].get("mcp-tasks.toml", "").partition("[postgres]")[2].partition("\n[")[0].splitlines():
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
    yield "who is asked for names", "kube-system" in str(rules["egress"][0]), True
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


CASES = {"roles": roles, "roles-passwords": roles_passwords, "mirror": mirror, "migration": migration, "operators": operators,
         "tls": tls_ingress, "tls-route": tls_route}


def check(renderings):
    by_name, count = {r.case.name: r for r in renderings}, 0
    for name, outcome in CASES.items():
        for what, found, wanted in outcome(by_name[name]):
            count += 1
            if found != wanted:
                yield f"{name}: {what}: {found}, not {wanted}"
    check.count = count
