{{- define "stand-in.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/component: gpu-operator
{{- end }}

{{- /* What the subchart calls its objects. */}}
{{- define "stand-in.nfd" -}}
{{ .Release.Name }}-node-feature-discovery
{{- end }}
