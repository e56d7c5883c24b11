"""The vision parts of the served families, each behind ``domain.VisionModel``."""

from triptych_worker.vision.loading import load_vision

__all__ = ["load_vision"]
