"""What builds and starts the images: lists of packages, Containerfiles, and the unit for systemd."""

import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from twinlink.testing import patience

CHECKOUT = Path(__file__).resolve().parents[2]
CONTAINERS = CHECKOUT / "containers"
LISTS = ("requirements.txt", "build-requirements.txt")
EXTRAS = {"e3", "recording", "replay", "metrics", "mqtt", "security", "websocket"}  # of both images
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.2"}  # Debian 12
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+)(.*(?:\n {4}--hash=.*)*)", re.MULTILINE)


def pins(path: Path) -> dict[str, tuple[str, str]]:
    """By name: the version for the images' Python, and what stands behind it."""
    pinned = [(name, version, rest) for name, version, rest in PIN.findall(path.read_text()) if counts(rest)]
    return {canonicalize_name(name): (version, rest) for name, version, rest in pinned}


def counts(rest: str) -> bool:
    """Whether what stands behind a pin does not keep it from the images."""
    marker = rest.partition("\n")[0].rstrip("\\ ").lstrip("; ")
    return not marker or Marker(marker).evaluate(IMAGE)


@pytest.mark.parametrize("name", LISTS)
def test_each_package_has_hashes_and_no_address(name: str) -> None:
    """In the versions that were seen working together."""
    known, listed = pins(CHECKOUT / "constraints.txt"), pins(CONTAINERS / name)
    assert len(listed) > 3
    assert [one for one, (_, rest) in listed.items() if "--hash=sha256:" not in rest] == []
    assert {one: version for one, (version, _) in listed.items() if known.get(one, (version,))[0] != version} == {}
    assert "://" not in (CONTAINERS / name).read_text()


def test_the_list_has_what_the_images_need() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    listed = pins(CONTAINERS / "requirements.txt")
    for requirement in [one for one in map(Requirement, needed) if one.marker is None or one.marker.evaluate(IMAGE)]:
        version, _ = listed[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_the_gnb_is_built_from_the_sources_and_with_the_options_of_its_page() -> None:
    build, page = (CONTAINERS / "oai-gnb.Containerfile").read_text(), (CHECKOUT / "docs" / "oai.md").read_text()
    for source in re.findall(r"^ARG \w+_SOURCE=https://(\S+)$", build, re.MULTILINE):
        assert f"`{source}`" in page
    (libe3,) = re.findall(r"^ARG LIBE3_VERSION=(\S+)$", build, re.MULTILINE)
    assert f"OAI's image takes {libe3}" in page
    for option in ("--build-e3", "--gNB", "--ninja", "-w SIMU", "-w USRP", "--enable-asn1", "--install", "-I"):
        assert f"`{option}`" in page
        assert re.search(rf"[\s\"]{option}(\s|\")", build), option
    assert set(re.findall(r"^FROM (\S+)", build, re.MULTILINE)) == {"${BASE}"}


@pytest.mark.parametrize(
    "path",
    [
        *(CONTAINERS / f"{name}.Containerfile" for name in ("exporter", "replay")),
        CHECKOUT / "colosseum" / "build-image.sh",
    ],
    ids=lambda path: path.name,
)
def test_an_image_takes_nothing_from_an_index_without_its_hash(path: Path) -> None:
    commands = re.findall(
        r"(?:pip|\$pip)\"? (?:--isolated )?(?:install|download)[^&]*", path.read_text().replace("\\\n", "")
    )
    assert len(commands) > 1
    assert [one for one in commands if "--require-hashes" not in one and not re.search(r" --no-index ", one)] == []


def start_commands() -> list[str]:
    """Those of ``ExecStartPre`` in the unit."""
    text = (CONTAINERS / "twinlink-exporter.container").read_text().replace("\\\n", " ")
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith("ExecStartPre=")]


PLACES = [  # how /tmp/dapps is before, whether the unit starts
    ("true", True),
    ("mkdir -m 755 /tmp/dapps", True),
    ("mkdir /etc-of-root && ln -s /etc-of-root /tmp/dapps", False),
    ("mkdir /tmp/dapps && chown 65534 /tmp/dapps", False),
    ("touch /tmp/dapps", False),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a /tmp of its own")
@pytest.mark.parametrize(("before", "starts"), PLACES)
def test_the_unit_makes_a_folder_of_root_and_follows_no_link(before: str, starts: bool) -> None:
    if (
        alone := subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    ).returncode:
        pytest.skip(f"a /tmp of its own cannot be mounted here, as in a chroot: {alone.stderr.strip()}")
    run = " && ".join(shlex.join(shlex.split(command)) for command in start_commands())
    before = before.replace("/etc-of-root", "/tmp/elsewhere")
    script = (
        f"mount -t tmpfs -o mode=1777 tmpfs /tmp && {before} && {{ {run}; code=$?; }}; "
        "stat --format %A:%u /tmp/dapps; stat --format %A /tmp/elsewhere 2>/dev/null; exit $code"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=patience()
    )
    if starts:
        assert (done.returncode, done.stdout) == (0, "drwxrwsr-x:0\n"), done.stderr
    else:
        assert done.returncode == 1, done.stdout
        assert "/tmp/dapps is no folder of root" in done.stderr
        assert "rws" not in done.stdout
