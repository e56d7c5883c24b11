from __future__ import annotations

import json
import os
import subprocess
import sys

from triptych_worker.startup import tuned

PROGRAM = """
import json, os, sys
from triptych_worker.startup import restart_tuned
restart_tuned()
print(json.dumps([os.environ["GOMP_SPINCOUNT"], os.environ["GLIBC_TUNABLES"], sys.argv[1:]]))
"""


def test_settings_are_added_once_and_the_users_own_stay() -> None:
    first = tuned({"HOME": "/", "GOMP_SPINCOUNT": "7"})
    assert first is not None
    assert first["GOMP_SPINCOUNT"] == "7"
    assert "hugetlb=1" in first["GLIBC_TUNABLES"]
    assert tuned(first) is None


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
