{{/* Pods. */}}

{{- define "mcp-tasks.migrateMode" -}}
{{- $store := include "mcp-tasks.store" (list . "postgres") | fromJson -}}
{{- default (ternary "init" "hook" $store.bundled) .Values.migrate.mode -}}
{{- end -}}

{{/* A role: the times that its end may take, `{times: [[section, setting, default] …]}`; the last one where there are
     traces. */}}
{{- define "mcp-tasks.times" -}}
{{- $flush := list "traces" "flush_timeout" "3s" -}}
{{- $times := get (dict
  "gateway" (list (list "gateway" "drain_delay" "5s") (list "gateway" "drain_deadline" "10s") $flush)
  "worker" (list (list "worker" "drain_deadline" "10s") (list "worker" "stop_grace" "5s") $flush)
  "cron" (list (list "postgres" "statement_timeout" "5s") $flush)) . -}}
{{- dict "times" (default list $times) | toJson -}}
{{- end -}}

{{/* (list root component): how long the pod may take to end, as `{seconds, why}`. */}}
{{- define "mcp-tasks.ending" -}}
{{- $settings := include "mcp-tasks.settings" . | fromJson -}}
{{- $component := index . 1 -}}
{{- $role := $component.role -}}
{{- $parts := (include "mcp-tasks.times" $role | fromJson).times -}}
{{- if not (or (dig "traces" "endpoint" "" $settings) (include "mcp-tasks.ownFile" (index . 0))) -}}
{{- $parts = initial $parts -}}
{{- end -}}
{{- $sum := $component.values.preStopSleepSeconds | int64 -}}
{{- $why := list (printf "preStopSleepSeconds %d s" $sum) -}}
{{- range $part := $parts -}}
{{- $section := index $part 0 -}}
{{- $setting := index $part 1 -}}
{{- $name := printf "config.%s.%s" $section $setting -}}
{{- $seconds := include "mcp-tasks.seconds" (list $name (dig $section $setting (index $part 2) $settings)) | int64 -}}
{{- $sum = add $sum $seconds -}}
{{- $why = append $why (printf "%s %d s" $name $seconds) -}}
{{- end -}}
{{- $why = append $why "5 s to spare" -}}
{{- dict "seconds" (add $sum 5) "why" (join " + " $why) | toJson -}}
{{- end -}}

{{/* (list root component): the number of pods, the largest there may be: `{replicas, surge}`. */}}
{{- define "mcp-tasks.pods" -}}
{{- $values := (index . 1).values -}}
{{- $replicas := $values.replicas | int64 -}}
{{- with $values.autoscaling -}}
{{- if .enabled -}}{{- $replicas = .maxReplicas | int64 -}}{{- end -}}
{{- end -}}
{{- $surge := 0 -}}
{{- if ne (dig "type" "RollingUpdate" $values.strategy) "Recreate" -}}
{{- $max := dig "rollingUpdate" "maxSurge" "25%" $values.strategy | toString -}}
{{- if hasSuffix "%" $max -}}
{{- $surge = ceil (divf (mulf (float64 $replicas) (trimSuffix "%" $max | float64)) 100.0) | int64 -}}
{{- else -}}
{{- $surge = $max | float64 | int64 -}}
{{- end -}}
{{- end -}}
{{- dict "replicas" $replicas "surge" $surge | toJson -}}
{{- end -}}

{{/* What keeps a pod from being told to end before others know that it will. */}}
{{- define "mcp-tasks.preStop" -}}
{{- $out := dict -}}
{{- if and .preStopSleepSeconds (not (dig "preStop" dict (default dict .lifecycle))) -}}
{{- $_ := set $out "preStop" (dict "sleep" (dict "seconds" (int64 .preStopSleepSeconds))) -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* (list path own): a probe of the admin port. */}}
{{- define "mcp-tasks.probe" -}}
{{- $path := index . 0 -}}
{{- mergeOverwrite (dict "httpGet" (dict "path" $path "port" "admin")) (deepCopy (index . 1)) | toYaml -}}
{{- end -}}

{{/* (list root component): what pods are scheduled by and run as. */}}
{{- define "mcp-tasks.podCommon" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := $component.values -}}
serviceAccountName: {{ include "mcp-tasks.serviceAccountName" (list $root $component) }}
automountServiceAccountToken: {{ $values.serviceAccount.automountServiceAccountToken }}
enableServiceLinks: false
securityContext:
  {{- toYaml $values.podSecurityContext | nindent 2 }}
{{- range $key := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" "schedulerName" "hostAliases" "dnsPolicy" "dnsConfig" }}
{{- with get $values $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* (list root component): the template of its pods. */}}
{{- define "mcp-tasks.podTemplate" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := $component.values -}}
{{- $proxy := and (eq $component.role "gateway") $root.Values.gateway.proxy.enabled -}}
{{- $checksums := dict "checksum/config" (include "mcp-tasks.settings" . | sha256sum) -}}
{{- $urls := list (include "mcp-tasks.store" (list $root "postgres" $component)) (include "mcp-tasks.store" (list $root "redis")) -}}
{{- $_ := set $checksums "checksum/urls" (join "\n" $urls | sha256sum) -}}
{{- $checksums = mergeOverwrite $checksums (include "mcp-tasks.carriedChecksums" (list $root $component) | fromJson) -}}
metadata:
  labels:
    {{- include "mcp-tasks.podLabels" (list $root $component.name $values.podLabels) | nindent 4 }}
  annotations:
    {{- mergeOverwrite (dict "kubectl.kubernetes.io/default-container" $component.role) (deepCopy $values.podAnnotations) $checksums | toYaml | nindent 4 }}
spec:
  {{- include "mcp-tasks.podCommon" . | nindent 2 }}
  terminationGracePeriodSeconds: {{ default (include "mcp-tasks.ending" . | fromJson).seconds $values.terminationGracePeriodSeconds }}
  {{- with $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    {{- $own := dict "labelSelector" (dict "matchLabels" (include "mcp-tasks.selector" (list $root $component.name) | fromYaml)) }}
    {{- if not (hasKey . "labelSelector") }}
    {{- $_ := set $own "matchLabelKeys" (list "pod-template-hash") }}
    {{- end }}
    - {{- mergeOverwrite $own (deepCopy .) | toYaml | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- if or (eq (include "mcp-tasks.migrateMode" $root) "init") $values.initContainers }}
  initContainers:
    {{- if eq (include "mcp-tasks.migrateMode" $root) "init" }}
    - name: migrate
      image: {{ include "mcp-tasks.image" (list $root $values.image) }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- with $root.Values.migrate.command }}
      command:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      args:
        {{- toYaml (default (list "migrate") $root.Values.migrate.args) | nindent 8 }}
      env:
        {{- include "mcp-tasks.env" (list $root $component false) | trim | nindent 8 }}
      {{- with $values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      resources:
        {{- toYaml $root.Values.migrate.resources | nindent 8 }}
      volumeMounts:
        {{- include "mcp-tasks.volumeMounts" (list $root $component false) | trim | nindent 8 }}
    {{- end }}
    {{- with $values.initContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ $component.role }}
      image: {{ include "mcp-tasks.image" (list $root $values.image) }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- with $values.command }}
      command:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      args:
        {{- toYaml (default (list $component.role) $values.args) | nindent 8 }}
      env:
        {{- include "mcp-tasks.env" (list $root $component false) | trim | nindent 8 }}
      {{- with $values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- if eq $component.role "gateway" }}
        - {name: mcp, containerPort: 3000, protocol: TCP}
        {{- end }}
        - {name: admin, containerPort: 9100, protocol: TCP}
      startupProbe:
        {{- include "mcp-tasks.probe" (list "/startupz" $values.startupProbe) | nindent 8 }}
      livenessProbe:
        {{- include "mcp-tasks.probe" (list "/livez" $values.livenessProbe) | nindent 8 }}
      readinessProbe:
        {{- include "mcp-tasks.probe" (list "/readyz" $values.readinessProbe) | nindent 8 }}
      {{- with merge (deepCopy (default dict $values.lifecycle)) (include "mcp-tasks.preStop" $values | fromJson) }}
      lifecycle:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        {{- include "mcp-tasks.volumeMounts" (list $root $component false) | trim | nindent 8 }}
    {{- if $proxy }}
    {{- include "mcp-tasks.proxy" . | nindent 4 }}
    {{- end }}
    {{- with $values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "mcp-tasks.volumes" (list $root $component false) | trim | nindent 4 }}
    {{- if $proxy }}
    {{- if include "mcp-tasks.proxyFiles" $root | fromJson }}
    {{- include "mcp-tasks.carriedVolume" (list $root $component "proxy" "0444") | nindent 4 }}
    {{- else }}
    - name: proxy
      emptyDir: {}
    {{- end }}
    - name: proxy-tmp
      emptyDir: {sizeLimit: 64Mi}
    {{- if $values.proxy.jwt.issuer }}
    - name: proxy-keys
      secret: {secretName: {{ $values.proxy.jwt.existingSecret }}, defaultMode: 0444}
    {{- end }}
    {{- end }}
{{- end -}}

{{/* (list root component): the proxy in a gateway's pod. */}}
{{- define "mcp-tasks.proxy" -}}
{{- $root := index . 0 -}}
{{- $values := (index . 1).values -}}
{{- with $values.proxy -}}
- name: proxy
  image: {{ include "mcp-tasks.from" (list $root .image) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  {{- with .command }}
  command:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with default (ternary (list "haproxy" "-W" "-f" "/etc/proxy/haproxy.cfg") list (ne .jwt.issuer "")) .args }}
  args:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - {name: proxy, containerPort: {{ int .port }}, protocol: TCP}
  readinessProbe:
    {{- toYaml (default (dict "tcpSocket" (dict "port" "proxy") "periodSeconds" 5) .readinessProbe) | nindent 4 }}
  livenessProbe:
    tcpSocket: {port: proxy}
    periodSeconds: 10
    failureThreshold: 6
  {{- /* The gateway still takes connections for its drain_delay: the proxy must not end before. */}}
  {{- with add $values.preStopSleepSeconds (include "mcp-tasks.gatewaySeconds" (list $root "drain_delay" "5s") | int64) }}
  lifecycle:
    preStop:
      sleep: {seconds: {{ . }}}
  {{- end }}
  securityContext:
    {{- mergeOverwrite (deepCopy $values.securityContext) (deepCopy .securityContext) | toYaml | nindent 4 }}
  resources:
    {{- toYaml .resources | nindent 4 }}
  volumeMounts:
    - {name: proxy, mountPath: /etc/proxy, readOnly: true}
    - {name: proxy-tmp, mountPath: /tmp}
    {{- if .jwt.issuer }}
    - {name: proxy-keys, mountPath: /etc/proxy-keys, readOnly: true}
    {{- end }}
    {{- with .volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}
