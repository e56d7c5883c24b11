"""What checkov and kube-score find in a folder of manifests, in one shape."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tools.programs import program

ROOT = Path(__file__).resolve().parents[2]
EXEMPTIONS = Path(__file__).parent / "exemptions.yaml"
WARNING = 5  # kube-score's grades: 1 critical, 5 warning, 7 and more almost or quite right


@dataclass(frozen=True)
class Finding:
    """One check that failed on one object, written KIND/NAME."""

    check: str
    subject: str
    text: str


@dataclass(frozen=True)
class Exemption:
    """A check that may fail on objects that one of the expressions matches."""

    check: str
    objects: tuple[str, ...]

    def covers(self, finding: Finding) -> bool:
        matched = any(re.fullmatch(one, finding.subject) for one in self.objects)
        return matched and finding.check == self.check


def exemptions(tool: str) -> list[Exemption]:
    """Those that ``exemptions.yaml`` gives, each with a reason."""
    given = yaml.safe_load(EXEMPTIONS.read_text())[tool]
    assert all(one["reason"] for one in given.values())
    return [Exemption(check, tuple(one["objects"])) for check, one in given.items()]


def checkov(folder: Path) -> list[Finding]:
    """Checks of Kubernetes objects that failed."""
    built = subprocess.run([ROOT / "hack/checkov"], check=True, stdout=subprocess.PIPE, text=True)
    command = [built.stdout.strip(), "--directory", folder, "--framework", "kubernetes"]
    answer = _json([*command, "--skip-download", "--output", "json"])
    assert answer["summary"]["parsing_errors"] == 0
    assert answer["summary"]["passed"] > 100
    return [_checkov_finding(one) for one in answer["results"]["failed_checks"]]


def kube_score(files: list[Path]) -> list[Finding]:
    """Checks that are critical or a warning."""
    answer = _json([program("kube-score"), "score", "--output-format", "json", *files])
    assert answer
    return [found for one in answer for found in _kube_score_findings(one)]


def _json(command: list[str | Path]) -> Any:
    """What a program printed; both end with an error when they find anything."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def _checkov_finding(check: dict[str, Any]) -> Finding:
    kind, *_, name = check["resource"].split(".")
    return Finding(check["check_id"], f"{kind}/{name}", check["check_name"])


def _kube_score_findings(scored: dict[str, Any]) -> Iterator[Finding]:
    subject = f"{scored['type_meta']['kind']}/{scored['object_meta']['name']}"
    for one in scored["checks"]:
        if not one["skipped"] and one["grade"] <= WARNING:
            told = "; ".join(comment["summary"] for comment in one["comments"] or ())
            yield Finding(one["check"]["id"], subject, told)
