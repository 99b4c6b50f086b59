"""Small schemas for objects of operators: the fields that the chart uses, and no others."""

STR, INT, BOOL, OBJ = ({"type": t} for t in ("string", "integer", "boolean", "object"))
DURATION = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
TEXTS = {"type": "object", "additionalProperties": STR}


def obj(required=(), **properties):
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def items(schema, least=1):
    return {"type": "array", "items": schema, "minItems": least}


METADATA = obj(["name", "namespace", "labels"], name=STR, namespace=STR, labels=TEXTS, annotations=TEXTS)
SELECTOR = obj(["matchLabels"], matchLabels=TEXTS)
RELABEL = obj(["targetLabel"], sourceLabels=items(STR), targetLabel=STR, replacement=STR, regex=STR, action=STR)
ENDPOINT = obj(["port"], port=STR, path=STR, interval=DURATION, scrapeTimeout=DURATION, honorLabels=BOOL,
               relabelings=items(RELABEL), metricRelabelings=items(OBJ))
RULE = obj(["expr"], record=STR, alert=STR, expr={"type": "string", "minLength": 1}, labels=TEXTS, annotations=TEXTS,
           **{"for": DURATION})
BACKEND = items(obj(["name", "port"], name=STR, port=INT))
ROUTE_RULE = obj(
    ["matches", "backendRefs"],
    matches=items(obj(["path"], path=obj(["type", "value"], type={"enum": ["PathPrefix", "Exact"]}, value=STR),
                      headers=items(obj(["name", "value"], type={"enum": ["Exact"]}, name=STR, value=STR)))),
    filters=items(OBJ), timeouts=obj(request=DURATION, backendRequest=DURATION),
    retry=obj(attempts=INT, backoff=DURATION, codes=items({"type": "integer", "minimum": 400, "maximum": 599})),
    backendRefs=BACKEND,
)
TRIGGER = obj(
    ["type", "metadata"], type={"enum": ["prometheus"]}, name=STR, metricType={"enum": ["AverageValue"]},
    metadata=obj(["serverAddress", "query", "threshold"], serverAddress=STR, query=STR,
                 threshold={"type": "string", "pattern": r"^[0-9.]+$"}, ignoreNullValues={"enum": ["true", "false"]}),
    authenticationRef=obj(["name"], name=STR),
)

SPECS = {
    ("monitoring.coreos.com/v1", "PodMonitor"): obj(
        ["selector", "podMetricsEndpoints"], selector=SELECTOR, podMetricsEndpoints=items(ENDPOINT)),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): obj(
        ["selector", "endpoints"], selector=SELECTOR, endpoints=items(ENDPOINT)),
    ("monitoring.coreos.com/v1", "PrometheusRule"): obj(
        ["groups"], groups=items(obj(["name", "rules"], name=STR, interval=DURATION, rules=items(RULE)))),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): obj(
        ["parentRefs", "rules"],
        parentRefs=items(obj(["name"], name=STR, namespace=STR, sectionName=STR, group=STR, kind=STR, port=INT)),
        hostnames=items(STR), rules=items(ROUTE_RULE)),
    ("gateway.networking.k8s.io/v1", "BackendTLSPolicy"): obj(
        ["targetRefs", "validation"],
        targetRefs=items(obj(["group", "kind", "name"], group={"enum": [""]}, kind={"enum": ["Service"]}, name=STR)),
        validation={**obj(["hostname"], hostname={"type": "string", "pattern": "^[a-z0-9.-]+$"},
                          caCertificateRefs=items(obj(["group", "kind", "name"], group={"enum": [""]}, kind={"enum": ["ConfigMap"]}, name=STR)),
                          wellKnownCACertificates={"enum": ["System"]}),
                    "oneOf": [{"required": ["caCertificateRefs"]}, {"required": ["wellKnownCACertificates"]}]}),
    ("keda.sh/v1alpha1", "ScaledObject"): obj(
        ["scaleTargetRef", "triggers"],
        scaleTargetRef=obj(["name"], apiVersion=STR, kind=STR, name=STR), minReplicaCount=INT, maxReplicaCount=INT,
        pollingInterval=INT, cooldownPeriod=INT,
        fallback=obj(["failureThreshold", "replicas"], failureThreshold=INT, replicas=INT,
                     behavior={"enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]}),
        advanced=obj(horizontalPodAutoscalerConfig=obj(behavior=OBJ)), triggers=items(TRIGGER)),
}
SCHEMAS = {
    key: obj(["apiVersion", "kind", "metadata", "spec"], apiVersion=STR, kind=STR, metadata=METADATA, spec=spec)
    for key, spec in SPECS.items()
}
