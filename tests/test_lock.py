"""The lock file has the versions of `constraints.txt`, with hashes and without URLs."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

LOCK = (ROOT / "requirements.lock").read_text()
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
PINS = dict(re.findall(r"^([\w.-]+)==([^ ;\n]+)", CONSTRAINTS, re.MULTILINE))


def plain(name: str) -> str:
    return re.sub(r"[._-]+", "-", name).lower()


def test_the_versions_are_those_of_the_constraints():
    locked = dict(re.findall(r"^([\w.-]+)==([^ ;\n]+)", LOCK, re.MULTILINE))
    pinned = {plain(name): version for name, version in PINS.items()}
    assert len(locked) > 100
    assert {name: pinned.get(plain(name), version) for name, version in locked.items()} == locked


def test_every_package_has_hashes_and_there_are_no_urls_or_options():
    packages = re.split(r"\n(?=\w)", LOCK.strip())
    assert all("--hash=sha256:" in package for package in packages)
    assert "://" not in LOCK
    assert "@" not in LOCK
    assert not re.search("^(-i |--)", LOCK, re.MULTILINE)


def test_torch_is_pinned_in_the_constraints_but_not_locked():
    assert not re.search("^(torch==|triton|nvidia|cuda)", LOCK, re.MULTILINE)
    assert PINS["torch"]
