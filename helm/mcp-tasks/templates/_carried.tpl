{{/* Files that pods bring with them: settings, tools, the proxy's. They are annotations of the pods, mounted by the
     downward API, so that each ReplicaSet keeps what it was made with: an old process that starts again in the
     middle of an update, after a failed one, or elsewhere reads what it always read. A ConfigMap would be the new
     one for all, or gone. */}}

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

{{/* (list root component volume …): annotations with the files of these volumes. Names of files need not be names of
     annotations, so that these are numbers. */}}
{{- define "mcp-tasks.carriedAnnotations" -}}
{{- $carried := include "mcp-tasks.carried" . | fromJson -}}
{{- $out := dict -}}
{{- range $volume := slice . 2 -}}
{{- $files := default dict (get $carried $volume) -}}
{{- range $number, $name := keys $files | sortAlpha -}}
{{- $_ := set $out (printf "%s.mcp-tasks.dev/%d" $volume $number) (get $files $name) -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* (list root component volume mode): the volume with its files. */}}
{{- define "mcp-tasks.carriedVolume" -}}
{{- $volume := index . 2 -}}
- name: {{ $volume }}
  downwardAPI:
    defaultMode: {{ index . 3 }}
    items:
      {{- range $number, $name := keys (get (include "mcp-tasks.carried" . | fromJson) $volume) | sortAlpha }}
      - {path: {{ $name | quote }}, fieldRef: {fieldPath: "metadata.annotations['{{ $volume }}.mcp-tasks.dev/{{ $number }}']"}}
      {{- end }}
{{- end -}}
