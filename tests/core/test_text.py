"""Text of other programs, and names that are no UTF-8."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlink.process import text

ANY = st.text(st.characters(codec=None))  # halves of surrogate pairs among them


@pytest.mark.parametrize(
    ("octets", "says"),
    [
        (b"a = 1\nb = '\xfc'\n", r"line 2 is no UTF-8 \(octet 0xfc\)"),
        (b"\xef\xbb\xbf\n\n\xff", r"line 3 is no UTF-8 \(octet 0xff\)"),
        ("a = 1".encode("utf-16"), "byte order mark of UTF-16"),
        (b"\xfe\xff\0a", "byte order mark of UTF-16"),
    ],
)
def test_what_is_no_utf_8_is_named_with_its_line(octets: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        text.decode(octets)


def test_a_mark_is_passed_over() -> None:
    assert text.decode("\ufeffa\n".encode()) == "a\n"
    assert text.unmarked("\ufeffgnb \ufeffLINE") == "gnb LINE"


def test_octets_of_a_name_are_shown() -> None:
    name = b"m\xfchle\n\xc3\xbc".decode("utf-8", "surrogateescape")
    assert text.printable(name) == "m\\xfchle\nü"
    assert text.on_one_line(name) == "m\\xfchle\\nü"
    assert text.printable("\ud800\U0001f600") == "\\ud800\U0001f600"


@given(ANY)
def test_any_text_can_be_written(value: str) -> None:
    text.printable(value).encode()
    assert text.on_one_line(value).isprintable()
    shown = text.printable(value)
    assert json.loads(text.to_json({value: [value]})) == {shown: [shown]}
