"""The CustomResourceDefinition, generated from the models of ``triptych_operator.api``.

``schema`` lowers pydantic's JSON schema to what the API server takes (a structural schema);
``definition`` puts names, columns and versions around it. ``hack/generate-crds`` writes the file.
"""
