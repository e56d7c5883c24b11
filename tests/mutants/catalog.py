"""Deliberate faults of the operator, of the kinds that operators of the field have had.

Each replaces one piece of one source file. ``test_mutants`` shows that each is caught by tests.
"""

from __future__ import annotations

from typing import Final

from mutants.catalog_saying import ROLLING, SAYING
from mutants.catalog_scaling import ACTING, MEASURING, TELLING
from mutants.places import (
    API,
    APPLIER,
    AUDIT,
    DEPLOYMENTS,
    DIFFERENCE,
    EDGE,
    ELECTION,
    NAMING,
    QUEUE,
    RECONCILE,
    REFUSALS,
    STORE,
    WORKERS,
    Mutant,
)

WRITING: Final = (
    Mutant(
        "what is not wanted any more is never pruned",
        RECONCILE,
        "            await self._applier.prune(service, manifests, step.keep)\n",
        "",
    ),
    Mutant(
        "objects of others that bear our labels are pruned",
        APPLIER,
        "            ours = _owner(body) == service.metadata.uid\n",
        "            ours = True\n",
    ),
    Mutant(
        "tiers that still serve the old topology are pruned at once",
        APPLIER,
        'metadata["labels"].get(naming.COMPONENT) not in keep',
        "True",
    ),
    Mutant(
        "what is being deleted is deleted again",
        APPLIER,
        '                and "deletionTimestamp" not in metadata\n',
        "",
    ),
    Mutant(
        "a deletion takes whatever bears the name now",
        API,
        '            "preconditions": {"uid": uid},\n',
        "",
    ),
    Mutant(
        "objects of others are adopted by force",
        APPLIER,
        "return await self._api.apply(kind, _made_new(manifest))",
        "return await self._api.apply(kind, manifest)",
    ),
    Mutant(
        "changes of others win over ours",
        API,
        '{"fieldManager": manager, "force": "true"}',
        '{"fieldManager": manager, "force": "false"}',
    ),
    Mutant(
        "a child that is relabelled stays so",
        APPLIER,
        "if refused.status != CONFLICT or not await self._is_ours(service, key):",
        "if refused.status != CONFLICT or await self._is_ours(service, key) is not None:",
    ),
    Mutant(
        "replicas are let go of before anybody else owns them",
        APPLIER,
        'if child.replicas_ours and "replicas" not in _spec(manifest):',
        "if not child:",
    ),
    Mutant(
        "replicas are handed over when the autoscaler owns them already",
        STORE,
        'return owners == {(naming.MANAGER, "Apply")}',
        "return bool(owners)",
    ),
    Mutant(
        "an answer is not kept: the next look writes again until a watch tells",
        APPLIER,
        "        self._store.put(key.kind, answer)\n        child =",
        "        child =",
    ),
    Mutant(
        "what the server keeps in another form is written for ever",
        APPLIER,
        "if child is not None and child.version == version_of(answer):",
        "if child is None:",
    ),
    Mutant(
        "what others change during a write is not looked at",
        APPLIER,
        "            self._changed(_service_key(service))\n",
        "            pass\n",
    ),
    Mutant(
        "what is as wanted is written all the same",
        APPLIER,
        "        if is_as_wanted(manifest, body):\n",
        "        if not body:\n",
    ),
    Mutant(
        "what was as wanted once is never looked at again",
        APPLIER,
        "return settled.get(child.key) == _seen(manifest, child)",
        "return child.key in settled",
    ),
    Mutant(
        "children of a deleted namesake are only noticed kind after kind",
        APPLIER,
        "        await self._clear_previous(service, manifests)\n",
        "",
    ),
    Mutant(
        "the first refusal keeps the children beside it from being made",
        APPLIER,
        "for answer in await asyncio.gather(*calls, return_exceptions=True):",
        "for answer in [await call for call in calls]:",
    ),
)

WANTING: Final = (
    Mutant(
        "children have no owner",
        NAMING,
        "    if service.metadata.uid:\n",
        "    if not service.metadata.uid:\n",
    ),
    Mutant(
        "replicas are sent although an autoscaler owns them",
        DEPLOYMENTS,
        "fixed = {} if spec.scales else ",
        "fixed = ",
    ),
    Mutant(
        "a changed configuration rolls no pods",
        DEPLOYMENTS,
        "**given.metadata.annotations, naming.CONFIG_DIGEST: config}",
        '**given.metadata.annotations, naming.CONFIG_DIGEST: ""}',
    ),
    Mutant(
        "the user's labels replace ours",
        DEPLOYMENTS,
        "{**given.metadata.labels, **naming.labels(service, tier)}",
        "{**naming.labels(service, tier), **given.metadata.labels}",
    ),
    Mutant(
        "our earlier fields stay, as the digest is not looked at",
        DIFFERENCE,
        '"annotations": {**own, APPLIED: digest}',
        '"annotations": {**own}',
    ),
    Mutant(
        "lists may have more than we want",
        DIFFERENCE,
        "    return len(found) == len(wanted) and all(\n",
        "    return len(found) >= len(wanted) and all(\n",
    ),
    Mutant(
        "what others add to a merged list counts as drift",
        DIFFERENCE,
        "    if field in _MERGED:\n",
        '    if field == "":\n',
    ),
    Mutant(
        "a changed value counts as ours when its kind is the same",
        DIFFERENCE,
        "return bool(standing == wanted and type(standing) is type(wanted))",
        "return type(standing) is type(wanted)",
    ),
)

KNOWING: Final = (
    Mutant(
        "an older version replaces a newer one",
        STORE,
        "        if known is not None and known.version >= version:\n            return None\n",
        "",
    ),
    Mutant(
        "a late deletion takes the successor out of sight",
        STORE,
        '        if known is None or known.uid != body["metadata"]["uid"]:\n',
        "        if known is None:\n",
    ),
    Mutant(
        "bookkeeping of the server wakes the operator again and again",
        STORE,
        '_TIMES: Final = frozenset({"lastTransitionTime", "lastProbeTime", "lastScaleTime"})',
        "_TIMES: Final = frozenset[str]()",
    ),
    Mutant(
        "a change of a child's conditions is no news",
        STORE,
        "(one.uid, one.rolled_out, one.packed)",
        "(one.uid, one.rolled_out)",
    ),
    Mutant(
        "a child is whose label says so, not its owner's",
        STORE,
        'if one["kind"] == KIND)',
        "if not one)",
    ),
    Mutant(
        "what a list shows anew hides deletions",
        EDGE,
        "            self._listed(kind)\n",
        "            pass\n",
    ),
    Mutant(
        "deletions are taken for changes",
        EDGE,
        '        if event == "DELETED":\n',
        '        if event == "REMOVED":\n',
    ),
    Mutant(
        "what is younger than the list is forgotten",
        AUDIT,
        "            and child.version <= listed\n",
        "",
    ),
    Mutant(
        "a missed deletion is never noticed",
        AUDIT,
        "        self._drop_missing(kind, scope, seen, listed)\n",
        "",
    ),
    Mutant(
        "a list of nothing is not noticed",
        AUDIT,
        "self._kinds if kind == SERVICE_RESOURCE else (kind,)",
        "(kind,)",
    ),
    Mutant(
        "a missed update is never noticed",
        AUDIT,
        "return known is None or known.version < version",
        "return known is None",
    ),
    Mutant(
        "a page is taken for one that was read before",
        AUDIT,
        "digest = hashlib.sha256(page.text).digest()",
        'digest = b"page"',
    ),
    Mutant(
        "other namespaces are forgotten when one is listed",
        AUDIT,
        "            and scope in (None, child.key.namespace)\n",
        "",
    ),
    Mutant(
        "only the first page of a list counts",
        API,
        '            if not query["continue"]:\n                return\n',
        "            return\n",
    ),
)

WORKING: Final = (
    Mutant(
        "an event that comes during the work is lost",
        QUEUE,
        "            self._again.add(key)\n",
        "            pass\n",
    ),
    Mutant(
        "failures come back at once",
        QUEUE,
        "self._first * 2.0 ** min(count, 32)",
        "self._first",
    ),
    Mutant(
        "failures come back never",
        QUEUE,
        "        self.add_later(key, delay)\n        return delay\n",
        "        return delay\n",
    ),
    Mutant(
        "success does not forget earlier failures",
        QUEUE,
        "        self._failures.pop(key, None)\n",
        "",
    ),
    Mutant(
        "a later timer replaces an earlier one",
        QUEUE,
        "        if standing is not None and standing.when() <= loop.time() + seconds:\n"
        "            return\n",
        "",
    ),
    Mutant(
        "a resource that hangs holds a worker for ever",
        WORKERS,
        "        async with asyncio.timeout(limit):\n",
        "        async with asyncio.timeout(None):\n",
    ),
    Mutant(
        "a fault with one resource ends a worker",
        WORKERS,
        "    except Exception:  #",
        "    except MemoryError:  #",
    ),
    Mutant(
        "the time that a busy server asks for is not given",
        WORKERS,
        "at_least=refused.retry_after",
        "at_least=0.0",
    ),
    Mutant(
        "a busy server counts as one that will always refuse",
        REFUSALS,
        "self.status in (UNREACHABLE, CONFLICT, TOO_MANY_REQUESTS)",
        "self.status in (UNREACHABLE, CONFLICT)",
    ),
    Mutant(
        "an answer that is no Status breaks the operator",
        REFUSALS,
        "    if not isinstance(said, dict):\n",
        "    if said is None:\n",
    ),
    Mutant(
        "two replicas lead: a holder that cannot renew goes on for the whole term",
        ELECTION,
        "_GIVE_UP: Final = 2 / 3",
        "_GIVE_UP: Final = 4 / 3",
    ),
    Mutant(
        "two replicas lead: clocks of two machines are compared",
        ELECTION,
        "        if seen != self._seen:\n",
        "        if seen == self._seen:\n",
    ),
    Mutant(
        "a leader that lost writes on",
        API,
        '        if verb != "GET" and not self._may_write():\n',
        "        if self._may_write() is None:\n",
    ),
    Mutant(
        "a lost leader takes the Lease from its successor as it ends",
        ELECTION,
        "            if lease is not None and _holder(lease) == self._claim.identity:\n",
        "            if lease is not None:\n",
    ),
)

MUTANTS: Final = (
    *WRITING,
    *WANTING,
    *KNOWING,
    *WORKING,
    *SAYING,
    *ROLLING,
    *MEASURING,
    *ACTING,
    *TELLING,
)
