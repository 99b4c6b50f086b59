"""What must hold in every rendering, whatever the values."""

import re

import rendering

OURS = {"gateway", "worker", "cron"}
# ConfigMaps of all renderings by name: what is in one of a name is always the same.
MAPS = {}


def selects(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


def containers(spec):
    return [*spec.get("initContainers", []), *spec["containers"]]


def check(rendered, binary, external):
    """All that is wrong; `external` are names of Secrets, ConfigMaps and accounts that are the user's."""
    problems = []
    pods = [(o, *rendering.pod_spec(o)) for o in rendered.objects if rendering.pod_spec(o)]
    for o, labels, spec in pods:
        where = f"{o['kind']}/{o['metadata']['name']}"
        problems += [f"{where}: {p}" for p in pod(o, labels, spec, rendered, external)]
        for container in containers(spec):
            problems += [f"{where}: {container['name']}: {p}" for p in one(container, spec, o, binary)]
    problems += objects(rendered)
    problems += selectors(rendered, pods)
    problems += scaling(rendered)
    return [f"{rendered.case.name}: {p}" for p in problems]


def pod(o, labels, spec, rendered, external):
    security = spec.get("securityContext", {})
    if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
        yield "may run as root"
    if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "has no seccomp profile"
    if spec.get("automountServiceAccountToken") is not False:
        yield "has a token of the Kubernetes API"
    if spec.get("enableServiceLinks") is not False:
        yield "gets the environment of all Services"
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield f"has {name}"
    account = spec.get("serviceAccountName")
    if account and ("ServiceAccount", account) not in rendered.by_name and account not in external:
        yield f"runs as {account}, which there is not"
    volumes = {v["name"]: v for v in spec.get("volumes", [])}
    if len(volumes) != len(spec.get("volumes", [])):
        yield "has a volume twice"
    hook = "helm.sh/hook" in o["metadata"].get("annotations", {})
    before = "pre-" in o["metadata"].get("annotations", {}).get("helm.sh/hook", "")

    def missing(kind, name, key=None):
        found = rendered.by_name.get((kind, name))
        if found is None:
            return None if name in external else f"needs {kind}/{name}, which there is not"
        if key and key not in found.get("data", {}):
            return f"needs {key} of {kind}/{name}, which it has not"
        if before and "pre-" not in found["metadata"].get("annotations", {}).get("helm.sh/hook", ""):
            return f"runs before {kind}/{name} is there"
        return None

    if before and account and account not in external:
        if missed := missing("ServiceAccount", account):
            yield missed
    for volume in volumes.values():
        # An update must not change what pods of before read when they start again.
        made = rendered.by_name.get(("ConfigMap", volume.get("configMap", {}).get("name")))
        if made and not hook and (not made.get("immutable") or MAPS.setdefault(made["metadata"]["name"], made["data"]) != made["data"]):
            yield f"reads ConfigMap/{made['metadata']['name']}, which the next release of the chart changes under it"
        if "hostPath" in volume:
            yield "mounts the node's files"
        for source, field, kind in (("secret", "secretName", "Secret"), ("configMap", "name", "ConfigMap")):
            if source in volume and (missed := missing(kind, volume[source][field])):
                yield missed
    claimed = {claim["metadata"]["name"] for claim in o["spec"].get("volumeClaimTemplates", [])}
    for container in containers(spec):
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes.keys() | claimed:
                yield f"{container['name']} mounts {mount['name']}, which there is not"
        paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        if len(set(paths)) != len(paths):
            yield f"{container['name']} mounts something twice: {paths}"
        for variable in container.get("env", []):
            if ref := variable.get("valueFrom", {}).get("secretKeyRef"):
                if missed := missing("Secret", ref["name"], ref["key"]):
                    yield missed
    ports = [p["name"] for c in containers(spec) for p in c.get("ports", [])]
    if len(set(ports)) != len(ports):
        yield f"has a port twice: {ports}"
    if not hook and o["kind"] == "Deployment" and labels.get("app.kubernetes.io/component", "").split("-")[0] in OURS:
        sleep = max((c.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
                     for c in spec["containers"]), default=0)
        if spec["terminationGracePeriodSeconds"] < sleep + 10:
            yield "is killed while it ends"
        annotations = o["spec"]["template"]["metadata"].get("annotations", {})
        if "checksum/config" not in annotations:
            yield "does not notice a change of its settings"


def one(container, spec, o, binary):
    security = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
    if security.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    if security.get("readOnlyRootFilesystem") is not True:
        yield "may write to its image"
    if security.get("capabilities", {}).get("drop") != ["ALL"]:
        yield "has capabilities"
    if not security.get("runAsUser"):
        yield "runs as root"
    if security.get("privileged"):
        yield "is privileged"
    resources = container.get("resources", {})
    if "memory" not in resources.get("limits", {}):
        yield "has no limit of memory"
    if not {"cpu", "memory"} <= resources.get("requests", {}).keys():
        yield "requests no CPU or memory"
    image = container["image"]
    if not re.search(r"(:[\w][\w.-]*|@sha256:[0-9a-f]{64})$", image) or image.endswith(":latest"):
        yield f"has an image that may change: {image}"
    lasting = o["kind"] in ("Deployment", "StatefulSet") and container in spec["containers"]
    if lasting:
        for probe in ("livenessProbe", "readinessProbe"):
            if probe not in container:
                yield f"has no {probe}"
        if container["name"] in OURS and "startupProbe" not in container:
            yield "has no startupProbe"
    named = {p["name"] for p in container.get("ports", [])}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        port = container.get(probe, {}).get("httpGet", container.get(probe, {}).get("tcpSocket", {})).get("port")
        if isinstance(port, str) and port not in named:
            yield f"{probe} asks the port {port}, which it has not"
    names = [v["name"] for v in container.get("env", [])]
    if len(set(names)) != len(names):
        yield f"has an environment variable twice: {sorted({n for n in names if names.count(n) > 1})}"
    if container["name"] in OURS | {"migrate"} and not container.get("command"):
        yield from binary.misunderstands(container.get("args", []), names)


def objects(rendered):
    seen = set()
    for o in rendered.objects:
        meta = o["metadata"]
        key = (o["kind"], meta.get("namespace"), meta["name"])
        if key in seen:
            yield f"{o['kind']}/{meta['name']} is there twice"
        seen.add(key)
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", meta["name"]) or len(meta["name"]) > 63:
            yield f"{o['kind']}/{meta['name']} is no name"
        if not meta.get("namespace"):
            yield f"{o['kind']}/{meta['name']} has no namespace"
        for label in ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"):
            if label not in meta.get("labels", {}) and "extra" not in meta["name"]:
                yield f"{o['kind']}/{meta['name']} has no label {label}"
        if o["kind"] == "ServiceAccount" and o.get("automountServiceAccountToken") is not False:
            yield f"ServiceAccount/{meta['name']} hands out tokens"
        if o["kind"] != "Secret" and rendering.PASSWORD in str(o):
            yield f"{o['kind']}/{meta['name']} shows a password"


def selectors(rendered, pods):
    workloads = [(o, labels, spec) for o, labels, spec in pods if o["kind"] in ("Deployment", "StatefulSet")]
    for o, labels, spec in workloads:
        selector = o["spec"]["selector"]["matchLabels"]
        matching = [w["metadata"]["name"] for w, other, _ in pods if selects(selector, other)]
        if matching != [o["metadata"]["name"]]:
            yield f"{o['metadata']['name']} would own the pods of {matching}"
        for spread in spec.get("topologySpreadConstraints", []):
            if not selects(spread["labelSelector"]["matchLabels"], labels):
                yield f"{o['metadata']['name']} is spread by pods that are not its own"
    for budget in rendered.of("PodDisruptionBudget"):
        found = [o["metadata"]["name"] for o, labels, _ in pods if selects(budget["spec"]["selector"]["matchLabels"], labels)]
        if found != [budget["metadata"]["name"]]:
            yield f"PodDisruptionBudget/{budget['metadata']['name']} protects {found}"
    for service in rendered.of("Service"):
        chosen = [(o, spec) for o, labels, spec in workloads if selects(service["spec"]["selector"], labels)]
        metrics = service["spec"].get("clusterIP") == "None"
        if len(chosen) != 1 and not metrics:
            yield f"Service/{service['metadata']['name']} leads to {[o['metadata']['name'] for o, _ in chosen]}"
        for port in service["spec"]["ports"]:
            having = [o for o, spec in chosen if port["targetPort"] in
                      {p["name"] for c in spec["containers"] for p in c.get("ports", [])}]
            if not having or (not metrics and len(having) != len(chosen)):
                yield f"Service/{service['metadata']['name']}: nobody has the port {port['targetPort']}"
    policies = rendered.of("NetworkPolicy")
    yield from (f"NetworkPolicy/{p['metadata']['name']} is silent about a way" for p in policies
                if sorted(p["spec"]["policyTypes"]) != ["Egress", "Ingress"])
    if policies:
        for o, labels, spec in pods:
            mine = [p for p in policies if selects(p["spec"]["podSelector"]["matchLabels"], labels)]
            if not any(not p["spec"].get("ingress") and not p["spec"].get("egress") for p in mine):
                yield f"{o['metadata']['name']}: everything is allowed that no policy forbids"
            named = {p["name"] for c in containers(spec) for p in c.get("ports", [])}
            rules = [rule for p in mine for way in ("ingress", "egress") for rule in p["spec"].get(way, [])]
            if any(not rule.get("ports") and not rule.get("to") for rule in rules):
                yield f"{o['metadata']['name']}: a policy lets everything in or out"
            allowed = [port["port"] for p in mine for rule in p["spec"].get("ingress", []) for port in rule.get("ports", [])]
            for port in allowed:
                if port not in named:
                    yield f"{o['metadata']['name']}: a policy lets in to the port {port}, which it has not"
            if o["kind"] in ("Deployment", "StatefulSet") and named - set(allowed) - ({"mcp"} if "proxy" in named else set()):
                yield f"{o['metadata']['name']}: no policy lets in to {named - set(allowed)}"
            out = {port["port"] for p in mine for rule in p["spec"].get("egress", []) for port in rule.get("ports", [])}
            if not o["metadata"]["name"].endswith(("-postgres", "-redis")) and not {53, 5353} & set(out):
                yield f"{o['metadata']['name']}: no policy lets it ask for names"
    for kind, path in (("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")):
        for monitor in rendered.of(kind):
            selector = monitor["spec"]["selector"]["matchLabels"]
            if kind == "PodMonitor":
                watched = [(labels, spec) for o, labels, spec in workloads if selects(selector, labels)]
                ports = [{p["name"] for c in spec["containers"] for p in c.get("ports", [])} for _, spec in watched]
            else:
                watched = [s for s in rendered.of("Service") if selects(selector, s["metadata"]["labels"])]
                ports = [{p["name"] for p in s["spec"]["ports"]} for s in watched]
            port = monitor["spec"][path][0]["port"]
            if not any(port in names for names in ports):
                yield f"{kind}/{monitor['metadata']['name']} watches nothing"
    for kind in ("Ingress", "HTTPRoute"):
        for way in rendered.of(kind):
            for name, port in backends(way):
                service = rendered.by_name.get(("Service", name))
                if not service or port not in [p["port"] for p in service["spec"]["ports"]]:
                    yield f"{kind}/{way['metadata']['name']} leads to {name}:{port}, which there is not"


def backends(way):
    for rule in way["spec"]["rules"]:
        for path in rule.get("http", {}).get("paths", []):
            service = path["backend"]["service"]
            yield service["name"], service["port"]["number"]
        for ref in rule.get("backendRefs", []):
            yield ref["name"], ref["port"]


def scaling(rendered):
    for kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        for scaler in rendered.of(kind):
            name = scaler["spec"]["scaleTargetRef"]["name"]
            target = rendered.by_name.get(("Deployment", name))
            if not target:
                yield f"{kind}/{scaler['metadata']['name']} scales {name}, which there is not"
            elif "replicas" in target["spec"]:
                yield f"{kind}/{scaler['metadata']['name']}: every upgrade would set the replicas of {name} back"
