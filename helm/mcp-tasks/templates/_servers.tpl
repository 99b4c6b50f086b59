{{/* Postgres and Redis: where they are, and who logs in there. */}}

{{/* What the values say of a server: (list root "postgres"), or (list root "postgres" component) where a kind of
     process has a user of its own there. `key`: the URL's key in the chart's Secret. */}}
{{- define "mcp-tasks.server" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
{{- $none := dict "existingSecret" "" "key" "password" "path" "" -}}
{{- $out := mergeOverwrite (deepCopy (get $root.Values $kind)) (dict "key" $kind) -}}
{{- if eq (len .) 3 -}}
{{- $own := dig $kind dict (index . 2).values -}}
{{- if or $own.url $own.existingSecret -}}
{{- /* The password of another user is none of its own. */ -}}
{{- $out = mergeOverwrite $out (dict "url" "" "existingSecret" "" "existingSecretKey" "url" "passwordFile" $none) (deepCopy $own) -}}
{{- $_ := set $out "key" (printf "%s-%s" $kind (index . 2).name) -}}
{{- else if or (dig "passwordFile" "existingSecret" "" $own) (dig "passwordFile" "path" "" $own) -}}
{{- $_ := set $out "passwordFile" (mergeOverwrite $none (deepCopy $own.passwordFile)) -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* Where Postgres (or Redis) is: (list root "postgres" [component]). `secret` and `key` of the URL; none: the
     settings file says it. `bundled`: the chart brings it. */}}
{{- define "mcp-tasks.store" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
{{- $own := include "mcp-tasks.server" . | fromJson -}}
{{- $full := include "mcp-tasks.fullname" $root -}}
{{- $out := dict "secret" "" "key" "" "bundled" false "url" $own.url -}}
{{- if $own.url -}}
{{- if and (eq $kind "postgres") (or $own.ca.existingSecret $own.ca.existingConfigMap) (hasPrefix "postgres" $own.url) (not (contains "sslmode=" $own.url)) -}}
{{- /* Who names an authority wants it asked. */ -}}
{{- $_ := set $out "url" (printf "%s%ssslmode=verify-full" $own.url (ternary "&" "?" (contains "?" $own.url))) -}}
{{- end -}}
{{- $_ := set $out "secret" (printf "%s-urls" $full) -}}
{{- $_ := set $out "key" $own.key -}}
{{- else if $own.existingSecret -}}
{{- $_ := set $out "secret" $own.existingSecret -}}
{{- $_ := set $out "key" $own.existingSecretKey -}}
{{- else if (get $root.Values.trial $kind).enabled -}}
{{- $_ := set $out "bundled" true -}}
{{- $_ := set $out "secret" (printf "%s-urls" $full) -}}
{{- $_ := set $out "key" $kind -}}
{{- if eq $kind "postgres" -}}
{{- $_ := set $out "url" (printf "postgres://mcp_tasks:%s@%s-postgres:5432/mcp_tasks?sslmode=disable" ($root.Values.trial.postgres.password | urlquery) $full) -}}
{{- else -}}
{{- $_ := set $out "url" (printf "redis://%s-redis:6379" $full) -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}
