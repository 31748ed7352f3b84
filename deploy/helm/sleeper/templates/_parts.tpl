{{- /* Parts of several templates. A part of a pod takes a dict of root, component and settings. */}}

{{- define "sleeper.name" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if contains "sleeper" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-sleeper" (.Release.Name | trunc 32 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "sleeper.selector" -}}
app.kubernetes.io/name: sleeper
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "sleeper.labels" -}}
{{ include "sleeper.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sleeper.podMetadata" -}}
labels:
  {{- include "sleeper.labels" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.podAnnotations }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "sleeper.account" -}}
{{- $made := ternary (include "sleeper.name" .) "default" .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default $made }}
{{- end }}

{{- define "sleeper.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "sleeper.pod" -}}
serviceAccountName: {{ include "sleeper.account" .root }}
automountServiceAccountToken: {{ .api | default false }}
enableServiceLinks: false
terminationGracePeriodSeconds: 90
# What ends in a pod is reaped by its first process, which is Kubernetes' own.
shareProcessNamespace: true
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.topologySpreadConstraints }}
topologySpreadConstraints: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- $affinity := deepCopy .root.Values.affinity }}
{{- if and .root.Values.jobsVolume.enabled (eq .component "server") }}
{{- $serve := include "sleeper.selector" (dict "root" .root "component" "serve") | fromYaml }}
{{- $near := dict "labelSelector" (dict "matchLabels" $serve) "topologyKey" "kubernetes.io/hostname" }}
{{- $pods := $affinity.podAffinity | default dict }}
{{- $required := $pods.requiredDuringSchedulingIgnoredDuringExecution | default list }}
{{- $_ := set $pods "requiredDuringSchedulingIgnoredDuringExecution" (append $required $near) }}
{{- $_ := set $affinity "podAffinity" $pods }}
{{- end }}
{{- with $affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "sleeper.container" -}}
image: {{ include "sleeper.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - name: SLEEPER_INSTANCE
    value: {{ .root.Values.instance | quote }}
  {{- range $name, $value := .root.Values.environment }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
{{- if or .root.Values.secretName .root.Values.extraEnvFrom }}
envFrom:
  {{- with .root.Values.secretName }}
  - secretRef: {name: {{ . }}}
  {{- end }}
  {{- with .root.Values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
resources: {{ toYaml .settings.resources | nindent 2 }}
{{- end }}

{{- define "sleeper.hasJobsVolume" -}}
{{- if and .root.Values.jobsVolume.enabled (has .component (list "serve" "server")) }}yes{{ end }}
{{- end }}

{{- define "sleeper.mounts" -}}
- {name: temporary, mountPath: /tmp}
{{- if include "sleeper.hasJobsVolume" . }}
- {name: jobs, mountPath: /var/lib/sleeper}
{{- end }}
{{- with .root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sleeper.volumes" -}}
- name: temporary
  emptyDir: {sizeLimit: {{ .settings.temporary }}}
{{- if include "sleeper.hasJobsVolume" . }}
- name: jobs
  persistentVolumeClaim:
    claimName: {{ .root.Values.jobsVolume.existingClaim | default (printf "%s-jobs" (include "sleeper.name" .root)) }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
