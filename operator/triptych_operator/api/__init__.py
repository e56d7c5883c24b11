"""The resource ``triptych.dev/v1alpha1`` MultimodalService as frozen, typed models.

They are the single source: ``triptych up`` reads manifests through them, the CRD is generated from
them, and the operator parses what the API server hands it with them. Field docstrings become the
text of ``kubectl explain``.

Layers, lowest first: ``rules`` (what a value must obey, as data) -> ``scalars``, ``quantities`` ->
``model``, ``media``, ``tiers`` -> ``service`` -> ``stored``, ``manifests`` (YAML in, errors that
name the field out).
"""
