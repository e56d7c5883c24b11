import io

import pytest
from PIL import Image
from triptych_contract.errors import InvalidRequest
from triptych_gateway.media.formats import Format, dimensions, format_of


def encoded(kind: str, size: tuple[int, int], mode: str = "RGB", **options) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size).save(stream, kind, **options)
    return stream.getvalue()


CASES = [
    ("PNG", (7, 300), {}),
    ("JPEG", (640, 48), {}),
    ("JPEG", (33, 65), {"progressive": True, "comment": b"x" * 40000}),
    ("GIF", (300, 7), {}),
    ("WEBP", (17, 600), {}),
    ("WEBP", (600, 17), {"lossless": True}),
    ("WEBP", (40, 41), {"exif": b"Exif\0\0" + b"\0" * 8}),
]


@pytest.mark.parametrize(("kind", "size", "options"), CASES)
def test_format_and_size_are_read_from_the_header(kind, size, options):
    content = encoded(kind, size, **options)
    assert format_of(content) == Format[kind]
    assert dimensions(content, Format[kind]) == size


@pytest.mark.parametrize(("kind", "size", "options"), CASES)
def test_a_header_cut_off_anywhere_is_an_error_of_the_client(kind, size, options):
    content = encoded(kind, size, **options)
    for length in range(12, 64):
        try:
            found = dimensions(content[:length], Format[kind])
        except InvalidRequest:
            continue
        assert found == size


@pytest.mark.parametrize("content", [b"plain text", b"<svg/>", b"BM" + bytes(60), b"RIFF1234AVI "])
def test_other_formats_are_refused_whatever_they_are_called(content):
    with pytest.raises(InvalidRequest, match="none of JPEG, PNG, WebP or GIF"):
        format_of(content)


def test_nothing_is_not_a_picture():
    with pytest.raises(InvalidRequest, match="empty"):
        format_of(b"")


def test_a_side_of_zero_is_refused():
    content = bytearray(encoded("PNG", (4, 4)))
    content[16:20] = bytes(4)
    with pytest.raises(InvalidRequest, match="no size"):
        dimensions(bytes(content), Format.PNG)
