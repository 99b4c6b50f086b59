{{/* Files of the proxy in a gateway's pod, as JSON. */}}
{{- define "mcp-tasks.proxyFiles" -}}
{{- $files := deepCopy .Values.gateway.proxy.files -}}
{{- if and .Values.gateway.proxy.jwt.issuer (not (hasKey $files "haproxy.cfg")) -}}
{{- $_ := set $files "haproxy.cfg" (include "mcp-tasks.haproxy" . | trim | printf "%s\n") -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{/* (list root setting default): a time of the gateways', in seconds. */}}
{{- define "mcp-tasks.gatewaySeconds" -}}
{{- $values := (index . 0).Values -}}
{{- $settings := mergeOverwrite (deepCopy $values.config) (deepCopy $values.gateway.config) -}}
{{- include "mcp-tasks.seconds" (list (printf "config.gateway.%s" (index . 1)) (dig "gateway" (index . 1) (index . 2) $settings)) -}}
{{- end -}}

{{/* Lets in who shows a good token, and tells the gateway its subject. */}}
{{- define "mcp-tasks.haproxy" -}}
{{- $proxy := .Values.gateway.proxy -}}
{{- $jwt := $proxy.jwt -}}
global
  log stdout format raw local0 notice
  maxconn 4000
  # Streams end with the gateway's own drain.
  hard-stop-after {{ include "mcp-tasks.gatewaySeconds" (list . "drain_deadline" "10s") }}s
defaults
  mode http
  log global
  option httplog
  option dontlog-normal
  option http-server-close
  # Whose request it is, after what proxies before this one said (gateway.trusted_proxies).
  option forwardfor
  # When it ends: whoever kept a connection is answered once more, and told that it ends.
  option idle-close-on-response
  timeout connect 2s
  timeout http-request 10s
  # A stream shows that it is alive every 15 s at most (gateway.keep_alive).
  timeout client 60s
  timeout server 60s
frontend mcp
  bind {{ ternary (printf ":::%d v4v6" (int $proxy.port)) (printf "%s:%d" .Values.listenAddress (int $proxy.port)) (eq .Values.listenAddress "::") }}
  # What needs no token: metadata, and callbacks, whose address is one.
  acl metadata path_beg /.well-known/ /callbacks/
  http-request set-var(txn.token) http_auth_bearer
  http-request set-var(txn.algorithm) var(txn.token),jwt_header_query('$.alg')
  http-request set-var(txn.issuer) var(txn.token),jwt_payload_query('$.iss')
  http-request set-var(txn.audience) var(txn.token),jwt_payload_query('$.aud')
  http-request set-var(txn.subject) var(txn.token),jwt_payload_query('$.sub')
  http-request set-var(txn.until) var(txn.token),jwt_payload_query('$.exp','int')
  http-request set-var(txn.from) var(txn.token),jwt_payload_query('$.nbf','int')
  http-request set-var(txn.now) date()
  acl good_algorithm var(txn.algorithm) -m str {{ $jwt.algorithm }}
  acl good_issuer var(txn.issuer) -m str {{ $jwt.issuer }}
  acl good_audience var(txn.audience) -m str {{ $jwt.audience }}
  acl good_subject var(txn.subject) -m reg ^[A-Za-z0-9@._|:/+=-]{1,200}$
  acl fresh var(txn.until),sub(txn.now) -m int gt 0
  acl early var(txn.from),sub(txn.now) -m int gt 0
  {{- range $place, $key := $jwt.keys }}
  http-request set-var(txn.signed{{ $place }}) var(txn.token),jwt_verify({{ $jwt.algorithm }},"/etc/proxy-keys/{{ $key }}") if good_algorithm
  acl signed var(txn.signed{{ $place }}) -m int 1
  {{- end }}
  http-request return status 401 hdr WWW-Authenticate Bearer if !metadata !{ req.hdr(Authorization) -m found }
  http-request return status 401 hdr WWW-Authenticate 'Bearer error="invalid_token"' if !metadata !good_algorithm or !metadata !good_issuer or !metadata !good_audience or !metadata !good_subject or !metadata !fresh or !metadata early or !metadata !signed
  http-request set-header Authorization "Bearer %[var(txn.subject)]" if !metadata
  http-request del-header Authorization if metadata
  default_backend gateway
backend gateway
  server gateway 127.0.0.1:3000
{{- end -}}
