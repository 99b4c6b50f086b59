{{/* TOML, in which settings are written. */}}

{{/* A value in TOML. JSON's text is TOML's, escapes included; its numbers are all floats here. */}}
{{- define "mcp-tasks.toml.value" -}}
{{- if kindIs "string" . -}}
{{- toJson . -}}
{{- else if kindIs "bool" . -}}
{{- . -}}
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}{{- $items = append $items (include "mcp-tasks.toml.value" .) -}}{{- end -}}
[{{ join ", " $items }}]
{{- else if kindIs "map" . -}}
{{- $items := list -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $items = append $items (printf "%s = %s" (toJson $key) (include "mcp-tasks.toml.value" $value)) -}}
{{- end -}}
{{- end -}}
{ {{ join ", " $items }} }
{{- else if kindIs "float64" . -}}
{{- ternary (printf "%d" (int64 .)) (printf "%v" .) (eq (floor .) .) -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* A key in TOML: in quotes where it needs them. */}}
{{- define "mcp-tasks.toml.key" -}}
{{- ternary . (toJson .) (regexMatch "^[A-Za-z0-9_-]+$" .) -}}
{{- end -}}

{{/* (list prefix table): a table in TOML, plain values first. */}}
{{- define "mcp-tasks.toml.table" -}}
{{- $prefix := index . 0 -}}
{{- $table := index . 1 -}}
{{- if $prefix }}
[{{ $prefix }}]
{{ end -}}
{{- range $key, $value := $table -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{- include "mcp-tasks.toml.key" $key }} = {{ include "mcp-tasks.toml.value" $value }}
{{ end -}}
{{- end -}}
{{- range $key, $value := $table -}}
{{- if and (kindIs "map" $value) $value -}}
{{- include "mcp-tasks.toml.table" (list (printf "%s.%s" $prefix (include "mcp-tasks.toml.key" $key) | trimPrefix ".") $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
