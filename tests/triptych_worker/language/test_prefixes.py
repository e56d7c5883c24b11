from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_contract.fingerprints import KEY_BYTES, tenant_salt
from triptych_worker.domain import Handle, HandleKind, MediaItem, Span
from triptych_worker.language.prefixes import BLOCK_TOKENS, Block, chain

SALT = tenant_salt("a")
ENCODER, OTHER = "ab" * 32, "cd" * 32
TEXT = tuple(range(100, 100 + 5 * BLOCK_TOKENS))


def picture(
    *spans: tuple[int, int],
    key: int = 1,
    fingerprint: str = ENCODER,
    grid: tuple[int, ...] = (1, 4, 6),
) -> MediaItem:
    rows = sum(length for _, length in spans)
    handle = Handle(
        HandleKind.EMBEDDING, "lease", "h:1", "i", bytes([key]) * KEY_BYTES, fingerprint, (rows, 8),
        "float32", rows * 32, bytes(16), 30.0, ("grpc",),
    )  # fmt: skip
    return MediaItem(handle, tuple(Span(*span) for span in spans), grid)


def shared(one: tuple[Block, ...], other: tuple[Block, ...]) -> int:
    """Blocks that both begin with; behind the first difference there is no equal one."""
    same = [a.key == b.key for a, b in zip(one, other, strict=False)]
    first = same.index(False) if False in same else len(same)
    assert not any(same[first:])
    return first


def test_only_whole_blocks_have_a_name_and_each_its_own() -> None:
    for tokens, blocks in ((0, 0), (BLOCK_TOKENS - 1, 0), (BLOCK_TOKENS, 1), (len(TEXT), 5)):
        assert len(chain(TEXT[:tokens], (), SALT)) == blocks
    repeated = chain((7,) * 5 * BLOCK_TOKENS, (), SALT)
    assert len({block.key for block in repeated}) == 5
    assert {len(block.key) for block in repeated} == {KEY_BYTES}


@pytest.mark.parametrize("at", [0, BLOCK_TOKENS - 1, BLOCK_TOKENS, 2 * BLOCK_TOKENS + 3])
def test_a_token_changes_its_block_and_all_behind_it(at: int) -> None:
    other = (*TEXT[:at], 9, *TEXT[at + 1 :])
    assert shared(chain(TEXT, (), SALT), chain(other, (), SALT)) == at // BLOCK_TOKENS


def test_tenants_share_nothing() -> None:
    assert shared(chain(TEXT, (), SALT), chain(TEXT, (), tenant_salt("b"))) == 0


def test_a_salt_that_is_no_whole_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="whole digests"):
        chain(TEXT, (), b"short")


@pytest.mark.parametrize(
    "other",
    [
        picture((20, 24), key=2),
        picture((20, 24), fingerprint=OTHER),
        picture((20, 24), grid=(1, 6, 4)),
        picture((20, 24), grid=()),
        picture((20, 23)),
        picture((21, 24)),
        picture((20, 20), (41, 4)),
    ],
    ids=[
        "another picture", "another encoder", "transposed", "no grid", "shorter", "later", "in two",
    ],
)  # fmt: skip
def test_what_stands_in_a_pictures_place_changes_its_blocks(other: MediaItem) -> None:
    one = chain(TEXT, [picture((20, 24))], SALT)
    assert shared(one, chain(TEXT, [other], SALT)) in (1, 2)
    assert shared(one, chain(TEXT, (), SALT)) == 1


def test_rows_of_one_picture_are_told_apart() -> None:
    """Two pictures of which the second begins where the first would go on."""
    whole = chain(TEXT, [picture((16, 32))], SALT)
    halves = chain(TEXT, [picture((16, 16)), picture((32, 16))], SALT)
    assert shared(whole, halves) == 2


def test_a_handle_that_leads_to_the_same_embedding_changes_nothing() -> None:
    item = picture((20, 24))
    moved = replace(item, handle=replace(item.handle, lease_id="b", source="x:2", instance="j"))
    assert chain(TEXT, [item], SALT) == chain(TEXT, [moved], SALT)


def test_blocks_hang_on_an_encoder_from_the_first_picture_on() -> None:
    blocks = chain(TEXT, [picture((35, 10)), picture((50, 4), key=2)], SALT)
    assert [block.fingerprint for block in blocks] == ["", "", ENCODER, ENCODER, ENCODER]


def test_a_longer_sequence_goes_on_from_what_is_known() -> None:
    media = [picture((30, 40))]
    begun = chain(TEXT[:40], media, SALT)
    assert chain(TEXT, media, SALT, known=begun) == chain(TEXT, media, SALT)


@given(st.lists(st.integers(0, 3), min_size=48, max_size=48), st.integers(0, 47))
def test_equal_names_mean_equal_beginnings(tokens: list[int], at: int) -> None:
    other = [*tokens[:at], tokens[at] + 1, *tokens[at + 1 :]]
    assert shared(chain(tokens, (), SALT), chain(other, (), SALT)) == at // BLOCK_TOKENS
