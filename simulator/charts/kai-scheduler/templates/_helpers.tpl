{{- /* Tag of an image: its own, else the global one, else the application's version. Takes (list root image). */}}
{{- define "stand-in.tag" -}}
{{- (index . 1).tag | default (index . 0).Values.global.tag | default (index . 0).Chart.AppVersion -}}
{{- end }}

{{- /* Full name of an image. Takes (list root image). */}}
{{- define "stand-in.image" -}}
{{- (index . 1).registry | default (index . 0).Values.global.registry }}/{{ (index . 1).name }}:{{ include "stand-in.tag" . -}}
{{- end }}

{{- /* Where the chart's own pods run. */}}
{{- define "stand-in.placement" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.global.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.global.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.global.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.global.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* A service of the Config: switch, image, resources. Takes (list root values enabled). */}}
{{- define "stand-in.service" -}}
{{- $root := index . 0 }}
{{- $service := index . 1 -}}
enabled: {{ index . 2 }}
image:
  repository: {{ $root.Values.global.registry }}
  name: {{ $service.image.name }}
  tag: {{ include "stand-in.tag" (list $root $service.image) | quote }}
  pullPolicy: {{ $service.image.pullPolicy | default $root.Values.global.imagePullPolicy }}
{{- with $service.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* How GPUs are shared, as upstream decides: the subchart's switch, the mode, what 0.17 called gpuSharing, the
default. A copy of this chart with a version of 0.17 knows the last but one alone, and its default is no sharing. */}}
{{- define "stand-in.mode" -}}
{{- if semverCompare ">=0.18.0-0" .Chart.Version }}
{{- if .Values.global.nvFractions.set -}}
NvFractions
{{- else if .Values.global.gpuSharingMode -}}
{{ .Values.global.gpuSharingMode }}
{{- else if not (hasKey .Values.global "gpuSharing") -}}
NonMemoryEnforced
{{- end }}
{{- end }}
{{- end }}

{{- /* The Config that steers the operator: a hook applies it, or the release carries it (kaiConfig.render). */}}
{{- define "stand-in.config" -}}
{{- $values := .Values -}}
{{- $reservation := $values.global.resourceReservation -}}
apiVersion: kai.scheduler/v1
kind: Config
metadata:
  name: kai-config
spec:
  namespace: {{ .Release.Namespace }}
  global:
    replicaCount: {{ $values.operator.replicaCount }}
    queueLabelKey: {{ $values.podgrouper.queueLabelKey | quote }}
    {{- with pick $values.global "nodeSelector" "tolerations" "affinity" "securityContext" "priorityClassName" "nodePoolLabelKey" "jsonLog" }}
    {{- range $key, $value := . }}
    {{- if $value }}
    {{ $key }}: {{ toJson $value }}
    {{- end }}
    {{- end }}
    {{- end }}
    {{- with include "stand-in.mode" . }}
    gpuSharingMode: {{ . }}
    {{- end }}
    {{- with $values.global.imagePullSecrets }}
    additionalImagePullSecrets:
      {{- range . }}
      - {{ .name }}
      {{- end }}
    {{- end }}
  binder:
    service: {{- include "stand-in.service" (list . $values.binder $values.binder.enabled) | nindent 6 }}
    resourceReservation:
      namespace: {{ $reservation.namespace }}
      serviceAccountName: {{ $reservation.serviceAccount }}
      appLabel: {{ $reservation.appLabel }}
      {{- with $values.binder.runtimeClassName }}
      runtimeClassName: {{ . }}
      {{- end }}
      {{- with $values.binder.resourceReservationPodResources }}
      podResources: {{- toYaml . | nindent 8 }}
      {{- end }}
      image:
        repository: {{ $values.global.registry }}
        name: {{ $values.binder.resourceReservationImage.name }}
        tag: {{ include "stand-in.tag" (list . $values.binder.resourceReservationImage) | quote }}
        pullPolicy: {{ $values.binder.resourceReservationImage.pullPolicy | default $values.global.imagePullPolicy }}
    {{- if hasKey $values.binder "cdiEnabled" }}
    cdiEnabled: {{ $values.binder.cdiEnabled }}
    {{- end }}
    {{- with $values.binder.plugins }}
    plugins: {{- toYaml . | nindent 6 }}
    {{- end }}
  podGrouper:
    service: {{- include "stand-in.service" (list . $values.podgrouper $values.podgrouper.enabled) | nindent 6 }}
  podGroupController:
    service: {{- include "stand-in.service" (list . $values.podgroupcontroller $values.podgroupcontroller.enabled) | nindent 6 }}
  queueController:
    service: {{- include "stand-in.service" (list . $values.queuecontroller $values.queuecontroller.enabled) | nindent 6 }}
  scheduler:
    service: {{- include "stand-in.service" (list . $values.scheduler $values.scheduler.enabled) | nindent 6 }}
  nodeScaleAdjuster:
    service: {{- include "stand-in.service" (list . $values.nodescaleadjuster $values.global.clusterAutoscaling) | nindent 6 }}
    args:
      scalingPodImage: {{- (include "stand-in.service" (list . (dict "image" $values.nodescaleadjuster.scalingPodImage) true) | fromYaml).image | toYaml | nindent 8 }}
  numaPlacementExporter:
    service: {{- include "stand-in.service" (list . $values.numaPlacementExporter false) | nindent 6 }}
  admission:
    service: {{- include "stand-in.service" (list . $values.admission $values.admission.enabled) | nindent 6 }}
    {{- if not (include "stand-in.mode" .) }}
    gpuSharing: {{ $values.global.gpuSharing | default false }}
    {{- end }}
    blockNvidiaVisibleDevices: {{ $values.global.blockNvidiaVisibleDevices }}
    gpuFractionRuntimeClassName: {{ $values.admission.gpuFractionRuntimeClassName | quote }}
{{- end }}
