{{/* Ports for network policies. */}}

{{/* The port of a URL. */}}
{{- define "mcp-tasks.portOf" -}}
{{- $url := urlParse . -}}
port: {{ regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary 443 80 (eq $url.scheme "https")) }}
protocol: TCP
{{- end -}}

{{/* (list root "postgres" component): the ports of a server: those that `networkPolicy` names, else those of its URL,
     else the usual one. */}}
{{- define "mcp-tasks.ports" -}}
{{- $kind := index . 1 -}}
{{- $usual := get (dict "postgres" 5432 "redis" 6379) $kind -}}
{{- $ports := get (index . 0).Values.networkPolicy (printf "%sPorts" $kind) -}}
{{- if not $ports -}}
{{- $hosts := (include "mcp-tasks.store" . | fromJson).url | default "" | regexFind "://[^/?]*" | trimPrefix "://" | regexFind "[^@]*$" -}}
{{- range splitList "," $hosts -}}
{{- $ports = append $ports (default $usual (regexFind ":[0-9]+$" . | trimPrefix ":")) -}}
{{- end -}}
{{- end -}}
{{- $out := list -}}
{{- range $ports -}}{{- $out = append $out (dict "port" (. | toString | int) "protocol" "TCP") -}}{{- end -}}
{{- uniq $out | toYaml -}}
{{- end -}}
