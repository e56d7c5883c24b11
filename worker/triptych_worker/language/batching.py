"""From the scheduler's chunks to the tensors of one forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Items

import torch

from triptych_worker.language.attention import Segment
from triptych_worker.language.families import Visual
from triptych_worker.language.model import PackedBatch
from triptych_worker.language.scheduler import Chunk
from triptych_worker.language.sequence import Sequence


def pack(
    chunks: Items[Chunk], sequences: Mapping[int, Sequence], device: torch.device
) -> PackedBatch:
    """The chunks' tokens in the chunks' order; one row of logits for each that samples."""
    parts = [(sequences[chunk.sequence], chunk) for chunk in chunks]
    return PackedBatch(
        token_ids=_joined([part.tokens(c.start, c.length) for part, c in parts]).to(device),
        positions=_joined([part.positions(c.start, c.length) for part, c in parts]).to(device),
        visual=_visual(parts, device),
        segments=tuple(Segment(part.kv_start, c.start, c.length) for part, c in parts),
        logit_rows=tuple(_sampling_rows(chunks)),
    )


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def _sampling_rows(chunks: Items[Chunk]) -> Iterator[int]:
    end = 0
    for chunk in chunks:
        end += chunk.length
        if chunk.samples:
            yield end - 1


def _visual(parts: Iterable[tuple[Sequence, Chunk]], device: torch.device) -> Visual | None:
    """The embedding rows that fall into the chunks, and the packed tokens that they replace."""
    indices, rows = [], []
    first = 0  # packed index of the chunk's first token
    for sequence, chunk in parts:
        end = chunk.start + chunk.length
        for placed in sequence.placed:
            begin = max(placed.offset, chunk.start)
            stop = min(placed.offset + placed.rows.shape[0], end)
            if begin < stop:
                shift = first - chunk.start
                indices.append(torch.arange(begin + shift, stop + shift))
                rows.append(placed.rows[begin - placed.offset : stop - placed.offset])
        first += chunk.length
    if not rows:
        return None
    return Visual(torch.cat(indices).to(device), torch.cat(rows).to(device))
