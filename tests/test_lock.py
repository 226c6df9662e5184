"""The lock file has the versions of `constraints.txt`, with hashes and without URLs."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

LOCK = (ROOT / "requirements.lock").read_text()
PINS = re.compile(r"^([\w.-]+)==([^ ;\n]+)", re.MULTILINE)


def plain(name: str) -> str:
    return re.sub(r"[._-]+", "-", name).lower()


def test_the_versions_are_those_of_the_constraints_but_for_torch():
    pinned = {plain(name): v for name, v in PINS.findall((ROOT / "constraints.txt").read_text())}
    locked = dict(PINS.findall(LOCK))
    assert len(locked) > 100
    assert {name: pinned.get(plain(name), version) for name, version in locked.items()} == locked
    assert pinned["torch"]
    assert not [name for name in locked if re.match("torch$|triton|nvidia|cuda", name)]


def test_every_package_has_hashes_and_there_are_no_urls_or_options():
    packages = re.split(r"\n(?=\w)", LOCK.strip())
    assert all("--hash=sha256:" in package for package in packages)
    assert not re.search("://|@|^(-i |--)", LOCK, re.MULTILINE)
