{{/* What cannot work is refused before anything is changed, with what to do instead. */}}
{{- define "triptych.refuseConflicts" -}}
{{- include "triptych.refuseReplicas" . -}}
{{- include "triptych.refuseSharedLease" . -}}
{{- include "triptych.refuseWatched" . -}}
{{- include "triptych.refuseForeignDefinition" . -}}
{{- include "triptych.refuseForeignMetrics" . -}}
{{- end -}}

{{- define "triptych.refuseReplicas" -}}
{{- if and (not .Values.leaderElection.enabled) (gt (int .Values.replicas) 1) -}}
{{- printf "replicas is %d without leader election, and they would all act at once: set replicas to 1, or leaderElection.enabled to true" (int .Values.replicas) | fail -}}
{{- end -}}
{{- end -}}

{{/* Operators in one namespace would share one Lease, and all but one of them would never act. */}}
{{- define "triptych.refuseSharedLease" -}}
{{- range (lookup "apps/v1" "Deployment" .Release.Namespace "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- $release := get $labels "app.kubernetes.io/instance" -}}
{{- if and (eq (get $labels "app.kubernetes.io/name") "triptych-operator") (ne $release $.Release.Name) -}}
{{- printf "namespace %s already has a Triptych operator, of release %s: upgrade that one (helm upgrade %s ... -n %s), or install this one in another namespace" $.Release.Namespace $release $release $.Release.Namespace | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Two operators must not look after one namespace. Bindings tell who looks after what; they can be read by whoever may make them. */}}
{{- define "triptych.refuseWatched" -}}
{{- if .Values.rbac.create -}}
{{- if or .Values.crds.install (not .Values.watch.namespaces) -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "").items -}}
{{- include "triptych.refuseBinding" (list $ . "all namespaces") -}}
{{- end -}}
{{- end -}}
{{- range $namespace := default (list "") .Values.watch.namespaces -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "RoleBinding" $namespace "").items -}}
{{- include "triptych.refuseBinding" (list $ . (printf "namespace %s" .metadata.namespace)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "triptych.refuseBinding" -}}
{{- $root := index . 0 -}}
{{- $binding := index . 1 -}}
{{- $labels := default dict $binding.metadata.labels -}}
{{- if and (eq (get $labels "app.kubernetes.io/name") "triptych-operator") (eq (get $labels "app.kubernetes.io/component") "watch") -}}
{{- $release := get $labels "app.kubernetes.io/instance" -}}
{{- $namespace := (first $binding.subjects).namespace -}}
{{- if or (ne $release $root.Release.Name) (ne $namespace $root.Release.Namespace) -}}
{{- printf "a Triptych operator already looks after %s, release %s in namespace %s: upgrade that one (helm upgrade %s ... -n %s), or give this one other namespaces (watch.namespaces)" (index . 2) $release $namespace $release $namespace | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* One that was uninstalled no longer counts: helm's --take-ownership takes over the definition that it left. */}}
{{- define "triptych.refuseForeignDefinition" -}}
{{- if .Values.crds.install -}}
{{- $definition := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "multimodalservices.triptych.dev" -}}
{{- $owner := dig "metadata" "annotations" dict $definition -}}
{{- $release := get $owner "meta.helm.sh/release-name" -}}
{{- $namespace := get $owner "meta.helm.sh/release-namespace" -}}
{{- if and $release (or (ne $release .Release.Name) (ne $namespace .Release.Namespace)) -}}
{{- range (lookup "apps/v1" "Deployment" $namespace "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- if and (eq (get $labels "app.kubernetes.io/name") "triptych-operator") (eq (get $labels "app.kubernetes.io/instance") $release) -}}
{{- printf "the MultimodalService definition belongs to release %s in namespace %s, which updates it: add --set crds.install=false" $release $namespace | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A cluster has one adapter of external metrics; to take its place would stop the autoscalers that ask it. */}}
{{- define "triptych.refuseForeignMetrics" -}}
{{- if eq (include "triptych.metricsProvider" .) "embedded" -}}
{{- if semverCompare "<1.34.0-0" .Capabilities.KubeVersion.Version -}}
{{- fail "autoscaling.provider embedded needs Kubernetes 1.34 or newer: upgrade, or add --set autoscaling.provider=prometheus, keda or none" -}}
{{- end -}}
{{- $found := lookup "apiregistration.k8s.io/v1" "APIService" "" "v1beta1.external.metrics.k8s.io" -}}
{{- $service := dig "spec" "service" dict $found -}}
{{- $owner := printf "%s/%s" (get $service "namespace") (get $service "name") -}}
{{- if and $found (ne $owner (printf "%s/%s" .Release.Namespace (include "triptych.metricsService" .))) -}}
{{- printf "external metrics of this cluster are served by %s, and there can be one adapter only: add --set autoscaling.provider=prometheus, keda or none, or remove that adapter" $owner | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
