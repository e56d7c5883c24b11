"""Nothing that differs has equal keys, and nothing that is equal has different ones.

TRIPTYCH_SWEEP=full tries a million pairs; otherwise 20,000 are tried.
"""

from __future__ import annotations

import hashlib
import io
import os
import random

import pytest
from key_attacks import ATTACKS, Asked
from picture_files import GREY, PALETTE, RGB, Png
from PIL import Image

PAIRS = 1_000_000 if os.environ.get("TRIPTYCH_SWEEP") == "full" else 20_000
CHUNK = 20_000  # pairs whose keys are all compared with each other


@pytest.mark.timeout(1800)
def test_adversarial_pairs_do_not_collide() -> None:
    draw = random.Random(16)
    attacks = list(ATTACKS.values())
    apart = 0
    for start in range(0, PAIRS, CHUNK):
        keys, names = set[bytes](), set[bytes]()
        for number in range(start, start + CHUNK):
            left, right = attacks[number % len(attacks)](draw)
            differ = left.name() != right.name()
            assert (left.key() != right.key()) is differ, (left, right)
            apart += differ
            keys |= {left.key(), right.key()}
            names |= {hashlib.sha256(repr(it.name()).encode()).digest() for it in (left, right)}
        assert len(keys) == len(names)
    assert apart > 0.99 * PAIRS


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_attacks(attack: str) -> None:
    draw = random.Random(1)
    pairs = [ATTACKS[attack](draw) for _ in range(50)]
    assert sum(left.name() != right.name() for left, right in pairs) > 45
    assert all(len(one.key()) == 32 for pair in pairs for one in pair)


def test_the_order_in_which_parameters_are_written_is_nothing_to_a_key() -> None:
    draw = random.Random(2)
    for _ in range(200):
        one, _ = ATTACKS["renamed"](draw)
        assert isinstance(one, Asked)
        turned = dict(reversed(list(one.encoder.processor.items())))
        other = Asked(bytes(one.file), type(one.encoder)(**_fields(one, turned)), one.tenant)
        assert other.name() == one.name()
        assert other.key() == one.key()


# What keys of other systems left out, and an attack that tells.
LESS = {
    "no lengths": (lambda one: "".join(map(str, _fields(one, {}).values())), "concatenated"),
    "no types": (lambda one: [str(it) for it in one.encoder.processor.values()], "another_type"),
    "no names": (lambda one: str(sorted(one.encoder.processor.values(), key=str)), "renamed"),
    "half a byte": (lambda one: one.key()[0] >> 4, "one_bit"),
    "samples alone": (lambda one: Image.open(io.BytesIO(one.file)).tobytes(), "transposed"),
    "no decoding": (lambda one: (one.file, one.encoder.processor), "other_frames"),
    "no tenant": (lambda one: (one.file, one.encoder), "other_tenant"),
}


@pytest.mark.parametrize("less", LESS)
def test_the_attacks_find_keys_that_leave_something_out(less: str) -> None:
    key, attack = LESS[less]
    draw = random.Random(3)
    pairs = [ATTACKS[attack](draw) for _ in range(500)]
    assert any(key(left) == key(right) for left, right in pairs if left.name() != right.name())


@pytest.mark.parametrize(
    ("png", "mode", "size"),
    [
        (Png(3, 2, RGB, 8, bytes(range(18))), "RGB", (3, 2)),
        (Png(9, 2, GREY, 8, bytes(range(18))), "L", (9, 2)),
        (Png(2, 2, GREY, 16, bytes(8)), "I;16", (2, 2)),
        (Png(2, 2, PALETTE, 8, b"\0\1\1\0", bytes(range(6))), "P", (2, 2)),
    ],
)
def test_the_files_of_the_attacks_are_pictures(png: Png, mode: str, size: tuple[int, int]) -> None:
    with Image.open(io.BytesIO(png.file())) as picture:
        picture.load()
        assert (picture.mode, picture.size) == (mode, size)


def _fields(one: Asked, processor: dict[str, object]) -> dict[str, object]:
    fields = {name: getattr(one.encoder, name) for name in type(one.encoder).__slots__}
    return fields | {"processor": processor}
