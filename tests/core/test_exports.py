"""The public names: declared once, complete, and each with its contract."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import twinlink
from twinlink import errors, events

ROOT = Path(__file__).parents[2]
PUBLIC = [getattr(twinlink, name) for name in twinlink.__all__]
ROOMS = ("identity", "protocol", "runtime", "process")


def test_all_is_sorted_and_complete() -> None:
    assert twinlink.__all__ == sorted(twinlink.__all__)
    assert len(set(twinlink.__all__)) == len(twinlink.__all__)
    for module in (errors, events):
        declared = {
            name
            for name, thing in vars(module).items()
            if inspect.isclass(thing) and thing.__module__ == module.__name__ and not name.startswith("_")
        }
        assert declared <= set(twinlink.__all__)


def test_dir_shows_the_public_names_only() -> None:
    assert dir(twinlink) == sorted([*twinlink.__all__, "__version__"])


def test_every_public_name_stands_in_the_library_page() -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`", page))))
    assert set(twinlink.__all__) - named == set()
    for kind in (twinlink.Link, twinlink.Sender, twinlink.EventStream):
        assert {name for name in vars(kind) if not name.startswith("_")} - named == set(), kind


def test_the_page_that_leads_through_the_library_names_every_file_of_it_and_nothing_else() -> None:
    page = (ROOT / "docs" / "one-message.md").read_text(encoding="utf-8")
    library = ROOT / "twinlink"
    core = [*library.glob("*.py"), *(path for room in ROOMS for path in (library / room).rglob("*.py"))]
    files = {
        path.relative_to(library).as_posix() for path in core if path.name != "__init__.py" or path.parent == library
    }
    drivers = {path.relative_to(library).as_posix() for path in (library / "transports").glob("*.py")}
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", page))
    assert files <= named <= files | drivers
    source = "".join((library / name).read_text(encoding="utf-8") for name in files)
    for owner, member in re.findall(r"`([A-Z]\w+)\.(\w+)`", page):
        assert f"class {owner}" in source
        assert f"def {member}(" in source, f"{owner}.{member}"


def test_what_the_public_api_returns_is_public() -> None:
    for made in ("Link", "Sender", "Receiver", "EventStream", "Message", "Ack"):
        assert made in twinlink.__all__


@pytest.mark.parametrize("name", twinlink.__all__)
def test_every_public_thing_has_a_docstring(name: str) -> None:
    thing = getattr(twinlink, name)
    assert inspect.getdoc(thing)
    assert not (inspect.getdoc(thing) or "").startswith(f"{name}(")  # what dataclasses and named tuples make up
    if inspect.isclass(thing):
        for member_name, member in vars(thing).items():
            if not member_name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert inspect.getdoc(member), f"{name}.{member_name}"


def test_every_error_is_in_one_tree() -> None:
    raised = [thing for thing in PUBLIC if inspect.isclass(thing) and issubclass(thing, BaseException)]
    assert all(issubclass(error, twinlink.TwinlinkError) for error in raised)
    assert all(f"{error.__name__} " in (errors.__doc__ or "") or error is twinlink.TwinlinkError for error in raised)


def test_every_event_carries_its_time() -> None:
    kinds = [thing for thing in PUBLIC if inspect.isclass(thing) and issubclass(thing, twinlink.Event)]
    assert len(kinds) >= 10
    assert all("time_ns" in inspect.signature(kind).parameters for kind in kinds)


LOADED_BY = """
import sys
before = {*sys.modules}
import twinlink
%s
print(*({*sys.modules} - before))
"""


def loaded_by(statement: str) -> set[str]:
    """The modules that a program has loaded with the library and this statement, beside those of the interpreter."""
    return {*subprocess.check_output([sys.executable, "-c", LOADED_BY % statement], text=True).split()}


@pytest.mark.parametrize("statement", ["", "from twinlink import *"])
def test_importing_the_library_loads_no_third_party_package(statement: str) -> None:
    assert {name.partition(".")[0] for name in loaded_by(statement)} - sys.stdlib_module_names == {"twinlink"}


def test_importing_the_library_loads_the_link_only_when_a_name_of_it_is_used() -> None:
    assert "twinlink.link" not in loaded_by("")
    assert "twinlink.link" in loaded_by("twinlink.open")
