"""Pairs of media, encoders and tenants that keys of other systems took for one another.

Each attack draws two things that differ in one respect, and are as alike as can be in all others:
docs/adr/0016 names where each was seen. Whoever finds a new way to collide adds it here.
"""

from __future__ import annotations

import random
import struct
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from picture_files import GREY, PALETTE, RGB, Png
from triptych_contract.fingerprints import (
    EncoderIdentity,
    embedding_key,
    encoder_fingerprint,
    media_digest,
    prefix_key,
    tenant_salt,
)


@dataclass(frozen=True)
class Asked:
    """What an embedding is cached by: a file as it came, the encoder, the tenant."""

    file: bytes
    encoder: EncoderIdentity
    tenant: str = ""

    def name(self) -> tuple[object, ...]:
        """What it is, told in another way than by its key: equal only for the same."""
        return "embedding", self.file, repr(_typed(self.encoder)), self.tenant

    def key(self) -> bytes:
        fingerprint = encoder_fingerprint(self.encoder)
        return embedding_key(media_digest(self.file), fingerprint, tenant_salt(self.tenant))


@dataclass(frozen=True)
class Block:
    """What a piece of a prompt's keys and values is cached by."""

    tenant: str
    before: bytes
    tokens: bytes
    media: tuple[bytes, ...]

    def name(self) -> tuple[object, ...]:
        return "block", self.tenant, self.before, self.tokens, self.media

    def key(self) -> bytes:
        return prefix_key(tenant_salt(self.tenant), self.before, self.tokens, list(self.media))


Thing = Asked | Block
Attack = Callable[[random.Random], tuple[Thing, Thing]]


def transposed(draw: random.Random) -> tuple[Thing, Thing]:
    """The same samples in the same order, width and height exchanged."""
    width, height = draw.sample(range(1, 24), 2)
    samples = draw.randbytes(width * height * 3)
    return _files(Png(width, height, RGB, 8, samples), Png(height, width, RGB, 8, samples), draw)


def reshaped(draw: random.Random) -> tuple[Thing, Thing]:
    """The same samples in rows of another length."""
    factor = draw.randrange(2, 6)
    width, height = draw.randrange(1, 12), draw.randrange(1, 12) * factor
    samples = draw.randbytes(width * height)
    wide = Png(width * factor, height // factor, GREY, 8, samples)
    return _files(Png(width, height, GREY, 8, samples), wide, draw)


def another_mode(draw: random.Random) -> tuple[Thing, Thing]:
    """The same samples as grey and as colours."""
    width, height = draw.randrange(1, 12), draw.randrange(1, 12)
    samples = draw.randbytes(width * height * 3)
    grey = Png(width * 3, height, GREY, 8, samples)
    return _files(Png(width, height, RGB, 8, samples), grey, draw)


def another_depth(draw: random.Random) -> tuple[Thing, Thing]:
    """The same samples as 8 and as 16 bits."""
    width, height = draw.randrange(1, 12), draw.randrange(1, 12)
    samples = draw.randbytes(width * height * 2)
    deep = Png(width, height, GREY, 16, samples)
    return _files(deep, Png(width * 2, height, GREY, 8, samples), draw)


def another_palette(draw: random.Random) -> tuple[Thing, Thing]:
    """The same indices into palettes that differ in one colour, or in the order of two."""
    colours = [draw.randbytes(3) for _ in range(draw.randrange(2, 16))]
    samples = bytes(draw.randrange(len(colours)) for _ in range(36))
    other = list(colours)
    if draw.random() < 0.5 and colours[0] != colours[-1]:
        other[0], other[-1] = other[-1], other[0]
    else:
        other[draw.randrange(len(other))] = bytes(3) if any(other[0]) else b"\xff" * 3
    left, right = (Png(6, 6, PALETTE, 8, samples, b"".join(one)) for one in (colours, other))
    return _files(left, right, draw)


def one_bit(draw: random.Random) -> tuple[Thing, Thing]:
    """Long files that differ in one bit, at the ends more often than elsewhere."""
    file = bytearray(draw.randbytes(draw.choice((1, 32, 64, 65, 1024, 1025, 3000))))
    place = draw.choice((0, len(file) - 1, draw.randrange(len(file))))
    other = bytearray(file)
    other[place] ^= 1 << draw.randrange(8)
    return _asked(bytes(file), draw), _asked(bytes(other), draw)


def padded(draw: random.Random) -> tuple[Thing, Thing]:
    """A file and the same with zeros before or behind it."""
    file = draw.randbytes(draw.choice((0, 1, 31, 64, 1024, 2000)))
    zeros = bytes(draw.randrange(1, 70))
    other = zeros + file if draw.random() < 0.5 else file + zeros
    return _asked(file, draw), _asked(other, draw)


def noted(draw: random.Random) -> tuple[Thing, Thing]:
    """The same pixels, other metadata: frame times and orientation stand in metadata."""
    samples = draw.randbytes(48)
    left, right = (draw.randbytes(4) for _ in range(2))
    return _files(
        Png(4, 4, RGB, 8, samples, note=left), Png(4, 4, RGB, 8, samples, note=right), draw
    )


def concatenated(draw: random.Random) -> tuple[Thing, Thing]:
    """The same characters, cut between two fields at another place."""
    text = _word(draw, 4, 12)
    first, second = draw.sample(range(len(text) + 1), 2)
    names = draw.sample(
        ("source", "revision", "weights", "processor_revision", "dtype", "engine"), 2
    )
    left, right = (
        replace(_ENCODER, **{names[0]: text[:cut], names[1]: text[cut:]}) for cut in (first, second)
    )
    return Asked(b"", left), Asked(b"", right)


def exchanged(draw: random.Random) -> tuple[Thing, Thing]:
    """The values of two fields exchanged."""
    names = draw.sample(("source", "revision", "weights", "processor_revision", "engine"), 2)
    one, other = _word(draw, 1, 6), _word(draw, 7, 9)
    left = replace(_ENCODER, **{names[0]: one, names[1]: other})
    return Asked(b"", left), Asked(b"", replace(_ENCODER, **{names[0]: other, names[1]: one}))


def another_type(draw: random.Random) -> tuple[Thing, Thing]:
    """A processor parameter that is equal in another type, or hashes to the same."""
    number = draw.randrange(1, 1 << 20)
    values = draw.choice(
        (
            (number, float(number), str(number), [number], {"a": number}),
            (1, True, 1.0, "1", "True"),
            (0, False, None, "", "0", [], {}, 0.0, "null"),
            (-1, -2),  # equal to Python's hash()
            (number, number + (1 << 61) - 1),  # as well
            (number / 7, number / 7 + 1e-9),
        )
    )
    left, right = draw.sample(values, 2)
    return _parameters({"value": left}, draw), _parameters({"value": right}, draw)


def nested_otherwise(draw: random.Random) -> tuple[Thing, Thing]:
    """The same numbers in lists that are cut at other places."""
    numbers = [draw.randrange(100) for _ in range(draw.randrange(2, 8))]
    first, second = draw.sample(range(len(numbers) + 1), 2)
    left, right = ([numbers[:cut], numbers[cut:]] for cut in (first, second))
    return _parameters({"sizes": left}, draw), _parameters({"sizes": right}, draw)


def renamed(draw: random.Random) -> tuple[Thing, Thing]:
    """The values of two parameters exchanged, or a name and its value cut at another place."""
    if draw.random() < 0.5:
        low, high = draw.randrange(50), draw.randrange(50, 100)
        return (
            _parameters({"height": low, "width": high}, draw),
            _parameters({"height": high, "width": low}, draw),
        )
    text = _word(draw, 3, 9)
    first, second = draw.sample(range(1, len(text)), 2)
    return (
        _parameters({text[:first]: text[first:]}, draw),
        _parameters({text[:second]: text[second:]}, draw),
    )


def in_the_other_part(draw: random.Random) -> tuple[Thing, Thing]:
    """An option of decoding as a parameter of the processor."""
    options = {_word(draw, 3, 6): draw.randrange(9)}
    return (
        Asked(b"", replace(_ENCODER, processor=options, media={})),
        Asked(b"", replace(_ENCODER, processor={}, media=options)),
    )


def other_frames(draw: random.Random) -> tuple[Thing, Thing]:
    """The same film at another rate, or other frames of it."""
    frames = sorted(draw.sample(range(64), 4))
    left: dict[str, object] = {"fps": draw.choice((1, 2, 24)), "frames": frames, "total": 64}
    changed = draw.choice(("fps", "frames", "total"))
    right = left | {changed: [*frames[:3], frames[3] + 1] if changed == "frames" else 97}
    file = draw.randbytes(20)
    return (
        Asked(file, replace(_ENCODER, media=left)),  # type: ignore[arg-type]
        Asked(file, replace(_ENCODER, media=right)),  # type: ignore[arg-type]
    )


def another_precision(draw: random.Random) -> tuple[Thing, Thing]:
    """Encoders of other number types, which have embeddings of the same shape."""
    left, right = draw.sample(("float32", "float16", "bfloat16"), 2)
    file = draw.randbytes(20)
    return (
        Asked(file, replace(_ENCODER, dtype=left)),
        Asked(file, replace(_ENCODER, dtype=right)),
    )


def other_tenant(draw: random.Random) -> tuple[Thing, Thing]:
    """Tenants whose names are hard to tell, or run on into the picture."""
    name = _word(draw, 1, 8)
    names = {
        name, name + "\0", "\0" + name, f"key {name}", f"header {name}", name.upper(), "",
        unicodedata.normalize("NFC", name + "e\u0301"), name + "e\u0301", name * 2,
    }  # fmt: skip
    left, right = draw.sample(sorted(names), 2)
    file = draw.randbytes(20)
    return Asked(file, _ENCODER, left), Asked(file, _ENCODER, right)


def picture_in_the_tenant(draw: random.Random) -> tuple[Thing, Thing]:
    """The same bytes, cut between tenant and picture at another place."""
    text = _word(draw, 4, 12)
    first, second = draw.sample(range(len(text) + 1), 2)
    left, right = (Asked(text[cut:].encode(), _ENCODER, text[:cut]) for cut in (first, second))
    return left, right


def block_cut_otherwise(draw: random.Random) -> tuple[Thing, Thing]:
    """A prompt's tokens and pictures with the same bytes, cut at other places."""
    content = draw.randbytes(96)
    first, second = draw.sample(range(33, 95), 2)
    left, right = (
        draw.choice(
            (
                Block("", content[:32], content[32:cut], (content[cut:],)),
                Block("", b"", content[:cut], (content[cut:],)),
                Block("", b"", b"", (content[:cut], content[cut:])),
            )
        )
        for cut in (first, second)
    )
    return left, right


def another_picture_in_a_block(draw: random.Random) -> tuple[Thing, Thing]:
    """The same tokens, placeholders of another picture, or of the same two in another order."""
    tokens = struct.pack("<16I", *[7] * 16)
    one, other = draw.randbytes(32), draw.randbytes(32)
    left, right = draw.sample(((one,), (other,), (one, other), (other, one), ()), 2)
    return Block("", b"", tokens, left), Block("", b"", tokens, right)


ATTACKS: Mapping[str, Attack] = {
    one.__name__: one
    for one in (
        transposed, reshaped, another_mode, another_depth, another_palette, one_bit, padded, noted,
        concatenated, exchanged, another_type, nested_otherwise, renamed, in_the_other_part,
        other_frames, another_precision, other_tenant, picture_in_the_tenant, block_cut_otherwise,
        another_picture_in_a_block,
    )
}  # fmt: skip

_ENCODER = EncoderIdentity(
    source="hf://org/model", revision="1", weights="ab" * 32, processor_revision="1"
)
_LETTERS = "abcdefgh.:/-_{}\"',01"


def _files(left: Png, right: Png, draw: random.Random) -> tuple[Thing, Thing]:
    tenant = draw.choice(("", "a"))
    return Asked(left.file(), _ENCODER, tenant), Asked(right.file(), _ENCODER, tenant)


def _asked(file: bytes, draw: random.Random) -> Asked:
    del draw
    return Asked(file, _ENCODER)


def _parameters(values: dict[str, object], draw: random.Random) -> Asked:
    del draw
    return Asked(b"", replace(_ENCODER, processor=values))  # type: ignore[arg-type]


def _word(draw: random.Random, least: int, most: int) -> str:
    return "".join(draw.choices(_LETTERS, k=draw.randint(least, most)))


def _typed(value: object) -> object:
    """``value`` in a form whose text tells 1 from True and 1.0, and knows no order of names."""
    if isinstance(value, EncoderIdentity):
        return [(name, _typed(getattr(value, name))) for name in value.__slots__]
    if isinstance(value, Mapping):
        return {"map": sorted((name, repr(_typed(one))) for name, one in value.items())}
    if isinstance(value, list):
        return [_typed(one) for one in value]
    return type(value).__name__, value
