{{/* What both test pods have in common. They are no pods of the operator: another name, so that no selector finds them. */}}
{{- define "triptych.testLabels" -}}
app.kubernetes.io/name: triptych-test
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: triptych
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "triptych.testPod" -}}
restartPolicy: Never
activeDeadlineSeconds: 120
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "triptych.podSecurityContext" . | nindent 2 }}
{{- end -}}

{{- define "triptych.testContainer" -}}
image: {{ include "triptych.image" (list . .Values.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: HOME
    value: /tmp
resources:
  requests: {cpu: 50m, memory: 64Mi, ephemeral-storage: 8Mi}
  limits: {memory: 256Mi, ephemeral-storage: 16Mi}
securityContext:
  {{- include "triptych.containerSecurityContext" . | nindent 2 }}
{{- end -}}
