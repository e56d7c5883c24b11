"""Manifests as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from triptych_operator.json_values import JsonObject


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> Any:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(manifests: Sequence[JsonObject]) -> str:
    """One YAML document per manifest."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=100, explicit_start=True)
