from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from references import FINGERPRINT, Picture, Reference, message_cases
from triptych_contract.errors import InvalidRequest
from triptych_worker.domain import Handle, HandleKind, MediaItem, Sampling, Span
from triptych_worker.language.positions import mrope_positions, text_positions

pytestmark = pytest.mark.torch


def handle(rows: int) -> Handle:
    return Handle(
        kind=HandleKind.EMBEDDING,
        lease_id="lease",
        source="127.0.0.1:1",
        instance="encoder",
        key=bytes(32),
        fingerprint=FINGERPRINT,
        shape=(rows, 8),
        dtype="float32",
        size_bytes=rows * 32,
        checksum=bytes(16),
        ttl_seconds=30.0,
        transports=("grpc",),
    )


def item(offset: int, grid: tuple[int, ...], length: int) -> MediaItem:
    return MediaItem(handle(length), (Span(offset, length),), grid)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("name", message_cases())
def test_positions_are_those_of_the_whole_model(
    tiny_folder: Callable[[str], Path], family: str, name: str
) -> None:
    reference = Reference(tiny_folder(family))
    case = reference.case(message_cases()[name], max_tokens=1)

    def publish(picture: Picture) -> Handle:
        return handle(len(picture.rows))

    request = case.request(publish, Sampling())
    ours, delta = mrope_positions(len(case.token_ids), request.prompt.media, merge=2)
    token_ids = torch.tensor([case.token_ids])
    grids = torch.tensor([picture.grid for picture in case.pictures]).reshape(-1, 3)
    theirs, deltas = reference.model.model.get_rope_index(
        token_ids,
        mm_token_type_ids=(token_ids == reference.model.config.image_token_id).int(),
        image_grid_thw=grids,
    )
    assert torch.equal(ours, theirs[:, 0])
    assert delta == int(deltas)


def test_text_goes_on_beyond_the_longer_side_of_a_picture() -> None:
    positions, delta = mrope_positions(9, [item(2, (1, 4, 6), 6)], merge=2)
    assert positions.tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5],
        [0, 1, 2, 2, 2, 3, 3, 3, 5],
        [0, 1, 2, 3, 4, 2, 3, 4, 5],
    ]
    assert delta == -3


def test_plain_positions_count() -> None:
    assert text_positions(4).tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    "media",
    [
        [item(0, (), 4)],
        [item(0, (1, 4), 4)],
        [item(0, (1, 3, 4), 3)],
        [item(0, (0, 4, 4), 4)],
        [item(0, (1, 4, 4), 5)],
        [MediaItem(handle(4), (Span(0, 2), Span(4, 2)), (1, 4, 4))],
    ],
    ids=["none", "two numbers", "not merged", "zero", "another length", "two spans"],
)
def test_a_grid_that_is_not_the_models_is_refused(media: Sequence[MediaItem]) -> None:
    with pytest.raises(InvalidRequest, match="use the processor of the served model"):
        mrope_positions(10, media, merge=2)
