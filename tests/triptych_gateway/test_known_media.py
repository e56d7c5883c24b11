import random

import pytest
from triptych_contract.errors import MediaConflict
from triptych_contract.fingerprints import tenant_salt
from triptych_gateway.media.content import Content
from triptych_gateway.media.known import KnownMedia

A, B = tenant_salt("a"), tenant_salt("b")
RED, BLUE = Content.of(b"red"), Content.of(b"blue")
INLINE = "data:image/png;base64,cmVk"
URL = "https://pictures.example/1.png"


def test_a_name_leads_to_what_was_sent_under_it():
    known = KnownMedia(10_000)
    known.bind(A, "cat", INLINE, RED)
    assert known.find(A, "cat", "") is RED
    assert known.find(A, "dog", "") is None


def test_a_name_is_one_tenant_s_own():
    known = KnownMedia(10_000)
    known.bind(A, "cat", INLINE, RED)
    assert known.find(B, "cat", "") is None
    known.bind(B, "cat", INLINE, BLUE)
    assert (known.find(A, "cat", ""), known.find(B, "cat", "")) == (RED, BLUE)


def test_other_content_under_a_name_is_a_conflict_and_changes_nothing():
    known = KnownMedia(10_000)
    known.bind(A, "cat", INLINE, RED)
    with pytest.raises(MediaConflict, match="uuid of its own"):
        known.bind(A, "cat", INLINE, BLUE)
    known.bind(A, "cat", URL, Content.of(b"red"))
    assert known.find(A, "cat", "") is RED
    known.check()


def test_content_that_comes_along_is_always_looked_at():
    known = KnownMedia(10_000)
    known.bind(A, "cat", INLINE, RED)
    assert known.find(A, "cat", INLINE) is None
    assert known.find(A, "cat", URL) is None


def test_a_url_that_was_fetched_before_is_not_fetched_again_but_another_is():
    known = KnownMedia(10_000)
    known.bind(A, "cat", URL, RED)
    assert known.find(A, "cat", URL) is RED
    assert known.find(A, "cat", URL + "?other") is None
    assert known.find(A, "cat", INLINE) is None


def test_a_picture_beyond_the_bound_is_not_kept():
    known = KnownMedia(2_000)
    known.bind(A, "large", INLINE, Content.of(bytes(1_500)))
    assert known.find(A, "large", "") is None
    assert (known.size_bytes, known.entries) == (0, 0)


def test_the_oldest_name_of_whoever_holds_most_makes_room():
    known = KnownMedia(10_000)
    known.bind(B, "only", INLINE, Content.of(b"b" * 100))
    for index in range(50):
        known.bind(A, str(index), INLINE, Content.of(bytes([index]) * 1_000))
        known.check()
    assert known.find(B, "only", "") is not None
    assert known.find(A, "0", "") is None
    assert known.find(A, "49", "") is not None


def test_what_is_used_stays():
    known = KnownMedia(6_000)
    for index in range(20):
        known.bind(A, str(index), INLINE, Content.of(bytes([index]) * 1_000))
        known.find(A, "0", "")
    assert known.find(A, "0", "") is not None


def test_the_books_balance_whatever_is_sent():
    known, draw = KnownMedia(30_000), random.Random(1)
    for _ in range(2_000):
        salt = tenant_salt(str(draw.randrange(5)))
        content = Content.of(bytes([draw.randrange(3)]) * draw.randrange(4_000))
        try:
            known.bind(salt, str(draw.randrange(40)), INLINE, content)
        except MediaConflict:
            assert known.find(salt, str(draw.randrange(40)), "") is not content
        known.check()
    assert known.size_bytes > 20_000


def test_a_name_never_leads_to_what_its_tenant_did_not_send_under_it():
    known, draw = KnownMedia(40_000), random.Random(2)
    sent: dict[tuple[bytes, str], list[Content]] = {}
    for _ in range(3_000):
        salt, uuid = draw.choice((A, B)), str(draw.randrange(12))
        content = Content.of(bytes([draw.randrange(4)]) * draw.randrange(1, 3_000))
        url = draw.choice((INLINE, URL, URL + "?2"))
        found = known.find(salt, uuid, draw.choice(("", URL)))
        mine = sent.setdefault((salt, uuid), [])
        assert found is None or found in mine
        try:
            known.bind(salt, uuid, url, content)
        except MediaConflict:
            assert known.find(salt, uuid, "").digest != content.digest
        else:
            mine.append(content)
            kept = known.find(salt, uuid, "")
            assert kept is None or kept.digest == content.digest
