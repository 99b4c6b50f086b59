{{/* What cannot work in single values: names that are there twice, addresses that are none, settings that all binaries
     refuse or that all processes must share. A list of sentences, as JSON. */}}
{{- define "mcp-tasks.refusals" -}}
{{- $root := . -}}
{{- $problems := list -}}
{{- $ownFile := include "mcp-tasks.ownFile" . -}}
{{- $hook := eq (include "mcp-tasks.migrateMode" .) "hook" -}}
{{- $components := (include "mcp-tasks.components" . | fromJson).components -}}
{{- $processes := $components -}}
{{- if $hook -}}
{{- $values := include "mcp-tasks.layers" (list (include "mcp-tasks.podDefaults" . | fromJson) .Values.migrate) | fromJson -}}
{{- $processes = append $components (dict "name" "migrate" "fullname" (printf "%s-migrate" (include "mcp-tasks.fullname" .)) "role" "migrate" "values" $values) -}}
{{- end -}}
{{- $digests := concat (list .Values.image.digest) (list (dig "image" "digest" "" .Values.workerDefaults)) | compact -}}
{{- $accounts := dict -}}
{{- range $component := $components -}}
{{- if $component.values.serviceAccount.create -}}{{- $_ := set $accounts (include "mcp-tasks.serviceAccountName" (list $root $component)) $component.name -}}{{- end -}}
{{- end -}}

{{- range $component := $processes -}}
{{- $values := $component.values -}}
{{- $place := ternary (printf "workers.%s" (toString $component.group)) $component.role (eq $component.role "worker") -}}

{{/* Images. */}}
{{- $image := $values.image -}}
{{- $where := ternary "image" (printf "%s.image" $place) (eq $image.repository $root.Values.image.repository) -}}
{{- if regexMatch "@|:[^/]*$" $image.repository -}}
{{- $problems = append $problems (printf "%s.repository: %q has a tag or a digest in it: write them into %s.tag or %s.digest" $where $image.repository $where $where) -}}
{{- else if and $digests (not $image.digest) (not $image.tag) (ne $where "image") -}}
{{- $problems = append $problems (printf "%s: %q is another image, which the digest of the general one is not for: say its own digest, or a tag" $where $image.repository) -}}
{{- end -}}

{{/* Names that a pod can have once. */}}
{{- $migration := eq $component.role "migrate" -}}
{{- $volumes := list -}}
{{- range include "mcp-tasks.volumes" (list $root $component $migration) | fromYamlArray -}}{{- $volumes = append $volumes .name -}}{{- end -}}
{{- $paths := list -}}
{{- range include "mcp-tasks.volumeMounts" (list $root $component $migration) | fromYamlArray -}}{{- $paths = append $paths .mountPath -}}{{- end -}}
{{- $names := list $component.role -}}
{{- if eq (include "mcp-tasks.migrateMode" $root) "init" -}}{{- $names = append $names "migrate" -}}{{- end -}}
{{- if eq $component.role "gateway" -}}
{{- if $root.Values.gateway.proxy.enabled -}}
{{- $volumes = concat $volumes (list "proxy" "proxy-tmp" "proxy-keys") -}}
{{- $names = append $names "proxy" -}}
{{- end -}}
{{- if $root.Values.tests.enabled -}}{{- $volumes = append $volumes "lesson" -}}{{- end -}}
{{- end -}}
{{- if not $migration -}}
{{- range concat (default list $values.initContainers) (default list $values.extraContainers) -}}{{- $names = append $names .name -}}{{- end -}}
{{- end -}}
{{- range $what, $all := dict "extraVolumes" $volumes "extraVolumeMounts" $paths "extraContainers, initContainers" $names -}}
{{- $seen := list -}}
{{- range $all -}}
{{- if has . $seen -}}
{{- $problems = append $problems (printf "%s.%s: %q is there twice; the chart's own are %s" $place $what (toString .) (get (dict
  "extraVolumes" "config, tmp, files, tools, tls, encryption, lesson, proxy, proxy-tmp, proxy-keys, and postgres-… and redis-…"
  "extraVolumeMounts" "/tmp, and those in /etc/mcp-tasks"
  "extraContainers, initContainers" "gateway, worker, cron, migrate and proxy") $what)) -}}
{{- end -}}
{{- $seen = append $seen . -}}
{{- end -}}
{{- end -}}

{{/* Accounts: that of the migration is made before all others, and deleted after it. */}}
{{- if $migration -}}
{{- $account := include "mcp-tasks.serviceAccountName" (list $root (dict "fullname" $component.fullname "values" (dict "serviceAccount" (merge (default dict (deepCopy (default dict $values.serviceAccount))) (dict "create" true "name" ""))))) -}}
{{- if and (dig "create" true (default dict $values.serviceAccount)) (hasKey $accounts $account) -}}
{{- $problems = append $problems (printf "migrate.serviceAccount.name: %q is the account of %s, too, and that of the migration is deleted after it: choose another name, or set migrate.serviceAccount.create to false" $account (get $accounts $account)) -}}
{{- end -}}
{{- end -}}

{{/* Where Postgres is. */}}
{{- $server := include "mcp-tasks.server" (list $root "postgres" $component) | fromJson -}}
{{- $store := include "mcp-tasks.store" (list $root "postgres" $component) | fromJson -}}
{{- $own := ternary "postgres" (printf "%s.postgres" $place) (eq $server.key "postgres") -}}
{{- if $server.url -}}
{{- if not (regexMatch "^(postgres(ql)?://|[a-z_]+ *=)" $server.url) -}}
{{- $problems = append $problems (printf "%s.url: it is no URL of Postgres: write postgres://user:password@host:5432/database" $own) -}}
{{- else if and (or $server.ca.existingSecret $server.ca.existingConfigMap) (not (regexMatch "sslmode=(require|verify-ca|verify-full)" $store.url)) -}}
{{- $problems = append $problems (printf "%s.url: postgres.ca names an authority, but with this sslmode nobody would be asked for a certificate: leave sslmode out, or write sslmode=verify-full" $own) -}}
{{- end -}}
{{- end -}}

{{/* Pods that must stay. Shares are rounded up. */}}
{{- with $values.podDisruptionBudget -}}
{{- if and .enabled (not (kindIs "invalid" .minAvailable)) (hasSuffix "%" (toString .minAvailable)) -}}
{{- $least := int64 $values.replicas -}}
{{- if dig "autoscaling" "enabled" false $values -}}{{- $least = int64 $values.autoscaling.minReplicas -}}{{- end -}}
{{- $stay := ceil (divf (mulf (trimSuffix "%" .minAvailable | float64) (float64 $least)) 100.0) | int64 -}}
{{- if and (gt $least 0) (ge $stay $least) -}}
{{- $problems = append $problems (printf "%s.podDisruptionBudget: minAvailable (%s, of %d pods: %d) is not less than the number of pods, so that no node could ever be drained" $place .minAvailable $least $stay) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if lt (int .Values.cron.replicas) 1 -}}
{{- $problems = append $problems "cron.replicas: without a cron no lost job comes back, nothing expires and nothing is counted: at least 1" -}}
{{- end -}}
{{- with .Values.gateway.proxy -}}
{{- if and .enabled (has (int .port) (list 3000 9100)) -}}
{{- $problems = append $problems (printf "gateway.proxy.port: %d is a port of the gateway beside it: choose another" (int .port)) -}}
{{- end -}}
{{- end -}}

{{/* Where Redis is. */}}
{{- with .Values.redis.url -}}
{{- if contains "sentinel" (regexFind "^[^:/]*" .) -}}
{{- $problems = append $problems "redis.url: Sentinel is not supported: name one address that leads to the primary" -}}
{{- else if not (regexMatch "^(rediss?|valkeys?|unix|redis\\+unix|valkey\\+unix)://" .) -}}
{{- $problems = append $problems "redis.url: it is no address of Redis: write redis://user:password@host:6379, or rediss://…" -}}
{{- else if and (dig "redis" "cluster" false $root.Values.config) (regexMatch "^[a-z]+://[^/?]*/0*[1-9]" .) -}}
{{- $problems = append $problems "redis.url: a Redis Cluster has no database but 0: leave it out" -}}
{{- end -}}
{{- end -}}

{{/* Keys. */}}
{{- $callbackKeys := include "mcp-tasks.callbackKeys" . | fromJson -}}
{{- if and (include "mcp-tasks.callbacks" .) (not $callbackKeys.create) (not $callbackKeys.existingSecret) (not $ownFile) (not .Values.extraEnv) (not .Values.extraEnvFrom) -}}
{{- $problems = append $problems "callbackKeys: config.callbacks.public_url needs a key that signs: set callbackKeys.create to true, or callbackKeys.existingSecret" -}}
{{- end -}}
{{- $ids := list -}}
{{- range (include "mcp-tasks.encryption" . | fromJson).keys -}}
{{- if has .id $ids -}}{{- $problems = append $problems (printf "encryption.keys: the id %q is there twice" .id) -}}{{- end -}}
{{- $ids = append $ids .id -}}
{{- end -}}

{{/* Settings of gateways. */}}
{{- $settings := include "mcp-tasks.settings" (list . (first $components)) | fromJson -}}
{{- if and (not (include "mcp-tasks.loopback" .)) (not $ownFile) (not (dig "auth" "resource" "" $settings)) -}}
{{- $problems = append $problems "config.auth.resource: access tokens are for somebody: name this server's endpoint as clients see it, as https://mcp.example.com/mcp" -}}
{{- end -}}
{{- range $component := $components -}}
{{- $auth := dig "auth" dict (include "mcp-tasks.settings" (list $ $component) | fromJson) -}}
{{- if and (not $auth.mode) (or $auth.issuers $auth.api_keys_file) -}}
{{- $problems = append $problems (printf "config.auth.mode: missing for %s: issuers or API keys are set, and only \"tokens\" asks them; \"dev\" believes every caller" $component.name) -}}
{{- end -}}
{{- end -}}
{{- range dig "gateway" "trusted_proxies" list $settings | default list -}}
{{- $octet := "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])" -}}
{{- if not (or (regexMatch (printf "^(%s\\.){3}%s(/(3[0-2]|[12]?[0-9]))?$" $octet $octet) (toString .)) (regexMatch "^[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?$" (toString .))) -}}
{{- $problems = append $problems (printf "config.gateway.trusted_proxies: %q is no address and no network like 10.0.0.0/8" (toString .)) -}}
{{- else if hasSuffix "/0" (toString .) -}}
{{- $problems = append $problems (printf "config.gateway.trusted_proxies: %q is everybody: name the proxies" (toString .)) -}}
{{- end -}}
{{- end -}}

{{/* Settings that all processes share. */}}
{{- $places := dict "gateway" .Values.gateway.config "workerDefaults" .Values.workerDefaults.config "cron" .Values.cron.config -}}
{{- range $group, $own := .Values.workers -}}{{- $_ := set $places (printf "workers.%s" $group) (default dict $own).config -}}{{- end -}}
{{- range $place, $config := $places -}}
{{- range $setting := list "postgres.lease" "redis.cluster" "redis.key_prefix" "redis.shards" -}}
{{- $at := splitList "." $setting -}}
{{- if hasKey (default dict (get (default dict $config) (first $at))) (last $at) -}}
{{- $problems = append $problems (printf "%s.config.%s: all processes need the same: set config.%s" $place $setting $setting) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- uniq $problems | toJson -}}
{{- end -}}
