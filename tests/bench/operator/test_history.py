from bench.operator import shape
from bench.operator.calls import Call
from bench.operator.history import History
from bench.operator.shape import Child


def _call(at: float, user: str, verb: str, child: Child, *, code: int = 200) -> Call:
    return Call(at - 0.001, at, user, verb, child.resource, "", "ours", child.name, code)


def _resource(name: str) -> Child:
    return Child("multimodalservices", name)


def _history_of_one(made_at: float = 10.0) -> History:
    history = History("ours", "admin", "bench:ours")
    history.take(_call(made_at, "admin", "create", _resource("a")))
    for step, child in enumerate(sorted(shape.children("a")), start=1):
        history.take(_call(made_at + step, "bench:ours", "patch", child))
    return history


def test_a_resource_is_complete_with_its_last_child() -> None:
    history = History("ours", "admin", "bench:ours")
    history.take(_call(10.0, "admin", "create", _resource("a")))
    *others, last = sorted(shape.children("a"))
    for child in others:
        history.take(_call(11.0, "bench:ours", "patch", child))
    assert history.incomplete() == 1
    history.take(_call(13.0, "bench:ours", "patch", last))
    assert history.incomplete() == 0
    assert [round(seconds, 3) for seconds in history.creations(["a"])] == [3.001]


def test_refused_writes_and_those_of_others_make_nothing_complete() -> None:
    history = History("ours", "admin", "bench:ours")
    history.take(_call(10.0, "admin", "create", _resource("a")))
    for child in shape.children("a"):
        history.take(_call(11.0, "bench:ours", "patch", child, code=409))
        history.take(_call(11.0, "bench:go-1", "patch", child))
    assert history.incomplete() == 1


def test_children_may_be_logged_before_the_creation_of_their_resource() -> None:
    history = History("ours", "admin", "bench:ours")
    for child in shape.children("a"):
        history.take(_call(10.0, "bench:ours", "patch", child))
    history.take(_call(9.9, "admin", "create", _resource("a")))
    assert history.incomplete() == 0


def test_a_change_is_answered_by_the_first_patch_of_the_deployment_after_it() -> None:
    history = _history_of_one()
    history.take(_call(100.0, "admin", "patch", _resource("a")))
    assert (history.changed(), history.unpatched()) == (1, 1)
    for at, child in ((100.2, Child("configmaps", "a-decode")), (100.3, shape.deployment("a"))):
        history.take(_call(at, "bench:ours", "patch", child))
    assert history.unpatched() == 0
    assert [round(seconds, 3) for seconds in history.patches()] == [0.301]
    assert history.writes_per_change() == 1.0


def test_needless_writes_after_a_change_count() -> None:
    history = _history_of_one()
    history.take(_call(100.0, "admin", "patch", _resource("a")))
    for child in [
        *shape.changed_children("a"),
        shape.deployment("a"),
        Child("services", "a-decode"),
    ]:
        history.take(_call(100.3, "bench:ours", "patch", child))
    assert history.writes_per_change() == 2.0


def test_a_burst_lasts_from_its_first_creation_to_its_last_child() -> None:
    history = _history_of_one(made_at=0.0)
    history.take(_call(1.0, "admin", "create", _resource("b")))
    for child in shape.children("b"):
        history.take(_call(40.0, "bench:ours", "patch", child))
    assert round(history.rate(["a", "b"]), 3) == round(2 / 40.001, 3)


def test_the_last_write_is_no_read() -> None:
    history = _history_of_one(made_at=0.0)
    last = history.last_write()
    history.take(_call(last + 5, "bench:ours", "list", Child("deployments", "")))
    assert history.last_write() == last
    assert len(history.between(last, last + 10)) == 2
