{{/* What cannot work fails here, all of it at once, with a sentence each. */}}
{{- define "mcp-tasks.check" -}}
{{- $problems := list -}}
{{- $root := . -}}
{{- $ownFile := include "mcp-tasks.ownFile" . -}}

{{- $components := (include "mcp-tasks.components" . | fromJson).components -}}
{{- $hook := eq (include "mcp-tasks.migrateMode" .) "hook" -}}
{{- $migrate := dict "name" "migrate" "role" "migrate" "values" .Values.migrate -}}
{{- range $kind := list "postgres" "redis" -}}
{{- $lost := list -}}
{{- range $component := ternary (append $components $migrate) $components (and $hook (eq $kind "postgres")) -}}
{{- if not (include "mcp-tasks.store" (list $root $kind $component) | fromJson).secret -}}{{- $lost = append $lost $component.name -}}{{- end -}}
{{- end -}}
{{- if and $lost (not $ownFile) -}}
{{- $problems = append $problems (printf "%s.url: say where %s is (%s: nothing says it), by %s.url, %s.existingSecret or configFile; for a trial, trial.%s.enabled=true brings one" $kind (title $kind) (join ", " $lost) $kind $kind $kind) -}}
{{- end -}}
{{- end -}}

{{/* Users of their own in Postgres. */}}
{{- $narrow := list -}}
{{- range $component := $components -}}
{{- if ne (include "mcp-tasks.server" (list $root "postgres" $component)) (include "mcp-tasks.server" (list $root "postgres")) -}}
{{- $narrow = append $narrow (ternary (printf "workers.%s.postgres" (toString $component.group)) (printf "%s.postgres" $component.role) (eq $component.role "worker")) -}}
{{- end -}}
{{- end -}}
{{- $mode := include "mcp-tasks.migrateMode" . -}}
{{- if and $narrow (eq $mode "init") -}}
{{- $problems = append $problems (printf "%s: with migrate.mode \"init\" every process migrates, which only the owner of the tables may: use \"hook\" or \"none\"" (join ", " $narrow)) -}}
{{- end -}}
{{- if and .Values.migrate.roles (not $hook) -}}
{{- $problems = append $problems (printf "migrate.roles: only the Job of migrate.mode \"hook\" gives roles their rights, and it is %q: run `mcp-tasks migrate --roles` yourself" $mode) -}}
{{- end -}}
{{- with .Values.httpRoute -}}
{{- if and (dig "backendTLS" "hostname" "" .) (not (include "mcp-tasks.tls" $root | fromJson).existingSecret) -}}
{{- $problems = append $problems "httpRoute.backendTLS: gateways do not encrypt: set gateway.tls.existingSecret" -}}
{{- end -}}
{{- end -}}
{{- $hosts := toString .Values.redis.url | regexFind "://[^/?]*" | regexFind "[^@]*$" -}}
{{- if and (contains "," $hosts) (not (dig "redis" "cluster" false .Values.config)) -}}
{{- $problems = append $problems "redis.url: only a Redis Cluster has several addresses: set config.redis.cluster to true; without one, name one address that leads to the primary (Sentinel is not supported)" -}}
{{- end -}}

{{- if and .Values.redis.url (or .Values.redis.ca.existingSecret .Values.redis.ca.existingConfigMap) (not (hasPrefix "rediss://" .Values.redis.url)) -}}
{{- $problems = append $problems "redis.ca: redis.url is not encrypted, so that nobody would be asked for a certificate: write rediss://…" -}}
{{- end -}}

{{/* Settings that the chart derives, and secrets that whoever sees ConfigMaps could read. */}}
{{- $owned := dict
  "postgres.url" "use postgres.url or postgres.existingSecret"
  "postgres.pool_size" "use gateway.poolSize, workerDefaults.poolSize, workers.<group>.poolSize and cron.poolSize, which the sum of connections counts"
  "postgres.password_file" "use postgres.passwordFile"
  "postgres.ca_file" "use postgres.ca"
  "redis.url" "use redis.url or redis.existingSecret"
  "redis.password_file" "use redis.passwordFile"
  "redis.ca_file" "use redis.ca"
  "gateway.bind" "use listenAddress; a gateway that believes every caller (auth.mode) listens on loopback only"
  "gateway.request_state_keys" "use gateway.requestStateKeys"
  "callbacks.keys" "use callbackKeys"
  "gateway.tls" "use gateway.tls"
  "encryption.keys" "use encryption.keys, and a Secret or a folder with them"
  "admin.listen" "use listenAddress" -}}
{{- $configs := dict "config" .Values.config "gateway.config" .Values.gateway.config "workerDefaults.config" .Values.workerDefaults.config "cron.config" .Values.cron.config -}}
{{- range $group, $own := .Values.workers -}}
{{- with $own -}}{{- $_ := set $configs (printf "workers.%s.config" $group) (default dict .config) -}}{{- end -}}
{{- end -}}
{{- range $place, $config := $configs -}}
{{- range $setting, $instead := $owned -}}
{{- $at := splitList "." $setting -}}
{{- if hasKey (default dict (get $config (index $at 0))) (index $at 1) -}}
{{- $problems = append $problems (printf "%s.%s: the chart sets it: %s" $place $setting $instead) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $place "config") (dig "callbacks" "public_url" "" $config) -}}
{{- $problems = append $problems (printf "%s.callbacks.public_url: gateways and workers need the same: set config.callbacks.public_url" $place) -}}
{{- end -}}
{{- range $section, $table := $config -}}
{{- range $setting, $value := $table -}}
{{- if regexMatch "://[^/?#@\"\\s]+@" (toJson $value) -}}
{{- $problems = append $problems (printf "%s.%s.%s: a password in a URL would be readable in a ConfigMap: write [%s] into a settings file of your own (configFile.existingSecret)" $place $section $setting $section) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $receiver := dig "alerts" "receivers" list $config -}}
{{- if $receiver.secret -}}
{{- $problems = append $problems (printf "%s.alerts.receivers: the secret of %q would be readable in a ConfigMap: name a file that cron.extraVolumes bring (secret_file)" $place (toString $receiver.name)) -}}
{{- end -}}
{{- $out := or (dig "networkPolicy" "extraEgress" list $root.Values.cron) $root.Values.networkPolicy.extraEgress -}}
{{- if and $receiver.url_file $root.Values.networkPolicy.enabled (has $place (list "config" "cron.config")) (not $out) -}}
{{- $problems = append $problems (printf "%s.alerts.receivers: the chart cannot read where %q is (url_file), and its network policies let nothing out that they do not know: allow its port by cron.networkPolicy.extraEgress" $place (toString $receiver.name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- range $component := $components -}}
{{- $place := ternary (printf "workers.%s" (toString $component.group)) $component.role (eq $component.role "worker") -}}
{{- $values := $component.values -}}

{{- with $values.toolsFrom -}}
{{- if gt (len (compact (list $values.toolsFile .existingConfigMap .existingSecret))) 1 -}}
{{- $problems = append $problems (printf "%s: its tools file is said more than once: choose one of toolsFile, toolsFrom.existingConfigMap and toolsFrom.existingSecret" $place) -}}
{{- end -}}
{{- end -}}

{{/* What a ConfigMap holds. */}}
{{- range $volume, $files := include "mcp-tasks.carried" (list $root $component) | fromJson -}}
{{- $bytes := len (toJson $files) -}}
{{- if gt $bytes 1000000 -}}
{{- $problems = append $problems (printf "%s: its %s are %d bytes, and a ConfigMap holds 1000000 at most: bring them by toolsFrom, by extraVolumes or in the image" $place $volume $bytes) -}}
{{- end -}}
{{- end -}}

{{/* Time to end. */}}
{{- $ending := include "mcp-tasks.ending" (list $root $component) | fromJson -}}
{{- $grace := $values.terminationGracePeriodSeconds -}}
{{- if and (not (kindIs "invalid" $grace)) (lt (int64 $grace) (int64 $ending.seconds)) -}}
{{- $problems = append $problems (printf "%s.terminationGracePeriodSeconds: %d s is too short, pods would be killed while they end: %s = %d s" $place (int64 $grace) $ending.why (int64 $ending.seconds)) -}}
{{- end -}}

{{/* Rolling updates and drains that can go on. */}}
{{- $rolling := dig "rollingUpdate" dict $values.strategy -}}
{{- if and (ne (dig "type" "RollingUpdate" $values.strategy) "Recreate") (has (dig "maxSurge" "25%" $rolling | toString) (list "0" "0%")) (has (dig "maxUnavailable" "25%" $rolling | toString) (list "0" "0%")) -}}
{{- $problems = append $problems (printf "%s.strategy: maxSurge and maxUnavailable are both 0, so that a rolling update could never begin" $place) -}}
{{- end -}}
{{- $least := int64 $values.replicas -}}
{{- with $values.autoscaling -}}
{{- if .enabled -}}
{{- $least = int64 .minReplicas -}}
{{- if regexMatch "://[^/?#]+@" (dig "prometheusAddress" "" . | toString) -}}
{{- $problems = append $problems (printf "%s.autoscaling.prometheusAddress: a password in a URL would be readable by whoever sees the ScaledObject: use triggerAuthentication" $place) -}}
{{- end -}}
{{- if gt (int64 .minReplicas) (int64 .maxReplicas) -}}
{{- $problems = append $problems (printf "%s.autoscaling: minReplicas (%d) is more than maxReplicas (%d)" $place (int64 .minReplicas) (int64 .maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $values.podDisruptionBudget -}}
{{- if and .enabled (not (kindIs "invalid" .minAvailable)) (not (hasSuffix "%" (toString .minAvailable))) (ge (int64 .minAvailable) $least) -}}
{{- $problems = append $problems (printf "%s.podDisruptionBudget: minAvailable (%v) is not less than the number of pods (%d), so that no node could ever be drained" $place .minAvailable $least) -}}
{{- else if and .enabled (kindIs "invalid" .minAvailable) (kindIs "invalid" .maxUnavailable) -}}
{{- $problems = append $problems (printf "%s.podDisruptionBudget: it says neither maxUnavailable nor minAvailable" $place) -}}
{{- else if and .enabled (kindIs "invalid" .minAvailable) (has (toString .maxUnavailable) (list "0" "0%")) -}}
{{- $problems = append $problems (printf "%s.podDisruptionBudget: maxUnavailable is 0, so that no node could ever be drained" $place) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- with .Values.gateway.autoscaling -}}
{{- if and .enabled (not .targetCPUUtilizationPercentage) (not .targetRequestsInFlight) (not .metrics) -}}
{{- $problems = append $problems "gateway.autoscaling: there is nothing to scale by: set targetCPUUtilizationPercentage, targetRequestsInFlight or metrics" -}}
{{- end -}}
{{- end -}}

{{/* Connections to Postgres. */}}
{{- $sum := 0 -}}
{{- $parts := list -}}
{{- range $component := $components -}}
{{- $pods := include "mcp-tasks.pods" (list $root $component) | fromJson -}}
{{- $pool := int64 $component.values.poolSize -}}
{{- $all := mul (add (int64 $pods.replicas) (int64 $pods.surge)) $pool -}}
{{- $sum = add $sum $all -}}
{{- $parts = append $parts (printf "%s (%d + %d surging) × %d = %d" $component.name (int64 $pods.replicas) (int64 $pods.surge) $pool $all) -}}
{{- end -}}
{{- $reserve := int64 .Values.postgres.reservedConnections -}}
{{- $sum = add $sum $reserve -}}
{{- $max := int64 .Values.postgres.maxConnections -}}
{{- if gt $sum $max -}}
{{- $problems = append $problems (printf "postgres.maxConnections: %d is not enough for %s, postgres.reservedConnections = %d: %d in all; raise max_connections of the server and say so here, or lower replicas, maxReplicas, maxSurge or poolSize" $max (join ", " $parts) $reserve $sum) -}}
{{- end -}}

{{/* A settings file of the user's own is a closed book. */}}
{{- if $ownFile -}}
{{- if not (dig "auth" "mode" "" (include "mcp-tasks.layers" (list .Values.config .Values.gateway.config) | fromJson)) -}}
{{- $problems = append $problems "configFile: the chart cannot read it, and has to know whether gateways check who is calling (and serve the Service) or believe everybody (and listen on loopback only): say config.auth.mode, \"tokens\" or \"dev\", here; all else of [auth] stays in the file" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not (hasKey (include "mcp-tasks.filePorts" . | fromJson) "ports")) -}}
{{- $problems = append $problems "configFile.ports: the chart cannot read the file, and its network policies let nothing out that they do not know: list the ports of issuers of tokens, receivers of alerts and the collector of traces that it names, e.g. [443]; [] if there are none" -}}
{{- end -}}
{{- if (include "mcp-tasks.encryption" . | fromJson).keys -}}
{{- $problems = append $problems "encryption.keys: with configFile they are named in the file, or nothing would be sealed: `[encryption] keys = [{id = …, key_file = \"/etc/mcp-tasks/encryption/…\"}]`; leave encryption.keys empty, encryption.existingSecret brings the files" -}}
{{- end -}}
{{- end -}}

{{/* Keys that are nowhere. */}}
{{- with include "mcp-tasks.encryption" . | fromJson -}}
{{- if and .keys (eq (empty .existingSecret) (empty .path)) -}}
{{- $problems = append $problems "encryption.keys: say where they are: either encryption.existingSecret or encryption.path" -}}
{{- end -}}
{{- if and (not .keys) (or .existingSecret .path) (not $ownFile) -}}
{{- $problems = append $problems "encryption: there are no encryption.keys, so that nothing would be sealed: name them, the one that seals first" -}}
{{- end -}}
{{- end -}}

{{/* Ways in that would lead nowhere. */}}
{{- if and (include "mcp-tasks.loopback" .) (not .Values.gateway.proxy.enabled) -}}
{{- $ways := list -}}
{{- if .Values.ingress.enabled -}}{{- $ways = append $ways "ingress.enabled" -}}{{- end -}}
{{- if .Values.httpRoute.enabled -}}{{- $ways = append $ways "httpRoute.enabled" -}}{{- end -}}
{{- if ne .Values.gateway.service.type "ClusterIP" -}}{{- $ways = append $ways (printf "gateway.service.type=%s" .Values.gateway.service.type) -}}{{- end -}}
{{- if $ways -}}
{{- $problems = append $problems (printf "%s: config.auth.mode is \"dev\", which believes every caller, so that gateways listen on their pods' loopback address only and nothing outside reaches them: set config.auth.mode to \"tokens\" and say who issues them (docs/authentication.md), or let a proxy in their pods check who is calling (gateway.proxy.enabled)" (join ", " $ways)) -}}
{{- end -}}
{{- end -}}
{{- if and (include "mcp-tasks.loopback" .) .Values.gateway.proxy.enabled (not (dig "gateway" "allowed_hosts" list (mergeOverwrite (deepCopy .Values.config) (deepCopy .Values.gateway.config)))) -}}
{{- $unnamed := list -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.hostnames) -}}{{- $unnamed = append $unnamed "httpRoute without hostnames" -}}{{- end -}}
{{- if and (ne .Values.gateway.service.type "ClusterIP") (not (or .Values.ingress.enabled .Values.httpRoute.enabled)) -}}{{- $unnamed = append $unnamed (printf "gateway.service.type=%s" .Values.gateway.service.type) -}}{{- end -}}
{{- if $unnamed -}}
{{- $problems = append $problems (printf "%s: with config.auth.mode \"dev\" gateways serve names that they know only (against DNS rebinding), and answer 403 \"host not allowed\" to all others: list the names that callers use in config.gateway.allowed_hosts" (join ", " $unnamed)) -}}
{{- end -}}
{{- end -}}
{{- with .Values.gateway.proxy -}}
{{- if and .enabled (not .jwt.issuer) (not .files) (not .args) (not .env) -}}
{{- $problems = append $problems "gateway.proxy: it is enabled without jwt.issuer, files, args or env, so that it does not know what to do" -}}
{{- end -}}
{{- if and .enabled .jwt.issuer (not (and .jwt.audience .jwt.existingSecret .jwt.keys)) -}}
{{- $problems = append $problems "gateway.proxy.jwt: audience, existingSecret and keys must be there too, or tokens for others, or signed by others, would be let in" -}}
{{- end -}}
{{- end -}}
{{- if and (include "mcp-tasks.tls" . | fromJson).existingSecret .Values.gateway.proxy.enabled -}}
{{- $problems = append $problems "gateway.tls: gateway.proxy speaks to the gateway beside it, in plain text: let the proxy encrypt, or take no proxy" -}}
{{- end -}}
{{- if and .Values.gateway.proxy.jwt.issuer (not (include "mcp-tasks.loopback" .)) -}}
{{- $problems = append $problems "gateway.proxy.jwt: config.auth.mode is not \"dev\", so that gateways check tokens by themselves and would refuse the names that this proxy passes on: choose one" -}}
{{- end -}}
{{- if and (not (include "mcp-tasks.loopback" .)) (not $ownFile) -}}
{{- $auth := dig "auth" dict (mergeOverwrite (deepCopy .Values.config) (deepCopy .Values.gateway.config)) -}}
{{- if and (not $auth.issuers) (not $auth.api_keys_file) -}}
{{- $problems = append $problems "config.auth: mode is \"tokens\", but there are neither issuers nor an api_keys_file, so that nobody could call" -}}
{{- end -}}
{{- end -}}
{{- if (include "mcp-tasks.callbacks" . | urlParse).path | trimSuffix "/" -}}
{{- $ways := list -}}
{{- $default := false -}}
{{- range .Values.ingress.hosts -}}{{- if not .paths -}}{{- $default = true -}}{{- end -}}{{- end -}}
{{- if and .Values.ingress.enabled $default -}}{{- $ways = append $ways "an Ingress without paths of yours" -}}{{- end -}}
{{- if .Values.httpRoute.enabled -}}{{- $ways = append $ways "the HTTPRoute" -}}{{- end -}}
{{- if $ways -}}
{{- $problems = append $problems (printf "config.callbacks.public_url: it has a path, and %s leads to gateways at /callbacks only, where they answer: leave the path out" (join ", " $ways)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- $problems = append $problems "ingress.hosts: an Ingress needs a host" -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- $problems = append $problems "httpRoute.parentRefs: name the Gateway that serves it" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}
{{- $problems = append $problems "podMonitor.enabled, serviceMonitor.enabled: both would count everything twice: choose one" -}}
{{- end -}}
{{- range .Values.prometheusRule.disabled -}}
{{- if not (contains (printf "alert: %s\n" .) ($root.Files.Get "files/prometheus-rules.yaml")) -}}
{{- $problems = append $problems (printf "prometheusRule.disabled: there is no alert %q" .) -}}
{{- end -}}
{{- end -}}
{{- if and (eq (include "mcp-tasks.migrateMode" .) "hook") (include "mcp-tasks.store" (list . "postgres") | fromJson).bundled -}}
{{- $problems = append $problems "migrate.mode: a hook runs before the chart's own Postgres is there: use \"init\"" -}}
{{- end -}}

{{- $problems = concat $problems (include "mcp-tasks.refusals" . | fromJsonArray) -}}
{{- if $problems -}}
{{- fail (printf "\n\nThese values do not work:\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end -}}
