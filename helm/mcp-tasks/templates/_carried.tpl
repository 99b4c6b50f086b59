{{/* Files that pods bring with them: settings, tools, the proxy's. They are in ConfigMaps that are named by what is in
     them and never change, so that an old process that starts again in the middle of an update reads what it always
     read. */}}

{{/* (list root component): the files by volume: `{volume: {name: text}}`. */}}
{{- define "mcp-tasks.carried" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $out := dict -}}
{{- if not (include "mcp-tasks.ownFile" $root) -}}
{{- $_ := set $out "config" (dict "mcp-tasks.toml" (include "mcp-tasks.toml" . | printf "%s\n")) -}}
{{- end -}}
{{- with $component.values.files -}}{{- $_ := set $out "files" . -}}{{- end -}}
{{- if and (eq $component.role "gateway") $root.Values.gateway.proxy.enabled -}}
{{- with include "mcp-tasks.proxyFiles" $root | fromJson -}}{{- $_ := set $out "proxy" . -}}{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* (list component volume files): the name of the ConfigMap, of 63 characters at most. */}}
{{- define "mcp-tasks.carriedName" -}}
{{- $component := index . 0 -}}
{{- $whose := printf "%s-%s" $component.fullname (index . 1) | trunc 52 | trimSuffix "-" -}}
{{- printf "%s-%s" $whose (list $component.name (index . 1) (index . 2) | toJson | sha256sum | trunc 10) -}}
{{- end -}}

{{/* (list root component annotations volume …): the ConfigMaps with the files of these volumes. */}}
{{- define "mcp-tasks.carriedMaps" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $annotations := index . 2 -}}
{{- $carried := include "mcp-tasks.carried" (list $root $component) | fromJson -}}
{{- range $volume := slice . 3 -}}
{{- with get $carried $volume }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "mcp-tasks.metadata" (list $root (include "mcp-tasks.carriedName" (list $component $volume .)) $component.name $annotations) | nindent 2 }}
immutable: true
data:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* (list root component): annotations that restart pods when their files change. */}}
{{- define "mcp-tasks.carriedChecksums" -}}
{{- $out := dict -}}
{{- range $volume, $files := include "mcp-tasks.carried" . | fromJson -}}
{{- $_ := set $out (printf "checksum/%s" $volume) (toJson $files | sha256sum) -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* (list root component volume mode): the volume with its files. */}}
{{- define "mcp-tasks.carriedVolume" -}}
{{- $volume := index . 2 -}}
{{- $files := get (include "mcp-tasks.carried" . | fromJson) $volume -}}
- name: {{ $volume }}
  configMap: {name: {{ include "mcp-tasks.carriedName" (list (index . 1) $volume $files) }}, defaultMode: {{ index . 3 }}}
{{- end -}}
