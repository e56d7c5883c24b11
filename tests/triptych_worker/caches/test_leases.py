from __future__ import annotations

import pytest
from triptych_worker.caches.leases import LeaseBook


def test_a_lease_opens_its_entry_until_its_time_is_over() -> None:
    book = LeaseBook[str]()
    book.grant("one", "entry", expires=10.0)
    assert book.find("one", now=9.9) == "entry"
    assert book.find("one", now=10.0) is None
    assert book.find("other", now=0.0) is None


def test_an_entry_is_pinned_until_its_last_lease_ends() -> None:
    book = LeaseBook[str]()
    book.grant("one", "entry", expires=10.0)
    book.grant("two", "entry", expires=20.0)
    assert book.release("one") == "entry"
    assert (book.pinned("entry"), len(book)) == (True, 1)
    assert book.release("two") == "entry"
    assert (book.pinned("entry"), len(book)) == (False, 0)


def test_releasing_twice_ends_it_once() -> None:
    book = LeaseBook[str]()
    book.grant("one", "entry", expires=10.0)
    assert [book.release("one"), book.release("one")] == ["entry", None]
    book.check_integrity()


def test_an_overdue_lease_pins_until_the_time_is_told() -> None:
    book = LeaseBook[str]()
    book.grant("one", "first", expires=10.0)
    book.grant("two", "second", expires=20.0)
    assert book.find("one", now=15.0) is None
    assert book.pinned("first")
    assert book.expire(now=15.0) == ["first"]
    assert (book.pinned("first"), book.pinned("second")) == (False, True)
    assert book.expire(now=15.0) == []


def test_extending_never_shortens() -> None:
    book = LeaseBook[str]()
    book.grant("one", "entry", expires=10.0)
    book.extend("one", 5.0)
    assert book.find("one", now=9.0) == "entry"
    book.extend("one", 12.0)
    assert book.find("one", now=11.0) == "entry"
    with pytest.raises(KeyError):
        book.extend("two", 12.0)


def test_an_id_is_given_once() -> None:
    book = LeaseBook[str]()
    book.grant("one", "entry", expires=10.0)
    with pytest.raises(ValueError, match="stands already"):
        book.grant("one", "other", expires=10.0)
    assert not book.pinned("other")
