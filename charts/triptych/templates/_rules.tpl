{{/* All that the operator does in the namespaces that it looks after; nothing about Secrets. */}}
{{- define "triptych.rules" -}}
- apiGroups: [triptych.dev]
  resources: [multimodalservices]
  verbs: [get, list, watch]
- apiGroups: [triptych.dev]
  resources: [multimodalservices/status]
  verbs: [patch]
{{- $children := dict
  "" (list "configmaps" "serviceaccounts" "services")
  "apps" (list "deployments")
  "autoscaling" (list "horizontalpodautoscalers")
  "networking.k8s.io" (list "networkpolicies")
  "policy" (list "poddisruptionbudgets") }}
{{- if eq (include "triptych.metricsProvider" .) "keda" }}
{{- $_ := set $children "keda.sh" (list "scaledobjects") }}
{{- end }}
{{- range $group := keys $children | sortAlpha }}
- apiGroups: [{{ $group | quote }}]
  resources: [{{ get $children $group | join ", " }}]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [pods/status] # the readiness gate of a pod whose turn has come
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* The account that Roles are bound to. */}}
{{- define "triptych.subjects" -}}
- kind: ServiceAccount
  name: {{ include "triptych.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
