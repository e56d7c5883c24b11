"""Time to the first token by which caches there are: each alone, each missing, none and all.

One FullSplit service after the other. Each picture is asked about when it is new, and again with
another question; what the second asking takes less is what the caches are worth.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Final

from bench import client
from bench.samples import percentile
from bench.systems import Server, Tuning, log_folder, triptych
from bench.tables import milliseconds, ratio, table


class Kind(StrEnum):
    """What can be switched off."""

    PROCESSOR = "processor"
    EMBEDDINGS = "embeddings"  # the encoder's cache and prefill's
    PREFIXES = "prefixes"


PICTURES: Final = 6
FIRST_SEED: Final = 3_200_000
WARM: Final = range(FIRST_SEED - 2, FIRST_SEED)
ANOTHER_QUESTION: Final = "which colours are there"
TOKENS: Final = 2
_OFF: Final = {"capacity": 0}
_PLACES: Final = {
    Kind.PROCESSOR: (("gateway", "cache"),),
    Kind.EMBEDDINGS: (("encoder", "cache"), ("prefill", "cache")),
    Kind.PREFIXES: (("prefill", "prefixCache"),),
}
SETTINGS: Final = (
    (),
    tuple(Kind),
    *((kind,) for kind in Kind),
    *(tuple(other for other in Kind if other is not kind) for kind in Kind),
)

Times = dict[tuple[Kind, ...], tuple[list[float], list[float]]]  # seconds: new, known
_Answers = dict[tuple[int, str], str]  # by picture and question


async def measure(say: Callable[[str], None]) -> Times:
    """Seconds to the first token by the caches that are on, one request at a time.

    Raises:
        WrongAnswer: the answers are not the same with all of them.
    """
    times: Times = {}
    answers: _Answers = {}
    logs = log_folder() / "alone"
    logs.mkdir(exist_ok=True)
    for caches in SETTINGS:
        async with triptych(logs, "FullSplit", Tuning(tiers=tiers(caches))) as system:
            assert isinstance(system, Server)
            await client.load(system.api, WARM, 1, TOKENS)
            times[caches] = await _asked(system.api, answers)
        cold, warm = (milliseconds(percentile(column, 50)) for column in times[caches])
        say(f"{name(caches)}: {cold} ms for a new picture, {warm} ms for a known one")
    return times


async def _asked(api: client.Api, answers: _Answers) -> tuple[list[float], list[float]]:
    """Times of new and known pictures; what is answered must be what it was before."""
    new: list[float] = []
    known: list[float] = []
    for seed in range(FIRST_SEED, FIRST_SEED + PICTURES):
        for question, column in ((client.QUESTION, new), (ANOTHER_QUESTION, known)):
            (sample,) = await client.load(api, [seed], 1, TOKENS, question)
            column.append(sample.first)
            if answers.setdefault((seed, question), sample.text) != sample.text:
                raise client.WrongAnswer(f"{api.url} answers otherwise than with other caches")
    return new, known


def tiers(caches: Collection[Kind]) -> dict[str, dict[str, object]]:
    """What a resource says of its tiers to have no caches but these."""
    found: dict[str, dict[str, object]] = {}
    for kind, places in _PLACES.items():
        for tier, cache in places if kind not in caches else ():
            found.setdefault(tier, {})[cache] = _OFF
    return found


def name(caches: Collection[Kind]) -> str:
    """In words."""
    missing = [kind for kind in Kind if kind not in caches]
    if not missing:
        return "all"
    if len(missing) == 1:
        return f"all but {missing[0]}"
    return f"{' '.join(caches)} alone" if caches else "none"


def report(times: Times) -> str:
    """Medians, and what is left of the first."""
    rows = []
    for caches, (new, known) in times.items():
        cold, warm = percentile(new, 50), percentile(known, 50)
        rows.append([name(caches), milliseconds(cold), milliseconds(warm), ratio(warm, cold)])
    return table(["caches", "new picture, ms", "known picture, ms", "known : new"], rows)
