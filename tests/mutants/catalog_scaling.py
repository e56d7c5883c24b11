"""Faults of what is measured, of what becomes of it, and of who is told."""

from __future__ import annotations

from typing import Final

from mutants.places import (
    BOUNDS,
    DEPARTURES,
    HISTORY,
    MEASURES,
    MEMORY,
    METRICS_SERVER,
    PAGE,
    REGISTRATION,
    REST,
    ROUNDS,
    SCALER,
    Mutant,
)

MEASURING: Final = (
    Mutant(
        "a pod that is too busy to answer counts as idle",
        MEASURES,
        "            silent += 1\n",
        "            silent += 0\n",
    ),
    Mutant(
        "nobody answers, and that counts as nothing to do",
        MEASURES,
        "    if not known:\n        return None\n",
        "    if not known:\n        return 0.0\n",
    ),
    Mutant(
        "a pod that comes in the midst counts by its own time",
        MEASURES,
        "sum(map(history.increase, series)) / seconds)",
        "sum(map(history.increase, series)) / max(history.seconds, 1.0))",
    ),
    Mutant(
        "requests that nobody takes up have not waited",
        MEASURES,
        "            stuck = history.least(_WAITING)\n",
        "            stuck = 0.0\n",
    ),
    Mutant(
        "a process that began anew measures less than nothing",
        HISTORY,
        "return after - before if after >= before else after",
        "return after - before",
    ),
    Mutant(
        "what a pod told stands for as long as the pod is there",
        MEMORY,
        "        return history if self._round - self._answered[asked.key] < STANDING else None\n",
        "        return history\n",
    ),
    Mutant(
        "pods that are going count among those that work",
        MEMORY,
        "if pod.address and not pod.terminating and tier in _TIERS:",
        "if pod.address and tier in _TIERS:",
    ),
    Mutant(
        "pods that hang take the time of those that answer",
        ROUNDS,
        "key=self._memory.last_at, reverse=True)",
        "key=self._memory.last_at)",
    ),
    Mutant(
        "numbers that are none are reckoned with",
        PAGE,
        "    if not 0 <= value <= _MOST:\n",
        "    if value > _MOST:\n",
    ),
)

ACTING: Final = (
    Mutant(
        "a tier shrinks further while it drains",
        BOUNDS,
        "        fewest = max(fewest, standing.desired)  #",
        "        fewest = max(fewest, 0)  #",
    ),
    Mutant(
        "a balance takes pods away that still have work",
        BOUNDS,
        "max(_times(ratio.max, pods, ROUND_FLOOR), standing.desired)",
        "_times(ratio.max, pods, ROUND_FLOOR)",
    ),
    Mutant(
        "a balance goes beyond the tier's own most",
        BOUNDS,
        "    fewest = min(max(fewest, given.min), given.max)\n",
        "    fewest = max(fewest, given.min)\n",
    ),
    Mutant(
        "encoders rest although a gateway could not be asked",
        REST,
        "    return False if heard and signals.answering == signals.pods else None\n",
        "    return False\n",
    ),
    Mutant(
        "the fullest pods are marked first, and the rest wait",
        DEPARTURES,
        "key=lambda pod: (wanted[pod], pod))",
        "key=lambda pod: (-wanted[pod], pod))",
    ),
    Mutant(
        "what pods tell is not looked at while nothing else changes",
        SCALER,
        "            and not self._is_told(key)\n",
        "",
    ),
    Mutant(
        "rest and wake are told and not done",
        SCALER,
        "        if await self._set_pods(key, Tier.ENCODER, pods):\n",
        "        if pods is not None or await self._set_pods(key, Tier.ENCODER, pods):\n",
    ),
)

TELLING: Final = (
    Mutant(
        "whoever the front proxy's authority knows may call",
        METRICS_SERVER,
        "        if not self._allows(request):\n",
        "        if self._front_proxy is None:\n",
    ),
    Mutant(
        "values of one namespace are told in another",
        METRICS_SERVER,
        "            if service.namespace == namespace and found",
        "            if found",
    ),
    Mutant(
        "another adapter's place is taken",
        REGISTRATION,
        "        if found is None or problem:\n",
        "        if found is None:\n",
    ),
    Mutant(
        "an adapter that comes in between is given our trust",
        REGISTRATION,
        '"metadata": {"name": API_SERVICE, "resourceVersion": version},',
        '"metadata": {"name": API_SERVICE},',
    ),
)
