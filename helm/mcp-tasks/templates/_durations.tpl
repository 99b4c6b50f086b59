{{/* "1m 30s" and the like, as mcp-tasks reads them, in whole seconds, rounded up. Fails on anything else,
     naming the setting: (list setting text). */}}
{{- define "mcp-tasks.seconds" -}}
{{- $setting := index . 0 -}}
{{- $text := index . 1 | toString | trim -}}
{{- if not (regexMatch "^([0-9]+ *[a-zµ]+ *)+$" $text) -}}
{{- fail (printf "%s: %q is not a duration: write a number with a unit, e.g. \"30s\" or \"5m\"" $setting $text) -}}
{{- end -}}
{{- $units := dict
  "ns" 0.000000001 "nsec" 0.000000001
  "us" 0.000001 "µs" 0.000001 "usec" 0.000001
  "ms" 0.001 "msec" 0.001 "millis" 0.001
  "s" 1.0 "sec" 1.0 "secs" 1.0 "second" 1.0 "seconds" 1.0
  "m" 60.0 "min" 60.0 "mins" 60.0 "minute" 60.0 "minutes" 60.0
  "h" 3600.0 "hr" 3600.0 "hrs" 3600.0 "hour" 3600.0 "hours" 3600.0
  "d" 86400.0 "day" 86400.0 "days" 86400.0
  "w" 604800.0 "week" 604800.0 "weeks" 604800.0 -}}
{{- $sum := 0.0 -}}
{{- range $part := regexFindAll "[0-9]+ *[a-zµ]+" $text -1 -}}
{{- $unit := regexFind "[a-zµ]+" $part -}}
{{- if not (hasKey $units $unit) -}}
{{- fail (printf "%s: %q has no unit %q: write ms, s, m, h or days" $setting $text $unit) -}}
{{- end -}}
{{- $sum = addf $sum (mulf (regexFind "[0-9]+" $part | float64) (get $units $unit)) -}}
{{- end -}}
{{- ceil $sum | int64 -}}
{{- end -}}
