import pytest
import torch
from tiny_tokenizers import byte_level
from triptych_worker.domain import Sampling
from triptych_worker.language.answer import Answer
from triptych_worker.language.attention import Segment
from triptych_worker.language.batching import pack
from triptych_worker.language.scheduler import Chunk, Demand
from triptych_worker.language.sequence import Placed, Sequence, Task
from triptych_worker.language.vocabulary import Vocabulary

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


def sequence(number: int, length: int, *placed: Placed, delta: int = 0) -> Sequence:
    answer = Answer(Sampling(), 100, frozenset(), Vocabulary(byte_level()).decode)
    task = Task(
        demand=Demand(length, 0, length + 10),
        prompt_tokens=length,
        token_ids=torch.arange(length) + 100 * number,
        positions=torch.arange(length).expand(3, -1),
        delta=delta,
        answer=answer,
        sampling=Sampling(),
    )
    return Sequence(number, task, placed, kv_start=1000 * number)


def test_prompts_and_answers_are_packed_one_after_another() -> None:
    answering, prompt = sequence(1, 5, delta=-2), sequence(2, 8)
    answering.task.answer.resume([65, 66])
    chunks = [Chunk(1, 6, 1, samples=True), Chunk(2, 2, 4, samples=False)]
    batch = pack(chunks, {1: answering, 2: prompt}, CPU)
    assert batch.token_ids.tolist() == [66, 202, 203, 204, 205]
    assert batch.positions.tolist() == [[4, 2, 3, 4, 5]] * 3
    assert batch.segments == (Segment(1000, 6, 1), Segment(2000, 2, 4))
    assert batch.logit_rows == (0,)
    assert batch.visual is None


@pytest.mark.parametrize(
    ("start", "length", "index", "rows"),
    [
        (0, 2, None, None),
        (0, 4, [3, 4], [0, 1]),
        (3, 2, [1, 2], [1, 2]),
        (4, 4, [1, 4], [2, 10]),
        (0, 8, [3, 4, 5, 8], [0, 1, 2, 10]),
    ],
    ids=["before", "beginning", "middle", "the end and another", "whole"],
)
def test_embeddings_of_a_chunk_replace_its_own_tokens(
    start: int, length: int, index: list[int] | None, rows: list[int] | None
) -> None:
    first = Placed(2, torch.arange(3.0).reshape(3, 1))
    second = Placed(7, torch.tensor([[10.0]]))
    sequences = {1: sequence(1, 5), 2: sequence(2, 9, first, second)}
    chunks = [Chunk(1, 0, 1, samples=False), Chunk(2, start, length, samples=False)]
    visual = pack(chunks, sequences, CPU).visual
    if index is None:
        assert visual is None
        return
    assert visual is not None
    assert visual.index.tolist() == index
    assert visual.rows[:, 0].tolist() == rows
