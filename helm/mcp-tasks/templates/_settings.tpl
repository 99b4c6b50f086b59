{{/* Settings of mcp-tasks: what a component's processes read, as TOML or as environment variables. */}}

{{/* Whether a settings file of the user's own is read instead of the chart's ConfigMaps. */}}
{{- define "mcp-tasks.ownFile" -}}
{{- with .Values.configFile -}}
{{- if or .existingSecret .existingConfigMap .path -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* `host:port`, with brackets where the host needs them: (list host port). */}}
{{- define "mcp-tasks.address" -}}
{{- $host := index . 0 -}}
{{- printf (ternary "[%s]:%d" "%s:%d" (contains ":" $host)) $host (index . 1 | int) -}}
{{- end -}}

{{/* What came after the first chart may be missing: `helm upgrade --reuse-values` knows the defaults of the
     chart before only. */}}
{{- define "mcp-tasks.callbackKeys" -}}
{{- mergeOverwrite (dict "create" true "existingSecret" "" "existingSecretKey" "keys") (default dict .Values.callbackKeys) | toJson -}}
{{- end -}}
{{- define "mcp-tasks.tls" -}}
{{- mergeOverwrite (dict "existingSecret" "" "certificateKey" "tls.crt" "privateKeyKey" "tls.key") (default dict .Values.gateway.tls) | toJson -}}
{{- end -}}

{{- define "mcp-tasks.encryption" -}}
{{- mergeOverwrite (dict "keys" list "existingSecret" "" "path" "") (default dict .Values.encryption) | toJson -}}
{{- end -}}

{{/* Ports of what a settings file of the user's own names, as `{ports: […]}`; `{}`: nobody says. */}}
{{- define "mcp-tasks.filePorts" -}}
{{- $ports := (default dict .Values.configFile).ports -}}
{{- if kindIs "invalid" $ports -}}{}{{- else -}}{{- dict "ports" $ports | toJson -}}{{- end -}}
{{- end -}}

{{/* Where services call back, if they do. */}}
{{- define "mcp-tasks.callbacks" -}}
{{- dig "callbacks" "public_url" "" .Values.config -}}
{{- end -}}

{{/* Whether a component's tools file is in a ConfigMap or a Secret of the user's own. */}}
{{- define "mcp-tasks.toolsFrom" -}}
{{- with .values.toolsFrom -}}
{{- if or .existingConfigMap .existingSecret -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* Development authentication believes every caller, so that such a gateway listens on loopback only. */}}
{{- define "mcp-tasks.loopback" -}}
{{- $config := include "mcp-tasks.layers" (list .Values.config .Values.gateway.config) | fromJson -}}
{{- if eq (dig "auth" "mode" "dev" $config) "dev" -}}yes{{- end -}}
{{- end -}}

{{/* Host names under which a gateway behind its proxy is called. */}}
{{- define "mcp-tasks.hosts" -}}
{{- $service := printf "%s-gateway" (include "mcp-tasks.fullname" .) -}}
{{- $namespace := .Release.Namespace -}}
{{- $out := list -}}
{{- range $name := list $service (printf "%s.%s" $service $namespace) (printf "%s.%s.svc" $service $namespace) (printf "%s.%s.svc.%s" $service $namespace (default "cluster.local" .Values.clusterDomain)) -}}
{{- $out = concat $out (list $name (printf "%s:%d" $name (int $.Values.gateway.service.port))) -}}
{{- end -}}
{{- if .Values.ingress.enabled -}}
{{- range .Values.ingress.hosts -}}{{- $out = append $out .host -}}{{- end -}}
{{- end -}}
{{- if .Values.httpRoute.enabled -}}{{- $out = concat $out .Values.httpRoute.hostnames -}}{{- end -}}
{{- uniq $out | toJson -}}
{{- end -}}

{{/* (list root component): all settings of a component. */}}
{{- define "mcp-tasks.settings" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := $root.Values -}}
{{- $chart := dict
  "admin" (dict "listen" (include "mcp-tasks.address" (list $values.listenAddress 9100)))
  "postgres" (dict "pool_size" $component.values.poolSize)
  "redis" dict -}}
{{- if eq $component.role "gateway" -}}
{{- $host := ternary "127.0.0.1" $values.listenAddress (eq (include "mcp-tasks.loopback" $root) "yes") -}}
{{- $gateway := dict "bind" (include "mcp-tasks.address" (list $host 3000)) -}}
{{- if and (eq $host "127.0.0.1") $values.gateway.proxy.enabled -}}
{{- $_ := set $gateway "allowed_hosts" (include "mcp-tasks.hosts" $root | fromJsonArray) -}}
{{- end -}}
{{- with include "mcp-tasks.tls" $root | fromJson -}}
{{- if .existingSecret -}}
{{- $_ := set $gateway "tls" (dict "certificate_file" (printf "/etc/mcp-tasks/tls/%s" .certificateKey) "key_file" (printf "/etc/mcp-tasks/tls/%s" .privateKeyKey)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $chart "gateway" $gateway -}}
{{- end -}}
{{- with include "mcp-tasks.encryption" $root | fromJson -}}
{{- $keys := list -}}
{{- $folder := default "/etc/mcp-tasks/encryption" .path -}}
{{- range $key := .keys -}}
{{- $keys = append $keys (dict "id" $key.id "key_file" (printf "%s/%s" $folder (default $key.id $key.key))) -}}
{{- end -}}
{{- /* A settings file of the user's own names them itself: see mcp-tasks.check. */ -}}
{{- if and $keys (not (include "mcp-tasks.ownFile" $root)) -}}{{- $_ := set $chart "encryption" (dict "keys" $keys) -}}{{- end -}}
{{- end -}}
{{- if $component.values.toolsFile -}}
{{- $_ := set $chart "tools" (dict "file" "/etc/mcp-tasks/files/tools.toml") -}}
{{- else if include "mcp-tasks.toolsFrom" $component -}}
{{- $_ := set $chart "tools" (dict "file" (printf "/etc/mcp-tasks/tools/%s" $component.values.toolsFrom.key)) -}}
{{- end -}}
{{- range $kind := list "postgres" "redis" -}}
{{- $own := include "mcp-tasks.server" (list $root $kind $component) | fromJson -}}
{{- if $own.passwordFile.path -}}
{{- $_ := set (get $chart $kind) "password_file" $own.passwordFile.path -}}
{{- else if $own.passwordFile.existingSecret -}}
{{- $_ := set (get $chart $kind) "password_file" (printf "/etc/mcp-tasks/%s/password/%s" $kind $own.passwordFile.key) -}}
{{- end -}}
{{- if or $own.ca.existingSecret $own.ca.existingConfigMap -}}
{{- $_ := set (get $chart $kind) "ca_file" (printf "/etc/mcp-tasks/%s/ca/%s" $kind $own.ca.key) -}}
{{- end -}}
{{- end -}}
{{- $settings := mergeOverwrite (deepCopy $chart) (deepCopy $values.config) (deepCopy $component.values.config) -}}
{{- /* Names of the user's are further ones. */ -}}
{{- with dig "gateway" "allowed_hosts" list $chart -}}
{{- $_ := set $settings.gateway "allowed_hosts" (concat . (default list $settings.gateway.allowed_hosts) | uniq) -}}
{{- end -}}
{{- if include "mcp-tasks.ownFile" $root -}}
{{- /* Pods are killed by what the values say, so that the file must not say anything else. */ -}}
{{- range $time := (include "mcp-tasks.times" $component.role | fromJson).times -}}
{{- $settings = merge $settings (dict (index $time 0) (dict (index $time 1) (index $time 2))) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $component.role "gateway") $values.gateway.proxy.enabled -}}
{{- /* All requests come from the proxy beside it, which tells whose they are. */ -}}
{{- $proxies := concat (default list $settings.gateway.trusted_proxies) (list "127.0.0.1" "::1") | uniq -}}
{{- $_ := set $settings "gateway" (merge (dict "trusted_proxies" $proxies) $settings.gateway) -}}
{{- end -}}
{{- toJson $settings -}}
{{- end -}}

{{/* (list root component): its settings file. */}}
{{- define "mcp-tasks.toml" -}}
{{- $settings := include "mcp-tasks.settings" . | fromJson -}}
{{- include "mcp-tasks.toml.table" (list "" $settings) | trim -}}
{{- end -}}

{{/* (list prefix table): the same as environment variables, `{name: value}`. */}}
{{- define "mcp-tasks.env.table" -}}
{{- $prefix := index . 0 -}}
{{- $out := dict -}}
{{- range $key, $value := index . 1 -}}
{{- $name := printf "%s__%s" $prefix (upper $key) -}}
{{- if not (regexMatch "^[a-z0-9_]+$" $key) -}}
{{- fail (printf "config: %s cannot be an environment variable; write it into your settings file (configFile)" (printf "%s.%s" $prefix $key | lower | replace "__" "." | trimPrefix "mcp_tasks.")) -}}
{{- end -}}
{{- if kindIs "map" $value -}}
{{- $out = mergeOverwrite $out (include "mcp-tasks.env.table" (list $name $value) | fromJson) -}}
{{- else if kindIs "slice" $value -}}
{{- range $value -}}
{{- if or (kindIs "map" .) (kindIs "slice" .) -}}
{{- fail (printf "config: %s cannot be an environment variable; write it into your settings file (configFile)" ($name | lower | replace "__" "." | trimPrefix "mcp_tasks.")) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $out $name (join "," $value) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $out $name (ternary ($value | toString) (include "mcp-tasks.toml.value" $value) (kindIs "string" $value)) -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* (list root component asEnvironment): environment variables of a container of ours. */}}
{{- define "mcp-tasks.env" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $ownFile := include "mcp-tasks.ownFile" $root -}}
{{- if $ownFile }}
- name: MCP_TASKS_CONFIG
  value: {{ default (printf "/etc/mcp-tasks/config/%s" $root.Values.configFile.key) $root.Values.configFile.path }}
{{- else if not (index . 2) }}
- name: MCP_TASKS_CONFIG
  value: /etc/mcp-tasks/config/mcp-tasks.toml
{{- end }}
{{- if or $ownFile (index . 2) }}
{{- $settings := include "mcp-tasks.settings" (list $root $component) | fromJson }}
{{- if index . 2 }}
{{- /* With a file of the user's own, what would make it contradict itself. */}}
{{- $settings = ternary (pick $settings "postgres" "logs" "auth") (pick $settings "postgres" "logs") (eq $ownFile "yes") }}
{{- end }}
{{- range $name, $value := include "mcp-tasks.env.table" (list "MCP_TASKS" $settings) | fromJson }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- range $kind := list "postgres" "redis" }}
{{- $store := include "mcp-tasks.store" (list $root $kind $component) | fromJson }}
{{- if $store.secret }}
- name: MCP_TASKS__{{ upper $kind }}__URL
  valueFrom:
    secretKeyRef:
      name: {{ $store.secret }}
      key: {{ $store.key }}
{{- end }}
{{- end }}
{{- if eq $component.role "gateway" }}
{{- $keys := $root.Values.gateway.requestStateKeys }}
{{- if or $keys.existingSecret $keys.create }}
- name: MCP_TASKS__GATEWAY__REQUEST_STATE_KEYS
  valueFrom:
    secretKeyRef:
      name: {{ default (printf "%s-request-state" (include "mcp-tasks.fullname" $root)) $keys.existingSecret }}
      key: {{ ternary $keys.existingSecretKey "keys" (ne $keys.existingSecret "") }}
{{- end }}
{{- end }}
{{- if and (ne $component.role "migrate") (include "mcp-tasks.callbacks" $root) }}
{{- $keys := include "mcp-tasks.callbackKeys" $root | fromJson }}
{{- if or $keys.existingSecret $keys.create }}
- name: MCP_TASKS__CALLBACKS__KEYS
  valueFrom:
    secretKeyRef:
      name: {{ default (printf "%s-callbacks" (include "mcp-tasks.fullname" $root)) $keys.existingSecret }}
      key: {{ ternary $keys.existingSecretKey "keys" (ne $keys.existingSecret "") }}
{{- end }}
{{- end }}
{{- with $component.values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (list root component asEnvironment): volumes with settings and secrets. */}}
{{- define "mcp-tasks.volumes" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- with $root.Values.configFile }}
{{- if .path }}
{{- else if .existingSecret }}
- name: config
  secret: {secretName: {{ .existingSecret }}, defaultMode: 0440}
{{- else if .existingConfigMap }}
- name: config
  configMap: {name: {{ .existingConfigMap }}}
{{- else if not (index $ 2) }}
{{ include "mcp-tasks.carriedVolume" (list $root $component "config" "0444") }}
{{- end }}
{{- end }}
{{- range $kind := list "postgres" "redis" }}
{{- $own := include "mcp-tasks.server" (list $root $kind $component) | fromJson }}
{{- if and $own.passwordFile.existingSecret (not $own.passwordFile.path) }}
- name: {{ $kind }}-password
  secret: {secretName: {{ $own.passwordFile.existingSecret }}, defaultMode: 0440}
{{- end }}
{{- if $own.ca.existingSecret }}
- name: {{ $kind }}-ca
  secret: {secretName: {{ $own.ca.existingSecret }}, defaultMode: 0440}
{{- else if $own.ca.existingConfigMap }}
- name: {{ $kind }}-ca
  configMap: {name: {{ $own.ca.existingConfigMap }}}
{{- end }}
{{- end }}
{{- $tls := include "mcp-tasks.tls" $root | fromJson }}
{{- if and (eq $component.role "gateway") $tls.existingSecret }}
- name: tls
  secret: {secretName: {{ $tls.existingSecret }}, defaultMode: 0440}
{{- end }}
{{- $encryption := (include "mcp-tasks.encryption" $root | fromJson).existingSecret }}
{{- if and $encryption (or (ne $component.role "migrate") (include "mcp-tasks.ownFile" $root)) }}
- name: encryption
  secret: {secretName: {{ $encryption }}, defaultMode: 0440}
{{- end }}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- if and $component.values.files (not (index . 2)) }}
{{ include "mcp-tasks.carriedVolume" (list $root $component "files" "0555") }}
{{- end }}
{{- if include "mcp-tasks.toolsFrom" $component }}
- name: tools
  {{- with $component.values.toolsFrom }}
  {{- if .existingConfigMap }}
  configMap: {name: {{ .existingConfigMap }}, defaultMode: 0555}
  {{- else }}
  secret: {secretName: {{ .existingSecret }}, defaultMode: 0550}
  {{- end }}
  {{- end }}
{{- end }}
{{- with $component.values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (list root component asEnvironment): where a container of ours sees them. */}}
{{- define "mcp-tasks.volumeMounts" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $ownFile := include "mcp-tasks.ownFile" $root -}}
{{- if and (or $ownFile (not (index . 2))) (not $root.Values.configFile.path) }}
- {name: config, mountPath: /etc/mcp-tasks/config, readOnly: true}
{{- end }}
{{- range $kind := list "postgres" "redis" }}
{{- $own := include "mcp-tasks.server" (list $root $kind $component) | fromJson }}
{{- if and $own.passwordFile.existingSecret (not $own.passwordFile.path) }}
- {name: {{ $kind }}-password, mountPath: /etc/mcp-tasks/{{ $kind }}/password, readOnly: true}
{{- end }}
{{- if or $own.ca.existingSecret $own.ca.existingConfigMap }}
- {name: {{ $kind }}-ca, mountPath: /etc/mcp-tasks/{{ $kind }}/ca, readOnly: true}
{{- end }}
{{- end }}
{{- if and (eq $component.role "gateway") (include "mcp-tasks.tls" $root | fromJson).existingSecret }}
- {name: tls, mountPath: /etc/mcp-tasks/tls, readOnly: true}
{{- end }}
{{- /* A migration needs no keys, but reads the whole of a settings file. */}}
{{- if and (include "mcp-tasks.encryption" $root | fromJson).existingSecret (or (ne $component.role "migrate") $ownFile) }}
- {name: encryption, mountPath: /etc/mcp-tasks/encryption, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- if and $component.values.files (not (index . 2)) }}
- {name: files, mountPath: /etc/mcp-tasks/files, readOnly: true}
{{- end }}
{{- if include "mcp-tasks.toolsFrom" $component }}
- {name: tools, mountPath: /etc/mcp-tasks/tools, readOnly: true}
{{- end }}
{{- with $component.values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
