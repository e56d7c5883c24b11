from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from triptych_contract.names import Tier
from triptych_worker.startup import granted_cores, tuned

PROGRAM = """
import json, os, sys
from triptych_contract.names import Tier
from triptych_worker.startup import restart_tuned
restart_tuned(Tier(sys.argv[1]))
print(json.dumps([os.environ["GOMP_SPINCOUNT"], os.environ["GLIBC_TUNABLES"], sys.argv[1:]]))
"""


def test_settings_are_added_once_and_the_users_own_stay() -> None:
    first = tuned({"HOME": "/", "GOMP_SPINCOUNT": "7"}, Tier.DECODE, None)
    assert first is not None
    assert first["GOMP_SPINCOUNT"] == "7"
    assert "hugetlb=1" in first["GLIBC_TUNABLES"]
    assert "OMP_NUM_THREADS" not in first
    assert tuned(first, Tier.DECODE, None) is None


def test_a_limit_of_cores_is_one_of_threads_unless_the_user_gives_another() -> None:
    limited = tuned({}, Tier.ENCODER, 2)
    assert limited is not None
    assert limited["OMP_NUM_THREADS"] == "2"
    assert tuned(limited, Tier.ENCODER, 2) is None
    own = tuned({"OMP_NUM_THREADS": "3"}, Tier.ENCODER, 2)
    assert own is not None
    assert own["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "garbage\n"}, None),
        ({}, None),
    ],
)
def test_the_limit_is_read_from_control_groups_of_both_versions(
    tmp_path: Path, files: dict[str, str], cores: int | None
) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert granted_cores(tmp_path) == cores


def test_a_program_starts_anew_with_its_settings_and_its_arguments() -> None:
    names = ("GOMP_SPINCOUNT", "GLIBC_TUNABLES")
    plain = {name: value for name, value in os.environ.items() if name not in names}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, "decode", "--config", "a b"],
        env=plain, stdout=subprocess.PIPE, timeout=60, check=True,
    )  # fmt: skip
    spin, tunables, arguments = json.loads(ran.stdout)
    assert int(spin) > 0
    assert tunables
    assert arguments == ["decode", "--config", "a b"]
