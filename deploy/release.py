"""Release a version by one command: `make release VERSION=1.0.0`, and with `PUBLISH=yes` for real.

Everything happens in a temporary work tree of the last commit: versions are set, the checks of
`.ci/run` pass in a new environment, which also builds the site, and packages are built, installed
and listed. Only then, and only for real, the checkout gets the commit, its tag and `dist/VERSION`.
A release that fails, or is a dry run, leaves nothing behind.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path


class ReleaseError(Exception):
    """The version cannot be released; the message says why, in one sentence."""


def main(arguments: list[str] | None = None, checkout: Path = Path()) -> int:
    """Release a version of a checkout and return the exit code: 0, or 2 with a sentence."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("version", help="three numbers, such as 1.0.0")
    parser.add_argument(
        "--publish", action="store_true", help="also make the commit, its tag and dist/VERSION"
    )
    options = parser.parse_args(arguments)
    try:
        release(checkout.resolve(), options.version, publish=options.publish)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    return 0


def release(checkout: Path, version: str, *, publish: bool) -> None:
    """Build a version of a checkout, and print its files with their SHA-256.

    Args:
        checkout: top of a git repository without changes.
        version: three numbers, greater than those of `pyproject.toml`.
        publish: also commit and tag it, and write its files to `dist/VERSION`.

    Raises:
        ReleaseError: the tree has changes, the version is not new, or a step fails.
    """
    if _run(checkout, "git", "status", "--porcelain", quiet=True):
        raise ReleaseError("the checkout has changes, expected none; commit or stash them")
    tagged = _run(checkout, "git", "tag", "--list", f"v{version}", quiet=True)
    if tagged or (checkout / "dist" / version).exists():
        raise ReleaseError(f"the tag v{version} or dist/{version} exists, expected a new version")
    with _work_tree(checkout) as tree:
        set_version(tree, version, datetime.now(UTC).date().isoformat())
        commit = ["git", "commit", "--quiet", "--all", "--no-verify"]  # the checks follow
        _run(tree, *commit, "--message", f"Version {version}")
        _run(tree, "bash", ".ci/run")
        built = _build(tree, version)
        files = sorted(built.iterdir())
        text = "".join(f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
        (built / "SHA256SUMS").write_text(text, encoding="utf-8")
        print(text, end="")
        if publish:
            _publish(checkout, tree, version, built)
            print(f"Released in dist/{version}; `git push --follow-tags` shows it to others.")
        else:
            print("A dry run: nothing was written. PUBLISH=yes releases it.")


def set_version(tree: Path, version: str, date: str) -> None:
    """Write a version and its date (ISO 8601) to the files of a project that name them.

    Raises:
        ReleaseError: the version is not after the present one, or a file does not name it.
    """
    present = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version) or _numbers(version) <= _numbers(
        present
    ):
        raise ReleaseError(f"found the version {version!r}, expected one after {present}")
    for name, pattern, text in (
        ("pyproject.toml", r'^version = ".*"$', f'version = "{version}"'),
        ("CITATION.cff", r"^version: .*$", f"version: {version}"),
        ("CITATION.cff", r"^date-released: .*$", f"date-released: {date}"),
        (
            "CHANGELOG.md",
            r"^## \[Unreleased\]\n+(?=[^#\n]|### )",
            f"## [Unreleased]\n\n## [{version}] - {date}\n\n",
        ),
    ):
        path = tree / name
        content, count = re.subn(pattern, text, path.read_text("utf-8"), flags=re.MULTILINE)
        if count != 1:
            raise ReleaseError(f"{name}: found {count} places like {pattern}, expected one")
        path.write_text(content, encoding="utf-8", newline="\n")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def _build(tree: Path, version: str) -> Path:
    """Return a folder of the wheel, the source distribution, its list of packages and the site."""
    dist = tree / "dist" / version
    _run(tree, sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist))
    (wheel,) = dist.glob("*.whl")
    stem = "-".join(wheel.name.split("-")[:2])
    # the packages that people get who install it
    installed = str(tree / "dist" / "installed" / "bin" / "python")
    _run(tree, sys.executable, "-m", "venv", "dist/installed")
    pip = [installed, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run(tree, *pip, "install", "--constraint", "constraints.txt", f"{wheel}[app]")
    _run(tree, *pip, "check")
    cyclonedx = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    _run(tree, *cyclonedx, "--output-file", str(dist / f"{stem}.cdx.json"), installed)
    shutil.make_archive(str(dist / f"{stem}-site"), "zip", tree / "docs" / "build" / "site")
    return dist


def _publish(checkout: Path, tree: Path, version: str, built: Path) -> None:
    """Give a checkout the commit of a work tree, its tag and its files, or none of them."""
    target, tag = checkout / "dist" / version, f"v{version}"
    beside = target.with_name(f"{version}.part")
    try:
        shutil.rmtree(beside, ignore_errors=True)  # of a release that was killed
        shutil.copytree(built, beside)
        _run(tree, "git", "tag", "--annotate", tag, "--message", f"Version {version}")
        try:
            _run(checkout, "git", "merge", "--quiet", "--ff-only", tag)
        except BaseException:  # also Ctrl+C
            _run(checkout, "git", "tag", "--delete", tag)
            raise
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def _work_tree(checkout: Path) -> Iterator[Path]:
    """Yield a temporary work tree of the last commit."""
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        tree = Path(folder) / "tree"
        _run(checkout, "git", "worktree", "add", "--quiet", "--detach", str(tree), "HEAD")
        try:
            yield tree
        finally:
            _run(checkout, "git", "worktree", "remove", "--force", str(tree))


def _run(folder: Path, *words: str, quiet: bool = False) -> str:
    """Run a command; return its output if it is `quiet`. Raises ReleaseError if it fails."""
    output = subprocess.PIPE if quiet else None
    try:
        return subprocess.run(words, cwd=folder, check=True, stdout=output, text=True).stdout or ""
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseError(f"{error}; mend it and try again") from error


if __name__ == "__main__":
    sys.exit(main())
