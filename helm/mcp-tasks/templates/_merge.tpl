{{/* (list layer …): layers of settings for pods, the later one winning: maps are merged, lists are added to
     the earlier ones (of what has a name, the later one counts), empty text and null say nothing. Some lists and maps
     only make sense as a whole, and null is an answer of its own for some. */}}
{{- define "mcp-tasks.layers" -}}
{{- $whole := list "topologySpreadConstraints" "command" "args" "tools" -}}
{{- $wholeMaps := list "preStop" "postStart" "seccompProfile" "appArmorProfile" -}}
{{- $nullable := list "lagSecondsPerReplica" "terminationGracePeriodSeconds" "minAvailable" -}}
{{- $out := dict -}}
{{- range $layer := . -}}
{{- $out = include "mcp-tasks.under" (list "" $out $layer) | fromJson -}}
{{- range $key, $value := $layer -}}
{{- if kindIs "invalid" $value -}}
{{- if has $key $nullable -}}{{- $_ := set $out $key nil -}}{{- end -}}
{{- else if and (kindIs "string" $value) (eq $value "") -}}
{{- if not (hasKey $out $key) -}}{{- $_ := set $out $key "" -}}{{- end -}}
{{- else if and (hasKey $out $key) (has $key (ternary $whole $wholeMaps (kindIs "slice" $value))) -}}
{{- if $value -}}{{- $_ := set $out $key $value -}}{{- end -}}
{{- else if and (kindIs "slice" $value) (hasKey $out $key) -}}
{{- $_ := set $out $key (include "mcp-tasks.added" (list $key (get $out $key) $value) | fromJsonArray) -}}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $out $key)) -}}
{{- $below := include "mcp-tasks.under" (list $key (get $out $key) $value) | fromJson -}}
{{- $_ := set $out $key (include "mcp-tasks.layers" (list $below $value) | fromJson) -}}
{{- else -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* (list key earlier later): what the earlier layer still says where the later one says the same in another way: a
     URL instead of a Secret, a path instead of a Secret, another image, whose digest is another. */}}
{{- define "mcp-tasks.under" -}}
{{- $key := index . 0 -}}
{{- $earlier := deepCopy (index . 1) -}}
{{- $later := index . 2 -}}
{{- $gone := list -}}
{{- if eq $key "postgres" -}}
{{- if or $later.url $later.existingSecret -}}
{{- $gone = list "url" "existingSecret" -}}
{{- if $earlier.passwordFile -}}{{- $_ := set $earlier "passwordFile" (omit $earlier.passwordFile "existingSecret" "path") -}}{{- end -}}
{{- end -}}
{{- else if eq $key "passwordFile" -}}
{{- if or $later.existingSecret $later.path -}}{{- $gone = list "existingSecret" "path" -}}{{- end -}}
{{- else if eq $key "toolsFrom" -}}
{{- if or $later.existingConfigMap $later.existingSecret -}}{{- $gone = list "existingConfigMap" "existingSecret" -}}{{- end -}}
{{- else if eq $key "podDisruptionBudget" -}}
{{- if not (kindIs "invalid" $later.maxUnavailable) -}}{{- $gone = list "minAvailable" -}}{{- end -}}
{{- else if eq $key "image" -}}
{{- if or $later.tag (and $later.repository (ne $later.repository (default "" $earlier.repository))) -}}{{- $gone = list "digest" -}}{{- end -}}
{{- else if eq $key "" -}}
{{- $from := default dict $later.toolsFrom -}}
{{- if $later.toolsFile -}}
{{- if $earlier.toolsFrom -}}{{- $_ := set $earlier "toolsFrom" (omit $earlier.toolsFrom "existingConfigMap" "existingSecret") -}}{{- end -}}
{{- else if or $from.existingConfigMap $from.existingSecret -}}
{{- $gone = list "toolsFile" -}}
{{- end -}}
{{- end -}}
{{- range $gone -}}{{- $_ := unset $earlier . -}}{{- end -}}
{{- toJson $earlier -}}
{{- end -}}

{{/* (list key items more): both, but of those with the same name only the later one: Kubernetes takes no name twice.
     (A volume may be mounted at several places.) */}}
{{- define "mcp-tasks.added" -}}
{{- $names := list -}}
{{- range index . 2 -}}{{- if and (kindIs "map" .) (ne (index $ 0) "extraVolumeMounts") -}}{{- $names = append $names .name -}}{{- end -}}{{- end -}}
{{- $out := list -}}
{{- range index . 1 -}}
{{- if not (and (kindIs "map" .) .name (has .name $names)) -}}{{- $out = append $out . -}}{{- end -}}
{{- end -}}
{{- concat $out (index . 2) | toJson -}}
{{- end -}}

{{/* What all pods have, unless a component says otherwise. */}}
{{- define "mcp-tasks.podDefaults" -}}
{{- $pull := dict "imagePullSecrets" (concat (dig "imagePullSecrets" list (default dict .Values.global)) .Values.imagePullSecrets | uniq) -}}
{{- mergeOverwrite $pull (omit (pick .Values "image" "imagePullSecrets" "deploymentAnnotations" "revisionHistoryLimit" "minReadySeconds"
  "progressDeadlineSeconds" "podLabels" "podAnnotations" "dnsPolicy" "schedulerName" "lifecycle"
  "podSecurityContext" "securityContext" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints"
  "priorityClassName" "runtimeClassName" "hostAliases" "dnsConfig" "extraEnv" "extraEnvFrom" "extraVolumes"
  "extraVolumeMounts" "extraContainers" "initContainers") "imagePullSecrets") | toJson -}}
{{- end -}}

{{/* All components that run: `{components: [{name, fullname, role, values}]}`, values complete. */}}
{{- define "mcp-tasks.components" -}}
{{- $root := . -}}
{{- $full := include "mcp-tasks.fullname" . -}}
{{- $defaults := include "mcp-tasks.podDefaults" . | fromJson -}}
{{- $out := list -}}
{{- range $role := list "gateway" "cron" -}}
{{- $values := include "mcp-tasks.layers" (list (deepCopy $defaults) (get $root.Values $role)) | fromJson -}}
{{- $out = append $out (dict "name" $role "fullname" (printf "%s-%s" $full $role) "role" $role "values" $values) -}}
{{- end -}}
{{- range $group, $own := .Values.workers -}}
{{- $values := include "mcp-tasks.layers" (list (deepCopy $defaults) $root.Values.workerDefaults (dict "enabled" true) (default dict $own)) | fromJson -}}
{{- if and $values.enabled (not (kindIs "invalid" $own)) -}}
{{- with $values.toolsFile -}}{{- $_ := set $values "files" (merge (dict "tools.toml" .) $values.files) -}}{{- end -}}
{{- $name := printf "worker-%s" $group -}}
{{- $out = append $out (dict "name" $name "fullname" (printf "%s-%s" $full $name | trunc 63 | trimSuffix "-") "role" "worker" "group" $group "values" $values) -}}
{{- end -}}
{{- end -}}
{{- dict "components" $out | toJson -}}
{{- end -}}
