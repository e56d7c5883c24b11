"""No answer is made from an embedding of another version, however often versions change under load.

TRIPTYCH_SWEEP=full changes 20 times; otherwise each kind of change is made once. The same test on
sources whose cache keys leave the fingerprint out must find stale answers: it could see them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from coherence.rolled_service import rolled_service
from coherence.steady_load import SteadyLoad, steady_load
from coherence.versions import CYCLE, Version, questions

pytestmark = [pytest.mark.torch, pytest.mark.processes, pytest.mark.timeout(1800)]

SWITCHES = 20 if os.environ.get("TRIPTYCH_SWEEP") == "full" else len(CYCLE)
ROOT = Path(__file__).resolve().parents[2]

# The fingerprint is in a key twice: in the key's own digest, and beside it in the cache. A version
# of the sources without both is what the field's engines do.
WITHOUT_FINGERPRINT = (
    ("contract/triptych_contract/fingerprints.py", "bytes.fromhex(fingerprint), salt)", "salt)"),
    (
        "worker/triptych_worker/stages/embeddings.py",
        "(handle.key, handle.fingerprint)",
        '(handle.key, "")',
    ),
)


async def test_every_answer_is_right_for_the_version_that_it_names(tmp_path):
    async with rolled_service(tmp_path) as service:
        first = await service.start(CYCLE[0])
        async with steady_load(questions(), first.url) as load:
            await load.wait_for(2 * len(load.questions))
            for turn in range(1, SWITCHES + 1):
                await service.switch(CYCLE[turn % len(CYCLE)], load, flush=turn % 2 == 0)
        print(summary(load, service.versions))
        assert load.failed == []
        assert load.stale(service.versions) == []
        assert {one.fingerprint for one in load.asked} == set(service.versions)
        assert len(service.versions) == len(CYCLE)


async def test_without_the_fingerprint_in_its_keys_the_test_sees_stale_answers(tmp_path):
    sources = copy_without_fingerprint(tmp_path / "sources")
    async with rolled_service(tmp_path, sources) as service:
        first = await service.start(CYCLE[0])
        async with steady_load(questions(), first.url) as load:
            await load.wait_for(2 * len(load.questions))
            await service.switch(CYCLE[1], load, flush=False)
        print(summary(load, service.versions))
        stale = load.stale(service.versions)
        assert stale
        assert all(one.text == one.question.expected(CYCLE[0]) for one in stale)


def copy_without_fingerprint(folder: Path) -> tuple[Path, ...]:
    for name in ("contract", "worker"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path, old, new in WITHOUT_FINGERPRINT:
        source = folder / path
        text = source.read_text()
        assert old in text, f"{path} has changed: find what keeps fingerprints apart now"
        source.write_text(text.replace(old, new))
    return folder / "contract", folder / "worker"


def summary(load: SteadyLoad, versions: dict[str, Version]) -> str:
    stale = len(load.stale(versions))
    return f"{len(load.asked)} requests, {len(load.failed)} failed, {stale} stale"
