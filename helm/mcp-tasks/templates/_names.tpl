{{/* Names, labels, images. */}}

{{- define "mcp-tasks.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 38 characters, so that `-worker-<group>` still fits into a name. Releases may have dots in their names,
     Services may not. */}}
{{- define "mcp-tasks.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- end -}}
{{- $full | replace "." "-" | trunc 38 | trimSuffix "-" -}}
{{- end -}}

{{/* (list root component): what selects the pods of a component. Never change it: it is immutable. */}}
{{- define "mcp-tasks.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "mcp-tasks.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* (list root component): labels of an object. */}}
{{- define "mcp-tasks.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := include "mcp-tasks.selector" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/version" ($root.Chart.AppVersion | replace "+" "_") -}}
{{- $_ := set $labels "app.kubernetes.io/part-of" "mcp-tasks" -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63) -}}
{{- toYaml (mergeOverwrite (deepCopy $root.Values.commonLabels) $labels) -}}
{{- end -}}

{{/* (list root name component annotations [labels]): metadata of an object. */}}
{{- define "mcp-tasks.metadata" -}}
{{- $root := index . 0 -}}
{{- $annotations := mergeOverwrite (deepCopy $root.Values.commonAnnotations) (deepCopy (index . 3 | default dict)) -}}
name: {{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- $more := ternary (last .) dict (eq (len .) 5) }}
  {{- mergeOverwrite (deepCopy $more) (include "mcp-tasks.labels" (list $root (index . 2)) | fromYaml) | toYaml | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* (list root component own): labels of pods: none that a new version of the chart alone would change, and
     so restart them. */}}
{{- define "mcp-tasks.podLabels" -}}
{{- mergeOverwrite (deepCopy (index . 0).Values.commonLabels) (deepCopy (index . 2)) (include "mcp-tasks.selector" (list (index . 0) (index . 1)) | fromYaml) | toYaml -}}
{{- end -}}

{{/* (list root reference): where an image comes from: `global.imageRegistry`, if there is one, instead of the
     registry that it names. */}}
{{- define "mcp-tasks.from" -}}
{{- $reference := index . 1 -}}
{{- with dig "imageRegistry" "" (default dict (index . 0).Values.global) -}}
{{- $reference = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $reference "") -}}
{{- end -}}
{{- $reference -}}
{{- end -}}

{{/* (list root image): `repository:tag`, or `repository@digest`. */}}
{{- define "mcp-tasks.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $repository := include "mcp-tasks.from" (list $root $image.repository) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default $root.Chart.AppVersion $image.tag | toString) -}}
{{- end -}}
{{- end -}}

{{/* (list root component): the name of a component's ServiceAccount. */}}
{{- define "mcp-tasks.serviceAccountName" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $account := $component.values.serviceAccount -}}
{{- default (ternary $component.fullname "default" $account.create) $account.name -}}
{{- end -}}
