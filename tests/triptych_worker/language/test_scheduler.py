import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from triptych_contract.errors import Overloaded, PromptTooLong
from triptych_worker.domain import Load
from triptych_worker.language.scheduler import (
    Admitted,
    Chunk,
    Demand,
    Limits,
    Scheduler,
    answer_tokens,
    share,
)


def scheduler(
    *,
    kv_tokens: int = 1000,
    max_running: int = 8,
    queue_tokens: int = 1000,
    chunk_tokens: int = 16,
) -> Scheduler:
    return Scheduler(
        Limits(
            context_tokens=500,
            kv_tokens=kv_tokens,
            max_running=max_running,
            queue_tokens=queue_tokens,
            chunk_tokens=chunk_tokens,
        )
    )


def prompt(tokens: int, answer: int = 4) -> Demand:
    return Demand(known=tokens, computed=0, reserve=tokens + answer - 1)


def add(to: Scheduler, *demands: Demand) -> None:
    for demand in demands:
        number = len(to)
        to.open(number, demand)
        to.queue(number)


def steps(of: Scheduler, count: int) -> list[tuple[Chunk, ...]]:
    plans = []
    for _ in range(count):
        of.admit()
        plans.append(of.plan())
        of.advance(plans[-1])
    return plans


def test_a_prompt_is_computed_in_chunks_and_then_one_token_at_a_time() -> None:
    engine = scheduler(chunk_tokens=16)
    add(engine, prompt(40))
    assert steps(engine, 5) == [
        (Chunk(0, 0, 16, samples=False),),
        (Chunk(0, 16, 16, samples=False),),
        (Chunk(0, 32, 8, samples=True),),
        (Chunk(0, 40, 1, samples=True),),
        (Chunk(0, 41, 1, samples=True),),
    ]


def test_answers_advance_in_every_step_of_a_long_prompt() -> None:
    engine = scheduler(chunk_tokens=16)
    add(engine, prompt(8))
    steps(engine, 1)
    add(engine, prompt(40))
    assert steps(engine, 3) == [
        (Chunk(0, 8, 1, samples=True), Chunk(1, 0, 16, samples=False)),
        (Chunk(0, 9, 1, samples=True), Chunk(1, 16, 16, samples=False)),
        (Chunk(0, 10, 1, samples=True), Chunk(1, 32, 8, samples=True)),
    ]


def test_a_short_prompt_passes_a_long_one_that_came_first() -> None:
    engine = scheduler(chunk_tokens=16)
    add(engine, prompt(200), prompt(6), prompt(12))
    assert steps(engine, 3) == [
        (
            Chunk(0, 0, 8, samples=False),
            Chunk(1, 0, 6, samples=True),
            Chunk(2, 0, 2, samples=False),
        ),
        (
            Chunk(1, 6, 1, samples=True),
            Chunk(0, 8, 8, samples=False),
            Chunk(2, 2, 8, samples=False),
        ),
        (
            Chunk(1, 7, 1, samples=True),
            Chunk(0, 16, 14, samples=False),
            Chunk(2, 10, 2, samples=True),
        ),
    ]


def test_equal_prompts_are_done_in_the_order_they_came() -> None:
    assert share([(7, 10), (3, 10), (5, 10)], 16) == {7: 10, 3: 6}


def test_a_prompt_alone_gets_the_whole_budget() -> None:
    assert share([(0, 100)], 15) == {0: 15}


def test_nothing_is_shared_among_nobody() -> None:
    assert share([], 16) == {}


@given(st.lists(st.integers(2, 300), max_size=20), st.integers(1, 64))
def test_shares_fill_the_budget_and_never_exceed_what_is_left(
    lefts: list[int], budget: int
) -> None:
    prompts = list(enumerate(lefts))
    shares = share(prompts, budget)
    assert sum(shares.values()) == min(budget, sum(lefts))
    assert all(0 < shares[number] <= lefts[number] for number in shares)
    if lefts:
        assert shares[0] >= min(lefts[0], (budget + 1) // 2)


def test_ranges_are_given_in_order_of_arrival_and_none_overtakes() -> None:
    engine = scheduler(kv_tokens=100)
    add(engine, prompt(50, answer=11), prompt(60, answer=1), prompt(10, answer=1))
    assert engine.admit() == [Admitted(0, 0)]
    engine.remove(0)
    assert engine.admit() == [Admitted(1, 0), Admitted(2, 60)]


def test_no_more_run_than_allowed() -> None:
    engine = scheduler(max_running=2)
    add(engine, prompt(10), prompt(10), prompt(10))
    assert [admitted.sequence for admitted in engine.admit()] == [0, 1]
    engine.remove(0)
    assert [admitted.sequence for admitted in engine.admit()] == [2]


def test_a_sequence_whose_input_is_on_the_way_is_overtaken() -> None:
    engine = scheduler()
    engine.open(0, prompt(10))
    engine.open(1, prompt(10))
    engine.queue(1)
    assert [admitted.sequence for admitted in engine.admit()] == [1]
    engine.queue(0)
    assert [admitted.sequence for admitted in engine.admit()] == [0]


def test_loaded_keys_and_values_are_not_computed_again() -> None:
    engine = scheduler()
    engine.open(0, Demand(known=31, computed=30, reserve=40))
    engine.queue(0)
    assert engine.admit() == [Admitted(0, 0)]
    assert engine.plan() == ()
    engine.loaded(0)
    assert engine.plan() == (Chunk(0, 30, 1, samples=True),)


def test_what_a_cache_has_is_neither_computed_nor_waited_for() -> None:
    engine = scheduler(chunk_tokens=16, queue_tokens=50)
    add(engine, Demand(known=40, computed=0, reserve=43, cached=32))
    assert engine.load() == Load(waiting=1, backlog_tokens=8)
    engine.open(1, Demand(known=90, computed=0, reserve=93, cached=48))
    assert steps(engine, 2) == [
        (Chunk(0, 32, 8, samples=True),),
        (Chunk(0, 40, 1, samples=True),),
    ]


def test_a_prompt_that_has_not_begun_skips_what_a_cache_has_got_since() -> None:
    engine = scheduler(chunk_tokens=16)
    add(engine, prompt(40), prompt(40))
    engine.open(2, prompt(40))
    assert engine.unbegun() == []  # without a range
    steps(engine, 1)
    assert engine.unbegun() == [1]
    engine.skip(1, 32)
    assert engine.load().backlog_tokens == 24 + 8 + 40
    assert steps(engine, 1) == [(Chunk(0, 16, 8, samples=False), Chunk(1, 32, 8, samples=True))]
    assert engine.unbegun() == []


def test_loaded_keys_and_values_are_no_prompt_to_begin() -> None:
    engine = scheduler()
    add(engine, Demand(known=31, computed=30, reserve=40))
    engine.admit()
    engine.loaded(0)
    assert engine.unbegun() == []


def test_a_parked_sequence_keeps_its_range_and_computes_nothing() -> None:
    engine = scheduler(kv_tokens=20)
    add(engine, prompt(10, answer=1))
    steps(engine, 1)
    engine.park(0)
    assert engine.plan() == ()
    assert engine.load().kv_tokens_used == 10
    engine.remove(0)
    assert engine.load() == Load()


def test_what_could_never_fit_the_memory_is_refused_with_the_numbers() -> None:
    with pytest.raises(PromptTooLong, match="need 103 tokens of KV memory, this worker has 100"):
        scheduler(kv_tokens=100).open(0, prompt(100))


def test_too_many_waiting_tokens_are_refused_with_a_hint() -> None:
    engine = scheduler(queue_tokens=50)
    add(engine, prompt(30))
    with pytest.raises(Overloaded, match="30 tokens wait, the bound is 50") as refused:
        engine.open(1, prompt(21), retry_after=2.5)
    assert refused.value.retry_after == 2.5
    assert len(engine) == 1
    engine.open(1, prompt(20))


def test_a_prompt_beyond_the_queue_is_taken_when_nothing_waits() -> None:
    engine = scheduler(queue_tokens=50)
    engine.open(0, prompt(60))
    assert engine.load().waiting == 1


def test_running_sequences_do_not_count_as_waiting() -> None:
    engine = scheduler(queue_tokens=50)
    add(engine, prompt(50))
    engine.admit()
    engine.open(1, prompt(50))
    assert engine.load() == Load(running=1, waiting=1, backlog_tokens=100, kv_tokens_used=53)


def test_backlog_is_what_prompts_have_left() -> None:
    engine = scheduler(chunk_tokens=16)
    add(engine, prompt(8), prompt(20))
    steps(engine, 1)
    assert engine.load() == Load(running=2, waiting=0, backlog_tokens=12, kv_tokens_used=34)


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens", "expected"), [(10, 5, 5), (95, 5, 5), (96, 5, 4), (99, 5, 1)]
)
def test_the_context_bounds_an_answer(prompt_tokens: int, max_tokens: int, expected: int) -> None:
    assert answer_tokens(prompt_tokens, max_tokens, context_tokens=100) == expected


def test_a_prompt_that_fills_the_context_is_refused_with_the_numbers() -> None:
    with pytest.raises(PromptTooLong, match="has 100 tokens, the model's context is 100"):
        answer_tokens(100, 1, context_tokens=100)


_DEMANDS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(_DEMANDS, st.integers(1, 32), st.integers(1, 4))
def test_everything_ends_within_its_range_and_all_memory_returns(
    demands: list[tuple[int, int]], chunk_tokens: int, max_running: int
) -> None:
    engine = scheduler(chunk_tokens=chunk_tokens, max_running=max_running, kv_tokens=100)
    sampled = dict.fromkeys(range(len(demands)), 0)
    for number, (tokens, answer) in enumerate(demands):
        engine.open(number, prompt(tokens, answer))
        engine.queue(number)
    for _ in range(2000):
        engine.admit()
        engine.check_integrity()
        chunks = engine.plan()
        engine.advance(chunks)
        for chunk in chunks:
            tokens, answer = demands[chunk.sequence]
            assert chunk.start + chunk.length <= tokens + answer - 1
            sampled[chunk.sequence] += chunk.samples
            if sampled[chunk.sequence] == answer:
                engine.remove(chunk.sequence)
        if not len(engine):
            break
    assert sampled == {number: answer for number, (_, answer) in enumerate(demands)}
    assert engine.load() == Load()
