"""The models that come with Triptych: `builtin://shapes` and what is known about it.

Importing this package loads neither torch nor Pillow.
"""

from triptych_models.catalog import (
    UnknownBuiltinError,
    builtin_folder,
    builtin_names,
    builtin_revisions,
    encoder_folder,
    encoder_revisions,
)

__all__ = [
    "UnknownBuiltinError",
    "builtin_folder",
    "builtin_names",
    "builtin_revisions",
    "encoder_folder",
    "encoder_revisions",
]
