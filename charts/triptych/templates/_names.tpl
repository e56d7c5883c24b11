{{/* Every name and label of the operator's objects. */}}

{{- define "triptych.name" -}}
{{- $release := default .Release.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- if contains "triptych" $release -}}
{{ $release }}-operator
{{- else -}}
{{ $release }}-triptych-operator
{{- end -}}
{{- end -}}

{{/* What selects the pods. NetworkPolicies of every MultimodalService let in pods with this name. */}}
{{- define "triptych.selector" -}}
app.kubernetes.io/name: triptych-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "triptych.labels" -}}
{{ include "triptych.selector" . }}
app.kubernetes.io/part-of: triptych
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "triptych.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "triptych.name" .) .Values.serviceAccount.name }}
{{- else -}}
{{ required "serviceAccount.name: name an account that exists, or set serviceAccount.create to true" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* The reference of an image: include "triptych.image" (list . .Values.image) */}}
{{- define "triptych.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default $root.Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{/* By which way autoscalers get at what the pods measure. To serve it takes a ClusterRole, which some namespaces go without. */}}
{{- define "triptych.metricsProvider" -}}
{{- if and (eq .Values.autoscaling.provider "embedded") .Values.watch.namespaces -}}
none
{{- else -}}
{{ .Values.autoscaling.provider }}
{{- end -}}
{{- end -}}

{{/* The Service that the API server calls for external metrics. */}}
{{- define "triptych.metricsService" -}}
{{ include "triptych.name" . }}-api
{{- end -}}
