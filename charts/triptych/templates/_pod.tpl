{{- define "triptych.pod" -}}
{{- $provider := include "triptych.metricsProvider" . -}}
serviceAccountName: {{ include "triptych.serviceAccount" . }}
automountServiceAccountToken: true
enableServiceLinks: false
terminationGracePeriodSeconds: 30
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "triptych.podSecurityContext" . | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- include "triptych.affinity" . | fromYaml | merge (deepCopy .Values.affinity) | toYaml | nindent 2 }}
containers:
  - name: operator
    image: {{ include "triptych.image" (list . .Values.image) }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command:
      - triptych
      - operator
      - --image={{ include "triptych.image" (list . .Values.workerImage) }}
      {{- range .Values.watch.namespaces }}
      - --namespace={{ . }}
      {{- end }}
      {{- if .Values.leaderElection.enabled }}
      - --election-namespace={{ .Release.Namespace }}
      {{- else }}
      - --no-election
      {{- end }}
      - --listen=0.0.0.0:8080
      - --metrics={{ $provider }}
      {{- if eq $provider "keda" }}
      - --prometheus-url={{ .Values.autoscaling.prometheus.url }}
      {{- end }}
      {{- if eq $provider "embedded" }}
      - --metrics-service={{ .Release.Namespace }}/{{ include "triptych.metricsService" . }}
      - --metrics-address=$(POD_IP):{{ .Values.autoscaling.port }}
      {{- end }}
      {{- if .Values.verbose }}
      - --verbose
      {{- end }}
    ports:
      - name: metrics
        containerPort: 8080
        protocol: TCP
      {{- if eq $provider "embedded" }}
      - name: metrics-api
        containerPort: {{ .Values.autoscaling.port }}
        protocol: TCP
      {{- end }}
    env:
      - name: HOME
        value: /tmp
      {{- if eq $provider "embedded" }}
      - name: POD_IP
        valueFrom:
          fieldRef:
            fieldPath: status.podIP
      {{- end }}
    {{- include "triptych.probes" . | nindent 4 }}
    resources:
      {{- toYaml .Values.resources | nindent 6 }}
    securityContext:
      {{- include "triptych.containerSecurityContext" . | nindent 6 }}
    terminationMessagePolicy: FallbackToLogsOnError
    volumeMounts:
      - name: tmp
        mountPath: /tmp
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 64Mi
{{- end -}}

{{- define "triptych.affinity" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "triptych.selector" . | nindent 12 }}
{{- end -}}

{{- define "triptych.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 30
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{/* What the restricted Pod Security Standard asks for, and a read-only root. */}}
{{- define "triptych.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "triptych.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
