"""Which pods each request was shown to, as the gateways logged it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO

from product import Product

_SHOWN = re.compile(r"request \S+: \w+ after [0-9.]+ s by (?P<pods>.*)\"$")
_POD = re.compile(r"(?P<tier>\w+)=(?P<address>[0-9.]+):\d+")


@dataclass
class Pipelines:
    """Addresses of the pods that worked on each request; complete after the block."""

    shown: list[frozenset[str]] = field(default_factory=list)

    def all_within(self, *versions: frozenset[str]) -> bool:
        """Whether every request stayed within one of ``versions``, and each served some."""
        within = [{version for version in versions if pods <= version} for pods in self.shown]
        return all(within) and all(any(version in one for one in within) for version in versions)

    def used(self, addresses: frozenset[str]) -> bool:
        """Whether each of ``addresses`` worked on some request."""
        return addresses <= frozenset().union(*self.shown)


@contextmanager
def pipelines(product: Product) -> Iterator[Pipelines]:
    """The requests of the block. A log that is open can be read after its pod is gone."""
    found = Pipelines()
    with ExitStack() as stack:
        before = product.pods("gateway")
        logs = [stack.enter_context(_log(product, pod, uid)) for pod, uid in before.items()]
        for log in logs:
            log.read()
        yield found
        after = product.pods("gateway").items() - before.items()
        logs += [stack.enter_context(_log(product, pod, uid)) for pod, uid in after]
        found.shown = [pods for log in logs for pods in _shown(log)]


def _log(product: Product, pod: str, uid: str) -> IO[str]:
    (path,) = product.node.pod_logs(pod, uid).glob("*/0.log")
    return path.open()


def _shown(log: IO[str]) -> Iterator[frozenset[str]]:
    for line in log:
        if shown := _SHOWN.search(line.rstrip()):
            yield frozenset(pod["address"] for pod in _POD.finditer(shown["pods"]))
