"""A release of a small project: all of it or nothing."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys

import pytest

from deploy import release
from deploy.release import main

PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "small"
version = "0.2.0"
requires-python = ">=3"
[project.optional-dependencies]
app = []
"""
FILES = {
    "pyproject.toml": PROJECT,
    "small/__init__.py": "",
    "constraints.txt": "",
    ".gitignore": "dist/\ndocs/build/\n",
    "CITATION.cff": "version: 0.2.0\ndate-released: 2026-11-22\n",
    "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- One.\n\n## [0.2.0] - 2026\n",
    ".ci/run": "mkdir -p docs/build/site && echo page > docs/build/site/index.html\n",
}
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="releases need bash")
NEEDS = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("build", "cyclonedx_py"))), reason="needs release"
)


def git(folder, *words):
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@example")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    folder = tmp_path / "checkout"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "First")
    return folder


def state(folder):
    """All that a release could leave behind."""
    refs = git(folder, "show-ref", "--head") + git(folder, "worktree", "list")
    files = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and ".git" not in p.parts}
    return refs, files, [*(folder.parent / "temporary").iterdir()]


@pytest.mark.parametrize(
    ("version", "changes", "problem"),
    [
        ("1.0.0", {"new.txt": "a"}, "the checkout has changes"),
        ("0.2.0", {}, "found the version '0.2.0', expected one after 0.2.0"),
        ("1.0", {}, "found the version '1.0'"),
        ("1.0.0", {"CHANGELOG.md": "## [Unreleased]\n\n## [0.2.0] - 2026\n"}, "CHANGELOG.md: "),
        ("1.0.0", {".ci/run": "exit 3\n"}, "returned non-zero exit status 3"),
        ("0.3.0", {}, "the tag v0.3.0 or dist/0.3.0 exists"),
    ],
)
def test_what_cannot_be_released_leaves_nothing(checkout, version, changes, problem, capsys):
    git(checkout, "tag", "v0.3.0")
    for name, text in changes.items():
        (checkout / name).write_text(text)
    if "new.txt" not in changes:
        git(checkout, "commit", "--quiet", "--all", "--allow-empty", "--message", "Second")
    before = state(checkout)
    assert main([version, "--publish"], checkout) == 2
    assert problem in capsys.readouterr().err
    assert state(checkout) == before


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, release.ReleaseError])
def test_what_cannot_be_published_leaves_nothing(checkout, error, monkeypatch):
    """Since the checkout has another commit, or the release is interrupted."""
    run = release._run

    def stop_at_merge(folder, *words, **how):
        if error and "merge" in words:
            raise error
        return run(folder, *words, **how)

    monkeypatch.setattr(release, "_run", stop_at_merge)
    with release._work_tree(checkout) as tree:
        git(tree, "commit", "--allow-empty", "--message", "Version 1.0.0")
        git(checkout, "commit", "--allow-empty", "--message", "Another")
        before = git(checkout, "show-ref", "--head")
        with pytest.raises(error or release.ReleaseError):
            release._publish(checkout, tree, "1.0.0", tree / "small")
    assert git(checkout, "show-ref", "--head") == before
    assert not [*(checkout / "dist").glob("*")]


@pytest.mark.slow
@NEEDS
def test_a_dry_run_builds_all_and_a_release_keeps_it(checkout):
    before = state(checkout)
    assert main(["1.0.0"], checkout) == 0
    assert state(checkout) == before
    assert main(["1.0.0", "--publish"], checkout) == 0
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "rev-parse", "HEAD") == git(checkout, "rev-parse", "v1.0.0^{commit}")
    assert 'version = "1.0.0"' in (checkout / "pyproject.toml").read_text()
    assert "version: 1.0.0\n" in (checkout / "CITATION.cff").read_text()
    changes = (checkout / "CHANGELOG.md").read_text()
    assert changes.index("[Unreleased]") < changes.index("## [1.0.0] - ") < changes.index("- One.")
    built = checkout / "dist" / "1.0.0"
    wheel = "small-1.0.0-py3-none-any.whl"
    others = ["small-1.0.0-site.zip", "small-1.0.0.cdx.json", "small-1.0.0.tar.gz"]
    sums = dict(line.split()[::-1] for line in (built / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {wheel, *others} == {p.name for p in built.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((built / name).read_bytes()).hexdigest() == digest
    listed = json.loads((built / "small-1.0.0.cdx.json").read_text())
    assert {"small"} <= {package["name"] for package in listed["components"]}
