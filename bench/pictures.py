"""Pictures to ask about: each seed another one, none twice unless a test repeats it."""

from __future__ import annotations

import base64
import io
from functools import lru_cache

import numpy as np
from PIL import Image

SIDE = 448


@lru_cache(maxsize=1024)
def png(seed: int) -> bytes:
    """A 448x448 PNG of soft colours with some grain, about 330 KB: it packs like a photograph."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    soft = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    grain = random.integers(-6, 7, (SIDE, SIDE, 3))
    pixels = np.clip(np.asarray(soft, dtype=np.int16) + grain, 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=6)
    return buffer.getvalue()


def data_url(seed: int) -> str:
    """The picture as the OpenAI API takes it."""
    return "data:image/png;base64," + base64.b64encode(png(seed)).decode()
