"""The embedded provider: signals served to autoscalers as ``external.metrics.k8s.io/v1beta1``."""
