"""Values to render: the examples, each feature alone, and mixtures by a fixed seed; and values that must
be refused, each with what it must be told."""

import random
import re

import yaml

import rendering
from rendering import Case, CHART, ROOT, URLS

EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
JWT = {"proxy": {"enabled": True, "jwt": {
    "issuer": "https://issuer.test/", "audience": "https://mcp.test/mcp", "existingSecret": "ext-issuer"}}}

# The same as on a command line.
SET = tuple(word for kind in URLS for word in ("--set", f"{kind}.url={URLS[kind]['url']}"))

# Names of objects that are the user's, not the chart's.
EXTERNAL = {
    "ext-issuer", "ext-tools", "ext-tls", "ext-postgres", "ext-redis", "ext-ca", "ext-config", "ext-keys", "ext-tokens", "ext-account",
    *(f"mcp-tasks-postgres-{user}" for user in ("gateway", "worker", "cron", "owner")), "ext-encryption", "ext-gateway", "ext-worker", "ext-cron", "ext-owner", "ext-migrate",
    "mcp-tasks-postgres", "mcp-tasks-redis", "mcp-tasks-issuer", "mcp-tasks-callbacks", "mcp-tasks-request-state", "mcp-tasks-postgres-ca",
    "mcp-tasks-settings", "mcp-tasks-encryption", "mcp-tasks-alerts",
}

TOKENS = {"auth": {"mode": "tokens", "resource": "https://mcp.test/mcp", "issuers": [{"issuer": "https://issuer.test/"}]}}

FEATURES = {
    "tokens": {"config": TOKENS, "ingress": {"enabled": True, "hosts": [{"host": "mcp.test"}]}},
    "tokens-further": {"config": {"auth": {
        "mode": "tokens", "resource": "https://mcp.test/mcp", "scopes": {"call": ["tools:call"]}, "leeway": "10s",
        "issuers": [{"issuer": "https://a.test/", "jwks_url": "http://127.0.0.1:8080/keys", "algorithms": ["ES256"]},
                    {"issuer": "https://b.test:8443/", "introspection_url": "https://b.test:9443/introspect",
                     "introspection_client_id": "us", "introspection_secret_file": "/mnt/csi/password",
                     "introspection_token_prefixes": ["b_"]}]}},
        "gateway": {"service": {"type": "LoadBalancer"}},
        "extraVolumes": [{"name": "csi", "csi": {"driver": "secrets-store.csi.k8s.io"}}],
        "extraVolumeMounts": [{"name": "csi", "mountPath": "/mnt/csi"}]},
    "scopes": {"config": {"auth": {**TOKENS["auth"], "scopes": {"call": ["tools:call"]},
                                   "implied_scopes": {"tasks:admin": ["tasks:read", "tasks:cancel"]}}}},
    "callbacks": {"config": {**TOKENS, "callbacks": {"public_url": "https://mcp.test"}}, "httpRoute": {
        "enabled": True, "parentRefs": [{"name": "public"}]}},
    "tls": {"config": TOKENS, "gateway": {"tls": {"existingSecret": "ext-tls"}}, "ingress": {
        "enabled": True, "controller": "nginx", "hosts": [{"host": "mcp.test"}]}},
    "tls-route": {"config": TOKENS, "gateway": {"tls": {"existingSecret": "ext-tls", "certificateKey": "tls.crt"}}, "httpRoute": {
        "enabled": True, "parentRefs": [{"name": "public"}], "backendTLS": {"hostname": "gateway.mcp.test", "caConfigMap": "ext-ca"}}},
    "tls-system": {"config": TOKENS, "gateway": {"tls": {"existingSecret": "ext-tls"}}, "httpRoute": {
        "enabled": True, "parentRefs": [{"name": "public"}], "backendTLS": {"hostname": "gateway.mcp.test"}}},
    "encryption": {"encryption": {"existingSecret": "ext-encryption", "keys": [{"id": "2026-11", "key": "november"}, {"id": "2026-05"}]}},
    "encryption-csi": {"encryption": {"path": "/mnt/csi", "keys": [{"id": "november"}]}, "config": {"encryption": {"seal": False}},
                       "extraVolumes": [{"name": "csi", "csi": {"driver": "secrets-store.csi.k8s.io"}}],
                       "extraVolumeMounts": [{"name": "csi", "mountPath": "/mnt/csi"}]},
    "callbacks-keys": {"config": {"callbacks": {"public_url": "https://mcp.test"}}, "callbackKeys": {"existingSecret": "ext-keys"}},
    "jwt": {"gateway": JWT},
    "jwt-keys": {"config": {"gateway": {"trusted_proxies": ["10.42.0.0/16"]}}, "gateway": {"proxy": {"enabled": True, "port": 8443, "jwt": {
        **JWT["proxy"]["jwt"], "algorithm": "ES256", "keys": ["new.pem", "old.pem"]}}}},
    "proxy": {"gateway": {"proxy": {
        "enabled": True, "image": "envoyproxy/envoy:v1.36.0", "files": {"envoy.yaml": "{}"}, "args": ["-c", "/etc/proxy/envoy.yaml"]}}},
    "ingress-nginx": {"gateway": JWT, "ingress": {
        "enabled": True, "className": "nginx", "controller": "nginx", "hosts": [{"host": "mcp.test"}],
        "tls": [{"secretName": "ext-tls", "hosts": ["mcp.test"]}]}},
    "ingress-alb": {"gateway": JWT, "ingress": {
        "enabled": True, "controller": "alb", "annotations": {"a": "b"},
        "hosts": [{"host": "mcp.test", "paths": [{"path": "/mcp", "pathType": "Exact"}]}]}},
    "ingress-haproxy": {"gateway": JWT, "ingress": {"enabled": True, "controller": "haproxy", "hosts": [{"host": "mcp.test"}]}},
    "route": {"gateway": JWT, "httpRoute": {
        "enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["mcp.test"]}},
    "route-retry": {"gateway": JWT, "httpRoute": {
        "enabled": True, "parentRefs": [{"name": "public", "namespace": "gateways"}], "hostnames": ["mcp.test"],
        "retryPolls": {"enabled": True, "attempts": 3}}},
    "load-balancer": {"config": {"gateway": {"allowed_hosts": ["mcp.test"]}}, "gateway": {**JWT, "service": {
        "type": "LoadBalancer", "port": 80, "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local",
        "annotations": {"x": "y"}, "trafficDistribution": "PreferClose", "allocateLoadBalancerNodePorts": False,
        "loadBalancerIP": "10.0.0.7"}}},
    "node-port": {"config": {"gateway": {"allowed_hosts": ["mcp.test:30080"]}}, "gateway": {**JWT, "service": {"type": "NodePort", "nodePort": 30080}}},
    "hpa": {"gateway": {"autoscaling": {"enabled": True, "maxReplicas": 3, "targetRequestsInFlight": 100}}},
    "keda": {"workerDefaults": {"autoscaling": {"enabled": True, "maxReplicas": 3, "tools": ["a.b", "c"]}}},
    "keda-auth": {"workerDefaults": {"autoscaling": {
        "enabled": True, "maxReplicas": 2, "lagSecondsPerReplica": None, "triggerAuthentication": "prometheus",
        "metricLabels": {"cluster": "a", "namespace": "b"}}}},
    "external": {"workerDefaults": {"autoscaling": {"enabled": True, "type": "external", "maxReplicas": 3, "tools": ["a"]}}},
    "groups": {"workers": {"default": {"enabled": False}, "fast": {
        "replicas": 1, "poolSize": 5, "config": {"worker": {"slots": 10}, "tools": {"demo": True}},
        "resources": {"limits": {"memory": "2Gi"}}, "tolerations": [{"key": "a"}]},
        "slow": {"terminationGracePeriodSeconds": 120, "config": {"worker": {"drain_deadline": "1m 30s"}}, "poolSize": 4,
                 "image": {"repository": "registry.test/slow", "digest": "sha256:" + "0" * 64}}}},
    "no-workers": {"workers": {"default": None}},
    "tools": {"workerDefaults": {
        "toolsFile": (ROOT / "docs/examples/tools.toml").read_text(),
        "files": {p.name: p.read_text() for p in (ROOT / "docs/examples").iterdir() if p.suffix in (".py", ".sh")}}},
    "tools-map": {"workerDefaults": {"toolsFrom": {"existingConfigMap": "ext-tools"}}},
    "tools-secret": {"workers": {"default": {"toolsFrom": {"existingSecret": "ext-tools", "key": "mine.toml"}}}},
    "own-file-secret": {"configFile": {"existingSecret": "ext-config", "ports": []}, "config": {
        "auth": {"mode": "dev"}, "gateway": {"allowed_hosts": ["a", "b"], "limits": {"depth_max": 32}}, "traces": {"sample_ratio": 0.5}}},
    "own-file-map": {"configFile": {"existingConfigMap": "ext-config", "ports": []}, "config": {"auth": {"mode": "dev"}}},
    "own-file-tokens": {"configFile": {"existingSecret": "ext-config", "ports": [443, 9093]}, "config": {"auth": {"mode": "tokens"}},
                        "encryption": {"existingSecret": "ext-encryption"}, "ingress": {"enabled": True, "hosts": [{"host": "mcp.test"}]}},
    "own-file-csi": {"configFile": {"path": "/mnt/config/mcp-tasks.toml", "ports": [443]}, "config": {"auth": {"mode": "dev"}},
                     "extraVolumes": [{"name": "csi", "csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}}],
                     "extraVolumeMounts": [{"name": "csi", "mountPath": "/mnt", "readOnly": True}]},
    "settings": {"config": {
        "logs": {"filter": "info,gateway=debug", "format": "text"}, "gateway": {"instructions": 'Say "hello"\n\\o/ <b>&',
        "limits": {"body_bytes_max": 16777216}}, "traces": {"sample_ratio": 0.125, "endpoint": "http://collector.test:4318/v1/traces"},
        "alerts": {"receivers": [{"name": "log", "kind": "log"}, {"name": "am", "kind": "alertmanager", "url": "https://am.test"}]}},
        "cron": {"config": {"cron": {"batch": 100}}}},
    "long-drain": {"gateway": {"preStopSleepSeconds": 30, "config": {"gateway": {"drain_delay": "20s", "drain_deadline": "2m"}}}},
    "no-prestop": {"gateway": {"preStopSleepSeconds": 0}},
    "pods": {"podLabels": {"team": "a"}, "podAnnotations": {"b": "c"}, "commonLabels": {"d": "e"}, "commonAnnotations": {"f": "g"},
             "nodeSelector": {"n": "o"}, "tolerations": [{"key": "k", "operator": "Exists"}], "priorityClassName": "high",
             "runtimeClassName": "gvisor", "imagePullSecrets": [{"name": "pull"}], "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
             "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}, "extraEnv": [{"name": "RUST_BACKTRACE", "value": "1"}],
             "extraEnvFrom": [{"secretRef": {"name": "ext-env", "optional": True}}],
             "affinity": {"nodeAffinity": {}}, "topologySpreadConstraints": [
                 {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
    "containers": {"gateway": {"extraContainers": [{
        "name": "extra", "image": "busybox:1.37", "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "9Mi"}},
        "livenessProbe": {"exec": {"command": ["true"]}}, "readinessProbe": {"exec": {"command": ["true"]}}}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}], "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}]}},
    "digest": {"image": {"repository": "registry.test/mcp-tasks", "digest": "sha256:" + "a" * 64, "pullPolicy": "Always"}},
    "accounts": {"gateway": {"serviceAccount": {"create": False, "name": "ext-account"}},
                 "workerDefaults": {"serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn"}}}},
    "no-policies": {"networkPolicy": {"enabled": False}},
    "policies": {"networkPolicy": {
        "gatewayFrom": [{"namespaceSelector": {}}], "metricsFrom": [{"podSelector": {}}], "postgresTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "redisTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "postgresPorts": [6432], "extraEgress": [{"to": [{"podSelector": {}}]}]},
        "workerDefaults": {"networkPolicy": {"extraEgress": [{"ports": [{"port": 443, "protocol": "TCP"}]}]}}},
    "budgets": {"gateway": {"podDisruptionBudget": {"minAvailable": 1}}, "cron": {"podDisruptionBudget": {"enabled": False}},
                "workerDefaults": {"podDisruptionBudget": {"maxUnavailable": "50%"}}},
    "recreate": {"workerDefaults": {"strategy": {"type": "Recreate", "rollingUpdate": None}}},
    "init": {"migrate": {"mode": "init"}},
    "no-migration": {"migrate": {"mode": "none"}},
    "pod-monitor": {"podMonitor": {"enabled": True, "labels": {"release": "p"}, "metricRelabelings": [{"action": "labeldrop", "regex": "x"}]}},
    "service-monitor": {"serviceMonitor": {"enabled": True, "relabelings": [{"targetLabel": "cluster", "replacement": "a"}]}},
    "rules": {"prometheusRule": {"enabled": True, "alertLabels": {"team": "a"}, "disabled": ["McpTasksRestarts"]}},
    "dashboards": {"dashboards": {"enabled": True, "namespace": "monitoring"}},
    "tests-elsewhere": {"tests": {"url": "https://mcp.test/mcp", "existingSecret": "ext-tokens"}},
    "test-tokens": {"config": {"auth": {**TOKENS["auth"], "issuers": [{"issuer": "https://id.test:8443/"}]}}, "tests": {"existingSecret": "ext-tokens"},
                    "gateway": {"networkPolicy": {"extraEgress": [{"ports": [{"port": 7000, "protocol": "TCP"}]}]}}},
    "test-elsewhere": {"tests": {"url": "http://mcp-tasks-gateway:80/mcp"}, "gateway": {"service": {"port": 80}},
                       "networkPolicy": {"gatewayFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]}},
    "no-tests": {"tests": {"enabled": False}},
    "ipv6": {"listenAddress": "::", "gateway": {"service": {"ipFamilyPolicy": "SingleStack"}}},
    "names": {"nameOverride": "tasks", "fullnameOverride": "a-rather-long-name-that-has-to-be-cut-somewhere"},
    "keys-elsewhere": {"gateway": {"requestStateKeys": {"existingSecret": "ext-keys", "existingSecretKey": "all"}}},
    "no-keys": {"gateway": {"requestStateKeys": {"create": False}}},
    "extra": {"extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra-a", "namespace": "tasks"}},
                               "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: extra-{{ .Release.Name }}\n  namespace: tasks\n"]},
    "passwords": {"postgres": {"passwordFile": {"existingSecret": "ext-postgres"}}, "redis": {"passwordFile": {"existingSecret": "ext-redis"}}},
    "passwords-csi": {"postgres": {"passwordFile": {"path": "/mnt/csi/password"}},
                      "extraVolumes": [{"name": "csi", "csi": {"driver": "secrets-store.csi.k8s.io"}}],
                      "extraVolumeMounts": [{"name": "csi", "mountPath": "/mnt/csi"}]},
    "authorities": {"postgres": {"url": URLS["postgres"]["url"] + "?sslmode=verify-full", "ca": {"existingConfigMap": "ext-ca"}},
                    "redis": {"url": "rediss://redis.test:6380", "ca": {"existingSecret": "ext-ca"}}},
    "authority-only": {"postgres": {"ca": {"existingSecret": "ext-ca"}}},
    "trial": {"trial": {"postgres": {"enabled": True, "persistence": {"enabled": True, "storageClassName": "fast"}}, "redis": {"enabled": True}},
              "postgres": {"url": ""}, "redis": {"url": ""}},
    "secrets": {"postgres": {"url": "", "existingSecret": "ext-postgres", "existingSecretKey": "dsn"},
                "redis": {"url": "", "existingSecret": "ext-redis"}},
    # A user for each kind of process, and the owner of the tables for the migration alone.
    "roles": {"postgres": {"url": ""}, "migrate": {"roles": True, "postgres": {"existingSecret": "ext-owner"}},
              "gateway": {"postgres": {"existingSecret": "ext-gateway", "existingSecretKey": "dsn"}},
              "workerDefaults": {"postgres": {"url": "postgres://worker@postgres.test:6543/mcp_tasks",
                                              "passwordFile": {"existingSecret": "ext-worker", "key": "word"}}},
              "cron": {"postgres": {"url": f"postgres://cron:{rendering.PASSWORD}@postgres.test:5433/mcp_tasks"}}},
    "roles-passwords": {"postgres": {"passwordFile": {"existingSecret": "ext-postgres"}, "ca": {"existingSecret": "ext-ca"}},
                        "gateway": {"postgres": {"passwordFile": {"path": "/mnt/csi/password"}},
                                    "extraVolumes": [{"name": "csi", "csi": {"driver": "secrets-store.csi.k8s.io"}}],
                                    "extraVolumeMounts": [{"name": "csi", "mountPath": "/mnt/csi"}]},
                        "cron": {"postgres": {"existingSecret": "ext-cron"}}, "migrate": {"roles": True, "postgres": {
                            "url": f"postgres://owner:{rendering.PASSWORD}@postgres.test:5433/mcp_tasks"}}},
    "mirror": {"global": {"imageRegistry": "mirror.test:5000", "imagePullSecrets": [{"name": "pull"}]}, "clusterDomain": "mcp.test"},
    "trial-mirror": {"global": {"imageRegistry": "mirror.test:5000"}, "imagePullSecrets": [{"name": "pull"}], "postgres": {"url": ""}, "redis": {"url": ""},
                     "trial": {"postgres": {"enabled": True}, "redis": {"enabled": True}}},
    "migration": {"migrate": {
        "ttlSecondsAfterFinished": 600, "podAnnotations": {"sidecar.istio.io/inject": "false"}, "nodeSelector": {"pool": "jobs"},
        "tolerations": [{"key": "jobs"}], "extraEnv": [{"name": "RUST_BACKTRACE", "value": "1"}], "backoffLimit": 0,
        "serviceAccount": {"name": "ext-migrate", "annotations": {"eks.amazonaws.com/role-arn": "arn"}}}},
    "operators": {
        "minReadySeconds": 10, "progressDeadlineSeconds": 900, "dnsPolicy": "Default", "schedulerName": "bin-packing",
        "deploymentAnnotations": {"reloader.stakater.com/auto": "true"},
        "lifecycle": {"postStart": {"exec": {"command": ["/usr/local/bin/mcp-tasks", "--version"]}}},
        "gateway": {"minReadySeconds": 20, "podDisruptionBudget": {"unhealthyPodEvictionPolicy": "IfHealthyBudget"},
                    "service": {"labels": {"tier": "edge"}, "internalTrafficPolicy": "Local", "ipFamilies": ["IPv4"]}},
        "cron": {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}, "preStopSleepSeconds": 1},
        "networkPolicy": {"extraIngress": [{"ports": [{"port": "admin", "protocol": "TCP"}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
                          "dnsTo": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}}], "dnsPorts": [5353],
                          "tracesTo": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observability"}}}]},
        "config": {"traces": {"endpoint": "http://collector.observability.svc:4318/v1/traces"}}},
    "several-hosts": {"postgres": {"url": "postgres://u@a.test:5432,b.test:5433,c.test/mcp_tasks"}},
}
# These say things of groups of workers and of all pods, and so are not mixed with others.
ALONE = {
    # A digest is for one image; the example for high availability says to pin so.
    "digest-groups": {"image": {"repository": "registry.test/ours", "tag": "1", "digest": "sha256:" + "a" * 64}, "postgres": {"maxConnections": 500}, "workers": {
        "default": {}, "tag": {"image": {"tag": "2"}}, "other": {"image": {"repository": "registry.test/other"}},
        "pinned": {"image": {"repository": "registry.test/pinned", "digest": "sha256:" + "b" * 64}}, "same": {"image": {"repository": "registry.test/ours"}}}},
    # What a group says in its own way replaces what all groups have.
    "replaced": {
        "workerDefaults": {"postgres": {"url": f"postgres://w:{rendering.PASSWORD}@postgres.test:6543/mcp_tasks", "passwordFile": {"path": "/mnt/csi/password"}},
                           "toolsFile": "[[command]]\nname = \"a\"\ndescription = \"A.\"\nprogram = \"true\"\n", "podDisruptionBudget": {"minAvailable": 1}, "terminationGracePeriodSeconds": 90,
                           "autoscaling": {"enabled": True, "maxReplicas": 3}, "strategy": {"rollingUpdate": {"maxSurge": 2}},
                           "serviceAccount": {"name": "ext-account", "annotations": {"a": "b"}},
                           "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
        "extraVolumes": [{"name": "csi", "csi": {"driver": "secrets-store.csi.k8s.io"}}], "extraVolumeMounts": [{"name": "csi", "mountPath": "/mnt/csi"}],
        "cron": {"strategy": {"type": "Recreate"}, "serviceAccount": {"name": "ext-account", "annotations": {"c": "d"}}},
        "postgres": {"maxConnections": 1000},
        "workers": {"default": None, "a": {}, "b": {
            "postgres": {"existingSecret": "ext-worker", "passwordFile": {"existingSecret": "ext-worker", "key": "word"}},
            "toolsFrom": {"existingConfigMap": "ext-tools"}, "podDisruptionBudget": {"maxUnavailable": "50%"}, "terminationGracePeriodSeconds": None,
            "autoscaling": {"lagSecondsPerReplica": None}, "strategy": {"type": "Recreate", "rollingUpdate": None},
            "lifecycle": {"preStop": {"exec": {"command": ["/usr/local/bin/mcp-tasks", "--version"]}}}}, "c": {
            "postgres": {"passwordFile": {"existingSecret": "ext-worker", "key": "word"}}, "autoscaling": {"enabled": False}}}},
    "tools-replaced": {"workerDefaults": {"toolsFrom": {"existingSecret": "ext-tools"}}, "workers": {
        "default": {"toolsFrom": {"existingConfigMap": "ext-tools"}}, "own": {"toolsFile": "[[command]]\nname = \"a\"\ndescription = \"A.\"\nprogram = \"true\"\n"}}},
    "lag": {"workers": {"default": {"autoscaling": {"enabled": True, "maxReplicas": 2, "lagSecondsPerReplica": None}}}},
    "tls-alb": {"config": TOKENS, "gateway": {"tls": {"existingSecret": "ext-tls"}}, "ingress": {
        "enabled": True, "controller": "alb", "hosts": [{"host": "mcp.test"}]}},
    # Nothing here knows how that controller is told.
    "tls-other": {"config": TOKENS, "gateway": {"tls": {"existingSecret": "ext-tls"}}, "ingress": {"enabled": True, "hosts": [{"host": "mcp.test"}]}},
    "tls-no-policy": {"config": TOKENS, "gateway": {"tls": {"existingSecret": "ext-tls"}}, "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]}},
    "networks": {"config": {"gateway": {"trusted_proxies": ["10.0.0.1", "10.0.0.0/8", "fd00::/8", "::1", "192.168.255.0/32", "::ffff:10.0.0.0/104"]}}},
    "dsn": {"postgres": {"url": f"host=postgres.test user=u password={rendering.PASSWORD} dbname=mcp_tasks"}, "redis": {"url": "valkey://redis.test/3"}},
    "cluster-0": {"redis": {"url": "redis://a.test:6379,b.test:6379/0"}, "config": {"redis": {"cluster": True}}},
    "required": {"postgres": {"url": URLS["postgres"]["url"] + "?sslmode=require", "ca": {"existingSecret": "ext-ca"}}},
    "shares": {"gateway": {"replicas": 3, "podDisruptionBudget": {"minAvailable": "60%"}}},
}
# Of these only one at a time.
EXCLUDE = [
    {"jwt", "jwt-keys", "proxy"}, {"callbacks", "callbacks-keys"}, {"tokens", "tokens-further", "scopes", "callbacks", "tls", "tls-route", "tls-system", "test-tokens"}, {"pod-monitor", "service-monitor"}, {"keda", "keda-auth", "external"}, {"budgets", "hpa"},
    {"own-file-secret", "own-file-map", "own-file-csi", "own-file-tokens"}, {"tools", "tools-map", "tools-secret"}, {"trial", "trial-mirror", "secrets", "authorities", "authority-only", "several-hosts", "passwords", "passwords-csi", "roles", "roles-passwords"},
    {"encryption", "encryption-csi"}, *({"encryption-csi", n} for n in ("passwords-csi", "roles-passwords", "own-file-csi", "tokens-further", "containers")),
    {"init", "no-migration", "roles"}, {"init", "no-migration", "roles-passwords"}, {"own-file-csi", "roles-passwords"}, {"containers", "roles-passwords"},
    {"operators", "policies", "no-policies"}, {"operators", "load-balancer", "node-port", "ipv6"}, {"operators", "budgets"}, {"operators", "settings"},
    {"init", "no-migration"}, {"own-file-csi", "passwords-csi"}, {"ingress-nginx", "ingress-alb", "ingress-haproxy"},
    {"route", "route-retry"}, {"load-balancer", "node-port", "ipv6"}, {"keys-elsewhere", "no-keys"}, {"tests-elsewhere", "test-elsewhere", "test-tokens", "no-tests"}, {"test-tokens", "containers"},
    {"test-elsewhere", "policies", "no-policies"},
    {"long-drain", "no-prestop"}, {"groups", "no-workers"}, {"policies", "no-policies"},
    # Lists of tables cannot be in the environment.
    {"settings", "own-file-secret"}, {"settings", "own-file-map"}, {"settings", "own-file-csi"}, {"settings", "own-file-tokens"},
    # Keys are named in the file; such a proxy only stands before gateways that believe everybody.
    *({name, other} for name in ("encryption", "encryption-csi") for other in FEATURES if "configFile" in FEATURES[other]),
    *({"own-file-tokens", other} for other in FEATURES if "proxy" in FEATURES[other].get("gateway", {})),
    {"containers", "own-file-csi"}, {"proxy", "route"}, {"proxy", "route-retry"}, {"proxy", "ingress-nginx"}, {"proxy", "ingress-alb"},
    {"proxy", "ingress-haproxy"}, {"proxy", "load-balancer"}, {"proxy", "node-port"}, {"recreate", "groups"},
    # A proxy that checks tokens stands before gateways that believe everybody; lists of issuers cannot be in the environment.
    *({name, other} for name in ("tokens", "tokens-further", "scopes", "callbacks", "tls", "tls-route", "tls-system", "test-tokens") for other in FEATURES
      if "proxy" in FEATURES[other].get("gateway", {}) or "configFile" in FEATURES[other]),
]


def merged(*layers):
    out = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(out.get(key), dict)
            out[key] = merged(out[key], value) if both else value
    return out


def good():
    yield Case("default", values=URLS)
    # Two settings are enough.
    yield Case("--set", arguments=SET)
    yield Case("upgrade", values=URLS, arguments=("--is-upgrade",))
    for example in EXAMPLES:
        yield Case(example.stem, files=(example,))
        yield Case(f"{example.stem}, URLs given", files=(example,), arguments=SET)
    for name, values in FEATURES.items():
        yield Case(name, values=merged(URLS, values))
    for name, values in ALONE.items():
        yield Case(name, values=merged(URLS, values))
    # What pages show as values.
    for page in ("install-kubernetes.md", "alerts.md"):
        for number, shown in enumerate(re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)):
            if (values := yaml.safe_load(shown)).keys() <= yaml.safe_load((CHART / "values.yaml").read_text()).keys():
                yield Case(f"{page} {number}", values=merged(URLS, values))
    dice = random.Random(8)
    for number in range(60):
        names = [n for n in dice.sample(sorted(FEATURES), 14)]
        chosen = []
        for name in names:
            if not any({name, other} <= group for group in EXCLUDE for other in chosen):
                chosen.append(name)
        values = merged(URLS, {"postgres": {"maxConnections": 1000}}, *(FEATURES[n] for n in chosen))
        yield Case(f"mixture {number}: {' '.join(chosen)}", values=values)


# Values, and what must be in the error.
BAD = [
    ({}, ["postgres.url: say where Postgres is", "redis.url: say where Redis is"]),
    (merged(URLS, {"gateway": {"terminationGracePeriodSeconds": 20}}),
     ["gateway.terminationGracePeriodSeconds: 20 s is too short", "preStopSleepSeconds 5 s + config.gateway.drain_delay 5 s + config.gateway.drain_deadline 30 s + 5 s to spare = 45 s"]),
    (merged(URLS, {"workers": {"slow": {"terminationGracePeriodSeconds": 60, "config": {"worker": {"drain_deadline": "5m"}}}}, "config": {"traces": {"endpoint": "http://c:4318/v1/traces", "flush_timeout": "4s"}}}),
     ["workers.slow.terminationGracePeriodSeconds: 60 s is too short", "config.worker.drain_deadline 300 s + config.worker.stop_grace 5 s + config.traces.flush_timeout 4 s + 5 s to spare = 314 s"]),
    (merged(URLS, {"gateway": {"config": {"gateway": {"drain_delay": 5}}}}), ['gateway']),
    (merged(URLS, {"gateway": {"config": {"gateway": {"drain_delay": "5"}}}}), ['config.gateway.drain_delay: "5" is not a duration', '"30s"']),
    (merged(URLS, {"cron": {"config": {"postgres": {"statement_timeout": "5 fortnights"}}}}), ['config.postgres.statement_timeout', 'no unit "fortnights"']),
    (merged(URLS, {"gateway": {"replicas": 8}}),
     ["postgres.maxConnections: 100 is not enough for gateway (8 + 1 surging) × 10 = 90, cron (2 + 1 surging) × 4 = 12, worker-default (2 + 1 surging) × 8 = 24, postgres.reservedConnections = 10: 136 in all"]),
    (merged(URLS, {"gateway": {"autoscaling": {"enabled": True, "maxReplicas": 20}, "strategy": {"rollingUpdate": {"maxSurge": "25%"}}}}),
     ["gateway (20 + 5 surging) × 10 = 250"]),
    (merged(URLS, {"gateway": {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 3}}}), ["gateway.autoscaling: minReplicas (5) is more than maxReplicas (3)"]),
    (merged(URLS, {"gateway": {"autoscaling": {"enabled": True, "maxReplicas": 3, "targetCPUUtilizationPercentage": None}}}), ["gateway.autoscaling: there is nothing to scale by"]),
    (merged(URLS, {"ingress": {"enabled": True, "hosts": [{"host": "a"}]}}), ["ingress.enabled: config.auth.mode is", "loopback address only"]),
    (merged(URLS, {"gateway": {"service": {"type": "LoadBalancer"}}, "httpRoute": {"enabled": True, "parentRefs": [{"name": "a"}]}}), ["httpRoute.enabled, gateway.service.type=LoadBalancer: config.auth.mode"]),
    (merged(URLS, {"gateway": {"proxy": {"enabled": True}}}), ["gateway.proxy: it is enabled without"]),
    (merged(URLS, {"gateway": {"proxy": {"enabled": True, "jwt": {"issuer": "https://a/"}}}}), ["gateway.proxy.jwt: audience, existingSecret and keys"]),
    (merged(URLS, {"gateway": {"proxy": {"enabled": True, "jwt": {"issuer": "https://a/ \n  http-request allow"}}}}), ["gateway.proxy.jwt.issuer"]),
    (merged(URLS, {"gateway": JWT, "ingress": {"enabled": True}}), ["ingress.hosts: an Ingress needs a host"]),
    (merged(URLS, {"gateway": JWT, "httpRoute": {"enabled": True}}), ["httpRoute.parentRefs: name the Gateway"]),
    (merged(URLS, {"gateway": {"podDisruptionBudget": {"minAvailable": 2}}}), ["gateway.podDisruptionBudget: minAvailable (2) is not less than the number of pods (2)"]),
    (merged(URLS, {"cron": {"podDisruptionBudget": {"maxUnavailable": 0}}}), ["cron.podDisruptionBudget: maxUnavailable is 0"]),
    (merged(URLS, {"cron": {"podDisruptionBudget": {"maxUnavailable": None}}}), ["cron.podDisruptionBudget: it says neither"]),
    (merged(URLS, {"workers": {"default": {"strategy": {"rollingUpdate": {"maxSurge": 0}}}}}), ["workers.default.strategy: maxSurge and maxUnavailable are both 0"]),
    (merged(URLS, {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}), ["both would count everything twice"]),
    (merged(URLS, {"prometheusRule": {"disabled": ["NoSuchAlert"]}}), ['prometheusRule.disabled: there is no alert "NoSuchAlert"']),
    (merged(URLS, {"migrate": {"mode": "hook"}, "postgres": {"url": ""}, "trial": {"postgres": {"enabled": True}}}), ["migrate.mode: a hook runs before the chart's own Postgres is there"]),
    (merged(URLS, {"redis": {"url": "redis://a:1,b:2"}}), ["redis.url: only a Redis Cluster has several addresses"]),
    (merged(URLS, {"config": {"postgres": {"pool_size": 5}, "gateway": {"bind": "0.0.0.0:3000"}}, "cron": {"config": {"redis": {"url": "redis://a"}}}}),
     ["config.postgres.pool_size: the chart sets it: use gateway.poolSize", "config.gateway.bind: the chart sets it", "cron.config.redis.url: the chart sets it"]),
    (merged(URLS, {"config": {"alerts": {"receivers": [{"name": "hook", "kind": "webhook", "url": "https://a", "secret": "whsec_x"}]}}}), ['the secret of "hook" would be readable in a ConfigMap: name a file']),
    (merged(URLS, {"config": {"alerts": {"receivers": [{"name": "hook", "kind": "webhook", "url_file": "/a", "secret_file": "/b"}]}}}),
     ['config.alerts.receivers: the chart cannot read where "hook" is', "cron.networkPolicy.extraEgress"]),
    (merged(URLS, FEATURES["own-file-secret"], {"config": {"alerts": {"receivers": [{"name": "a", "kind": "log"}]}}}), ["alerts.receivers cannot be an environment variable"]),
    (merged(URLS, FEATURES["own-file-secret"], {"config": {"auth": {"implied_scopes": {"a:b": ["c"]}}}}),
     ["auth.implied_scopes.a:b cannot be an environment variable"]),
    (merged(URLS, {"workerDefaults": {"files": {"a": "x" * 1000000}}}), ["workers.default: its files are", "a ConfigMap holds 1000000 at most"]),
    (merged(URLS, {"config": {"alerts": {"receivers": [{"name": "am", "kind": "alertmanager", "url": f"http://u:{rendering.PASSWORD}@am.test:9093"}]}},
                   "gateway": {"config": {"traces": {"endpoint": f"http://u:{rendering.PASSWORD}@otel.test:4318/v1/traces"}}}}),
     ["config.alerts.receivers: a password in a URL would be readable", "gateway.config.traces.endpoint: a password in a URL", "write [traces] into a settings file"]),
    (merged(URLS, FEATURES["callbacks"], {"config": {"callbacks": {"public_url": "https://mcp.test/tasks"}}, "ingress": {"enabled": True, "hosts": [{"host": "mcp.test"}]}}),
     ["config.callbacks.public_url: it has a path, and an Ingress without paths of yours, the HTTPRoute leads to gateways at /callbacks only"]),
    (merged(URLS, {"gateway": {**JWT, "service": {"type": "LoadBalancer"}}}), ["gateway.service.type=LoadBalancer: with config.auth.mode", "config.gateway.allowed_hosts"]),
    (merged(URLS, {"gateway": JWT, "httpRoute": {"enabled": True, "parentRefs": [{"name": "a"}]}}), ["httpRoute without hostnames: with config.auth.mode", "host not allowed"]),
    (merged(URLS, {"workerDefaults": {"autoscaling": {"enabled": True, "maxReplicas": 2, "prometheusAddress": "http://u:p@prometheus.test:9090"}}}),
     ["workers.default.autoscaling.prometheusAddress: a password in a URL", "use triggerAuthentication"]),
    # A settings file that the chart cannot read.
    (merged(URLS, {"configFile": {"existingSecret": "ext-config"}}), ["configFile: the chart cannot read it", "say config.auth.mode", "configFile.ports: the chart cannot read the file"]),
    (merged(URLS, FEATURES["own-file-secret"], {"ingress": {"enabled": True, "hosts": [{"host": "a"}]}}), ["ingress.enabled: config.auth.mode is", "loopback address only"]),
    (merged(URLS, FEATURES["own-file-tokens"], {"encryption": {"keys": [{"id": "a"}]}}), ["encryption.keys: with configFile they are named in the file"]),
    (merged(URLS, FEATURES["own-file-tokens"], {"gateway": {"terminationGracePeriodSeconds": 20}}), ["gateway.terminationGracePeriodSeconds: 20 s is too short", "config.traces.flush_timeout 3 s"]),
    (merged(URLS, FEATURES["own-file-tokens"], {"configFile": {"ports": ["https"]}}), ["configFile.ports.0"]),
    (merged(URLS, {"redis": {"ca": {"existingSecret": "ext-ca"}}}), ["redis.ca: redis.url is not encrypted"]),
    (merged(URLS, {"workers": {"default": {"toolsFile": "[[command]]", "toolsFrom": {"existingSecret": "ext-tools"}}}}),
     ["workers.default: its tools file is said more than once"]),
    (merged(URLS, {"config": {"auth": {"mode": "tokens", "resource": "https://mcp.test/mcp"}}}), ["config.auth: mode is", "nobody could call"]),
    (merged(URLS, {"config": TOKENS, "gateway": JWT}), ["gateway.proxy.jwt: config.auth.mode is not", "choose one"]),
    (merged(URLS, {"gateway": {**JWT, "tls": {"existingSecret": "ext-tls"}}}), ["gateway.tls: gateway.proxy speaks to the gateway beside it"]),
    (merged(URLS, {"config": {"callbacks": {"keys": ["a"]}}, "workerDefaults": {"config": {"callbacks": {"public_url": "https://a"}}}}),
     ["config.callbacks.keys: the chart sets it: use callbackKeys", "workerDefaults.config.callbacks.public_url: gateways and workers need the same"]),
    (merged(URLS, FEATURES["roles"], {"migrate": {"mode": "init", "roles": False}}),
     ["gateway.postgres, cron.postgres, workers.default.postgres: with migrate.mode", "only the owner of the tables may"]),
    (merged(URLS, {"migrate": {"mode": "none", "roles": True}}), ["migrate.roles: only the Job of migrate.mode", "run `mcp-tasks migrate --roles` yourself"]),
    (merged(URLS, {"postgres": {"url": ""}, "gateway": {"postgres": {"existingSecret": "ext-gateway"}}}),
     ["postgres.url: say where Postgres is (cron, worker-default, migrate: nothing says it)"]),
    (merged(URLS, {"httpRoute": {"backendTLS": {"hostname": "a"}}}), ["httpRoute.backendTLS: gateways do not encrypt"]),
    (merged(URLS, {"encryption": {"keys": [{"id": "a"}]}}), ["encryption.keys: say where they are"]),
    (merged(URLS, {"encryption": {"existingSecret": "ext-encryption"}}), ["there are no encryption.keys, so that nothing would be sealed"]),
    (merged(URLS, {"config": {"encryption": {"keys": [{"id": "a", "key": "b"}]}}}), ["config.encryption.keys: the chart sets it"]),
    # A digest of another image, and one where none belongs.
    (merged(URLS, {"image": {"digest": "sha256:" + "a" * 64}, "workers": {"b": {"image": {"repository": "registry.test/b"}}}}),
     ['workers.b.image: "registry.test/b" is another image, which the digest of the general one is not for: say its own digest, or a tag']),
    (merged(URLS, {"image": {"repository": "registry.test:5000/x/y:1.2"}, "migrate": {"image": {"repository": "x/y@sha256:1"}}}),
     ['image.repository: "registry.test:5000/x/y:1.2" has a tag or a digest in it: write them into image.tag', 'migrate.image.repository: "x/y@sha256:1" has']),
    (merged(URLS, {"migrate": {"serviceAccount": {"name": "a"}}, "cron": {"serviceAccount": {"name": "a"}}}),
     ['migrate.serviceAccount.name: "a" is the account of cron, too, and that of the migration is deleted after it']),
    # Names that are there twice.
    (merged(URLS, {"extraVolumes": [{"name": "tmp", "emptyDir": {}}], "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}),
     ['gateway.extraVolumes: "tmp" is there twice', 'migrate.extraVolumes: "tmp" is there twice', 'cron.extraVolumeMounts: "/tmp" is there twice']),
    (merged(URLS, {"gateway": {**JWT, "extraVolumes": [{"name": "proxy", "emptyDir": {}}], "extraContainers": [{"name": "proxy", "image": "a"}]}}),
     ['gateway.extraVolumes: "proxy" is there twice', 'gateway.extraContainers, initContainers: "proxy" is there twice']),
    (merged(URLS, {"gateway": {"proxy": {**JWT["proxy"], "port": 9100}}}), ["gateway.proxy.port: 9100 is a port of the gateway beside it"]),
    (merged(URLS, {"encryption": {"existingSecret": "ext-encryption", "keys": [{"id": "a", "key": "b"}, {"id": "a"}]}}), ['encryption.keys: the id "a" is there twice']),
    # Addresses that are none.
    (merged(URLS, {"postgres": {"url": "pg:5432/mcp"}, "cron": {"postgres": {"url": "mysql://a"}}, "redis": {"url": "redis:6379"}}),
     ["postgres.url: it is no URL of Postgres", "cron.postgres.url: it is no URL of Postgres", "redis.url: it is no address of Redis"]),
    (merged(URLS, {"redis": {"url": "redis+sentinel://a:26379/mymaster"}}), ["redis.url: Sentinel is not supported"]),
    (merged(URLS, {"redis": {"url": "redis://a:6379/3"}, "config": {"redis": {"cluster": True}}}), ["redis.url: a Redis Cluster has no database but 0"]),
    (merged(URLS, {"postgres": {"url": "postgres://a/b?sslmode=disable", "ca": {"existingSecret": "ext-ca"}}, "migrate": {"postgres": {"url": "postgres://o@a/b?sslmode=prefer"}}}),
     ["postgres.url: postgres.ca names an authority, but with this sslmode", "migrate.postgres.url: postgres.ca names"]),
    # Keys that are nowhere.
    (merged(URLS, {"config": {"callbacks": {"public_url": "https://a"}}, "callbackKeys": {"create": False}}), ["callbackKeys: config.callbacks.public_url needs a key that signs"]),
    # Pods that are none, or must all stay.
    (merged(URLS, {"cron": {"replicas": 0}}), ["cron.replicas: without a cron no lost job comes back"]),
    (merged(URLS, {"workerDefaults": {"autoscaling": {"enabled": True, "minReplicas": 0}}}), ["workerDefaults.autoscaling.minReplicas"]),
    (merged(URLS, {"workers": {"b": {"autoscaling": {"minReplicas": 0}}}}), ["workers.b.autoscaling.minReplicas"]),
    (merged(URLS, {"gateway": {"podDisruptionBudget": {"minAvailable": "100%"}}, "cron": {"podDisruptionBudget": {"minAvailable": "51%"}}}),
     ["gateway.podDisruptionBudget: minAvailable (100%, of 2 pods: 2) is not less than", "cron.podDisruptionBudget: minAvailable (51%, of 2 pods: 2)"]),
    # Settings that every binary refuses.
    (merged(URLS, {"config": {"auth": {"mode": "tokens", "resource": "https://a", "issuers": [{"issuer": "https://a", "tenantclaim": "x"}]}}}), ["config.auth.issuers.0", "tenantclaim"]),
    (merged(URLS, {"config": {"alerts": {"receivers": [{"name": "a", "kid": "log"}]}}}), ["config.alerts.receivers.0", "kid"]),
    (merged(URLS, {"config": {"logs": {"format": "jsn"}}}), ["config.logs.format"]),
    (merged(URLS, {"config": {"auth": {"mode": "token"}}}), ["config.auth.mode"]),
    (merged(URLS, {"config": {"auth": {"mode": "tokens", "issuers": [{"issuer": "https://a"}]}}}), ["config.auth.resource: access tokens are for somebody"]),
    (merged(URLS, {"config": {"auth": {"issuers": [{"issuer": "https://a"}]}}}), ["config.auth.mode: missing"]),
    (merged(URLS, {"config": {"auth": {"api_keys_file": "/keys.toml"}}}), ["config.auth.mode: missing"]),
    (merged(URLS, {"config": {"auth": {"resource": "https://a/mcp", "issuers": [{"issuer": "https://a"}]}}, "gateway": {"config": {"auth": {"mode": "tokens"}}}}), ["config.auth.mode: missing for worker"]),
    (merged(URLS, {"config": {"gateway": {"trusted_proxies": ["10.0.0.0/33", "10.0.0.256", "ingress", "fd00::/129"]}}}),
     [f'config.gateway.trusted_proxies: "{n}" is no address' for n in ("10.0.0.0/33", "10.0.0.256", "ingress", "fd00::/129")]),
    (merged(URLS, {"gateway": {"config": {"gateway": {"trusted_proxies": ["0.0.0.0/0", "::/0"]}}}}),
     [f'config.gateway.trusted_proxies: "{n}" is everybody' for n in ("0.0.0.0/0", "::/0")]),
    # Settings that all processes need alike.
    (merged(URLS, {"workers": {"default": {"config": {"redis": {"shards": 12, "key_prefix": "other"}, "postgres": {"lease": "30s"}}}},
                   "cron": {"config": {"redis": {"cluster": True}}}, "gateway": {"config": {"postgres": {"lease": "1m"}}}}),
     ["workers.default.config.redis.shards: all processes need the same: set config.redis.shards", "workers.default.config.redis.key_prefix", "workers.default.config.postgres.lease",
      "cron.config.redis.cluster", "gateway.config.postgres.lease"]),
    # Typos.
    (merged(URLS, {"fullnameOverride": "My_Tasks"}), ["fullnameOverride"]),
    (merged(URLS, {"encryption": {"existingSecret": "a", "keys": [{"name": "b"}]}}), ["encryption.keys.0"]),
    (merged(URLS, {"migrate": {"extraContainers": [{}]}}), ["Additional property extraContainers is not allowed"]),
    (merged(URLS, {"gateway": {"postgres": {"uri": "a"}}}), ["Additional property uri is not allowed"]),
    (merged(URLS, {"global": {"imageRegistry": 5}}), ["global.imageRegistry"]),
    (merged(URLS, {"gateway": {"replica": 3}}), ["Additional property replica is not allowed"]),
    (merged(URLS, {"postgres2": {"url": "a"}}), ["Additional property postgres2 is not allowed"]),
    (merged(URLS, {"workers": {"fast": {"resource": {}}}}), ["Additional property resource is not allowed"]),
    (merged(URLS, {"workers": {"Fast_One": {}}}), ["Fast_One"]),
    (merged(URLS, {"config": {"gateway": {"drain_deadlin": "5s"}}}), ["Additional property drain_deadlin is not allowed"]),
    (merged(URLS, {"config": {"gateways": {}}}), ["Additional property gateways is not allowed"]),
    (merged(URLS, {"gateway": {"replicas": "two"}}), ["gateway.replicas"]),
    (merged(URLS, {"image": {"digest": "abc"}}), ["image.digest"]),
]


def bad():
    for number, (values, wanted) in enumerate(BAD):
        yield Case(f"bad {number}", values=values), wanted
    yield Case("old Kubernetes", values=URLS, arguments=("--kube-version", "1.29.0")), ["kubeVersion"]
