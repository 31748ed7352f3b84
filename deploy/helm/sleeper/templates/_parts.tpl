{{- /* Parts of several templates. A part of a pod takes a dict of root, component and settings. */}}

{{- define "sleeper.name" -}}
{{- if contains "sleeper" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
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
{{- with .root.Values.secretName }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
resources: {{ toYaml .settings.resources | nindent 2 }}
{{- end }}

{{- define "sleeper.temporary" -}}
- name: temporary
  emptyDir: {sizeLimit: {{ .temporary }}}
{{- end }}
