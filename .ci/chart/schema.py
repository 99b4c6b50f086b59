"""values.schema.json: every name that values.yaml knows, and no other; settings of mcp-tasks by
docs/configuration.md."""

import re

INT, BOOL, STR, NUM = ({"type": t} for t in ("integer", "boolean", "string", "number"))
LIST, ANY = {"type": "array"}, {}
STRINGS = {"type": "array", "items": {"type": "string"}}
MAPS = {"type": "array", "items": {"type": "object"}}
MAP = {"type": "object"}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
COUNT = {"type": "integer", "minimum": 0}
ONE = {"type": "integer", "minimum": 1}
# Of objects, or a part of it.
NAME = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"}
# Goes into a line of the proxy's settings.
TOKEN = {"type": "string", "pattern": "^[^\\s\"'\\\\]*$"}
PERCENT_OR_COUNT = {"type": ["integer", "string"], "pattern": "^[0-9]+%$"}


def obj(**properties):
    return {"type": "object", "additionalProperties": False, "properties": properties}


def null(schema):
    return {**schema, "type": [schema["type"], "null"] if isinstance(schema["type"], str) else [*schema["type"], "null"]}


def enum(*values):
    return {"enum": list(values)}


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


IMAGE = obj(repository=STR, tag=STR, digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            pullPolicy=enum("Always", "IfNotPresent", "Never"))
RESOURCES = obj(requests=MAP, limits=MAP, claims=LIST)
PROBE = obj(periodSeconds=ONE, timeoutSeconds=ONE, failureThreshold=ONE, successThreshold=ONE,
            initialDelaySeconds=COUNT, terminationGracePeriodSeconds=ONE)
STRATEGY = obj(type=enum("RollingUpdate", "Recreate"),
               rollingUpdate=null(obj(maxSurge=PERCENT_OR_COUNT, maxUnavailable=PERCENT_OR_COUNT)))
BEHAVIOR = obj(scaleUp=MAP, scaleDown=MAP)
SERVICE_ACCOUNT = obj(create=BOOL, name=STR, annotations=TEXTS, automountServiceAccountToken=BOOL)
BUDGET = obj(enabled=BOOL, maxUnavailable=null(PERCENT_OR_COUNT), minAvailable=null(PERCENT_OR_COUNT),
             unhealthyPodEvictionPolicy=enum("AlwaysAllow", "IfHealthyBudget"))
LIFECYCLE = obj(preStop=MAP, postStart=MAP, stopSignal=STR)
EGRESS = obj(extraEgress=MAPS)

# What every pod can have.
POD = dict(
    image=ref("image"), imagePullSecrets=MAPS, deploymentAnnotations=TEXTS, revisionHistoryLimit=COUNT, minReadySeconds=COUNT,
    progressDeadlineSeconds=ONE, dnsPolicy=enum("", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"), schedulerName=STR,
    lifecycle=LIFECYCLE, podLabels=TEXTS, podAnnotations=TEXTS,
    podSecurityContext=MAP, securityContext=MAP, nodeSelector=TEXTS, tolerations=MAPS, affinity=MAP,
    topologySpreadConstraints=MAPS, priorityClassName=STR, runtimeClassName=STR, hostAliases=MAPS, dnsConfig=MAP,
    extraEnv=MAPS, extraEnvFrom=MAPS, extraVolumes=MAPS, extraVolumeMounts=MAPS, extraContainers=MAPS,
    initContainers=MAPS,
)
# Of these a Job that ends by itself has no use for.
LASTING = {"deploymentAnnotations", "revisionHistoryLimit", "minReadySeconds", "progressDeadlineSeconds", "topologySpreadConstraints",
           "lifecycle", "extraContainers", "initContainers"}
PASSWORD_FILE = obj(existingSecret=STR, key=STR, path=STR)
# What gateways, workers and crons have besides.
PROCESS = dict(
    replicas=COUNT, poolSize=ONE, postgres=ref("ownPostgres"), config=ref("config"), resources=ref("resources"), strategy=ref("strategy"),
    preStopSleepSeconds=COUNT, terminationGracePeriodSeconds=null(ONE), podDisruptionBudget=ref("budget"),
    serviceAccount=ref("serviceAccount"), startupProbe=ref("probe"), livenessProbe=ref("probe"),
    readinessProbe=ref("probe"), networkPolicy=EGRESS, command=STRINGS, args=STRINGS,
)
WORKER_SCALING = obj(
    enabled=BOOL, type=enum("keda", "external"), minReplicas=ONE, maxReplicas=ONE, jobsPerReplica=ONE,
    lagSecondsPerReplica=null(ONE), tools=STRINGS, prometheusAddress=STR, metricLabels=TEXTS, pollingInterval=ONE,
    triggerAuthentication=STR, behavior=BEHAVIOR,
)
WORKER = {**PROCESS, **POD, "autoscaling": WORKER_SCALING, "files": TEXTS, "toolsFile": STR,
          "toolsFrom": obj(existingConfigMap=STR, existingSecret=STR, key=STR)}


def server(**more):
    return obj(url=STR, existingSecret=STR, existingSecretKey=STR,
               passwordFile=PASSWORD_FILE,
               ca=obj(existingSecret=STR, existingConfigMap=STR, key=STR), **more)


def monitor():
    return obj(enabled=BOOL, interval=STR, scrapeTimeout=STR, labels=TEXTS, relabelings=MAPS, metricRelabelings=MAPS)


VALUES = dict(
    **POD,
    nameOverride=NAME, fullnameOverride=NAME, clusterDomain={"type": "string", "minLength": 1}, commonLabels=TEXTS, commonAnnotations=TEXTS,
    postgres=server(maxConnections=ONE, reservedConnections=COUNT),
    redis=server(),
    config=ref("config"),
    configFile=obj(existingSecret=STR, existingConfigMap=STR, path=STR, key=STR,
                   ports=null({"type": "array", "items": PORT})),
    callbackKeys=obj(create=BOOL, existingSecret=STR, existingSecretKey=STR),
    encryption=obj(existingSecret=STR, path=STR, keys={"type": "array", "items": {**obj(id=STR, key=STR), "required": ["id"]}}),
    listenAddress=STR,
    gateway=obj(
        **PROCESS, **POD,
        tls=obj(existingSecret=STR, certificateKey=STR, privateKeyKey=STR),
        requestStateKeys=obj(create=BOOL, existingSecret=STR, existingSecretKey=STR),
        proxy=obj(enabled=BOOL,
                  jwt=obj(issuer=TOKEN, audience=TOKEN, existingSecret=STR, keys=STRINGS,
                          algorithm=enum("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")),
                  image=STR, command=STRINGS, args=STRINGS, port=PORT, files=TEXTS, env=MAPS,
                  volumeMounts=MAPS, readinessProbe=MAP, securityContext=MAP, resources=ref("resources")),
        service=obj(type=enum("ClusterIP", "NodePort", "LoadBalancer"), port=PORT, nodePort=null(PORT),
                    annotations=TEXTS, labels=TEXTS, trafficDistribution=STR, loadBalancerClass=STR, loadBalancerIP=STR,
                    allocateLoadBalancerNodePorts=null(BOOL), internalTrafficPolicy=enum("", "Cluster", "Local"),
                    ipFamilies={"type": "array", "items": enum("IPv4", "IPv6")}, loadBalancerSourceRanges=STRINGS, externalTrafficPolicy=enum("", "Cluster", "Local"),
                    ipFamilyPolicy=enum("", "SingleStack", "PreferDualStack", "RequireDualStack")),
        autoscaling=obj(enabled=BOOL, minReplicas=ONE, maxReplicas=ONE, targetCPUUtilizationPercentage=null(ONE),
                        targetRequestsInFlight=null(ONE), metrics=MAPS, behavior=BEHAVIOR),
    ),
    workerDefaults=ref("worker"),
    workers={
        "type": "object",
        # A group's name is part of names of objects.
        "propertyNames": {"pattern": "^[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?$"},
        "additionalProperties": {
            "type": ["object", "null"], "additionalProperties": False,
            "properties": {**WORKER, "enabled": BOOL},
        },
    },
    cron=obj(**PROCESS, **POD),
    migrate=obj(mode=enum("", "hook", "init", "none"), backoffLimit=COUNT, activeDeadlineSeconds=ONE,
                **{name: kind for name, kind in POD.items() if name not in LASTING}, postgres=ref("ownPostgres"), roles=BOOL,
                ttlSecondsAfterFinished=null(COUNT), serviceAccount=ref("serviceAccount"),
                annotations=TEXTS, resources=ref("resources"), command=STRINGS, args=STRINGS),
    ingress=obj(
        enabled=BOOL, className=STR, controller=enum("", "nginx", "haproxy", "alb"), streamSeconds=ONE,
        annotations=TEXTS, tls=MAPS,
        hosts={"type": "array", "items": {
            **obj(host=STR, paths={"type": "array", "items": {
                **obj(path=STR, pathType=enum("Prefix", "Exact", "ImplementationSpecific")), "required": ["path"]}}),
            "required": ["host"]}},
    ),
    httpRoute=obj(
        enabled=BOOL, backendTLS=obj(hostname=STR, caConfigMap=STR), parentRefs=MAPS, hostnames=STRINGS, annotations=TEXTS, requestTimeout=STR, filters=MAPS,
        retryPolls=obj(enabled=BOOL, attempts=ONE, backoff=STR, codes={"type": "array", "items": INT},
                       requestTimeout=STR),
    ),
    networkPolicy=obj(enabled=BOOL, gatewayFrom=MAPS, metricsFrom=MAPS, extraIngress=MAPS, dnsTo=MAPS, dnsPorts={"type": "array", "items": PORT, "minItems": 1}, tracesTo=MAPS, postgresTo=MAPS,
                      postgresPorts={"type": "array", "items": PORT}, redisTo=MAPS,
                      redisPorts={"type": "array", "items": PORT}, extraEgress=MAPS),
    podMonitor=monitor(),
    serviceMonitor=monitor(),
    prometheusRule=obj(enabled=BOOL, labels=TEXTS, alertLabels=TEXTS, disabled=STRINGS),
    dashboards=obj(enabled=BOOL, labels=TEXTS, annotations=TEXTS, namespace=STR),
    tests=obj(enabled=BOOL, image=STR, url=STR, existingSecret=STR, resources=ref("resources")),
    trial=obj(
        postgres=obj(enabled=BOOL, image=STR, password={"type": "string", "minLength": 1},
                     persistence=obj(enabled=BOOL, size=STR, storageClassName=STR), resources=ref("resources")),
        redis=obj(enabled=BOOL, image=STR, resources=ref("resources")),
    ),
    extraObjects={"type": "array", "items": {"type": ["object", "string"]}},
)


# What is in lists of tables: that these are all names, the test asks the binary.
ITEMS = {
    "issuers": {**obj(issuer=STR, jwks_url=STR, jwks_file=STR, algorithms=STRINGS, at_jwt_only=BOOL,
                      access_tokens_have_at_hash=BOOL, scope_claims=STRINGS, tenant_claim=STR, introspection_url=STR,
                      introspection_token_prefixes=STRINGS,
                      introspection_client_id=STR, introspection_secret_file=STR, introspection_cache=STR, introspect_jwts=BOOL),
                "required": ["issuer"]},
    "receivers": {**obj(name=STR, kind=STR, url=STR, url_file=STR, secret=STR, secret_file=STR, ca_file=STR, questions=BOOL, alerts=BOOL),
                  "required": ["name"]},
}


def settings(reference):
    """The settings of docs/configuration.md: sections and names; what values are, mcp-tasks checks."""
    root = obj()
    here = None
    for line in reference.splitlines():
        if section := re.match(r"## `\[([a-z_.]+)\]`", line):
            here = root
            for name in section[1].split("."):
                here = here["properties"].setdefault(name, obj())
        elif here and (setting := re.match(r"\| `([a-z_]+)` \| (.*?) \| (.*) \|$", line)):
            default = setting[2].strip("`")
            kind = {}
            # `a` (what it does), `b` (…), in words of the binary's own.
            told = setting[3].partition("One of ")[2]
            while (flat := re.sub(r"(?<=\()[^()]*\([^()]*\)", "", told)) != told:
                told = flat
            chosen = re.findall(r"`([\w-]+)` \(", told)
            if setting[1] in ITEMS:
                kind = {"type": "array", "items": ITEMS[setting[1]]}
            elif chosen:
                kind = enum(*chosen)
            elif default in ("true", "false"):
                kind = BOOL
            elif re.fullmatch(r"\d+", default):
                kind = INT
            elif re.fullmatch(r"[\d.]+", default):
                kind = NUM
            elif default.startswith('"'):
                kind = STR
            elif default.startswith("["):
                kind = LIST
            here["properties"][setting[1]] = kind
    return root


def schema(reference):
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of mcp-tasks",
        "$comment": "Written by .ci/chart/generate.py; do not edit.",
        "type": "object",
        "additionalProperties": False,
        # Of other charts, too.
        "properties": {**VALUES, "global": {**obj(imageRegistry=STR, imagePullSecrets=MAPS), "additionalProperties": True}},
        "$defs": {
            "image": IMAGE, "resources": RESOURCES, "probe": PROBE, "strategy": STRATEGY, "budget": BUDGET,
            "ownPostgres": obj(url=STR, existingSecret=STR, existingSecretKey=STR, passwordFile=PASSWORD_FILE),
            "serviceAccount": SERVICE_ACCOUNT, "worker": obj(**WORKER), "config": settings(reference),
        },
    }
