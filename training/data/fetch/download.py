"""Download of a public data set: checked, unpacked, and either complete or absent."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import pooch
import requests
from tqdm import tqdm

from relpe.files import write_text
from training.data.fetch.public import PublicFile, PublicSet
from training.errors import TrainingError
from training.files import alone_in, read_json

TIMEOUT_SECONDS = 30.0
"""Longest wait for an answer or for the next part of a file."""


def fetch(name: str, public: PublicSet, folder: Path) -> list[str]:
    """Fetch a set into `folder`, unless it is there; return lines about what was found.

    Files that were complete before an interruption are not downloaded again. A record of addresses,
    sizes and hashes is written beside the set.

    Raises:
        TrainingError: a file cannot be reached, has another checksum or is a damaged archive.
    """
    target, record = folder / public.folder, folder / f"{public.folder}.fetched.json"
    with alone_in(folder, "fetch", "--data-dir"):
        if target.is_dir() and record.is_file():
            files = read_json(record, ("files",), f"remove {target} and fetch again")["files"]
            return [f"{target}: already there", *map(_line, files), _next(public, folder)]
        if target.exists():
            raise TrainingError(
                f"{target}: exists, but was not fetched by this command; use it as it is, remove "
                "it, or choose another folder with --data-dir"
            )
        partial = folder / f"{public.folder}.partial"
        files = [_download(file, partial) for file in public.files]
        for path in partial.iterdir():  # of a process that was killed
            if path.name not in {file.name for file in public.files}:
                path.unlink()
        done = partial
        if public.is_archive:
            done = folder / f"{public.folder}.unpacked"
            shutil.rmtree(done, ignore_errors=True)  # of an earlier call that was interrupted
            try:
                for file in public.files:
                    _unpack(partial / file.name, done)
            except BaseException:
                shutil.rmtree(done, ignore_errors=True)
                raise
        facts = {"name": name, "checksums": public.source, "files": files}
        write_text(record, json.dumps(facts, indent=1) + "\n")
        _move(done, target, public)
        shutil.rmtree(partial, ignore_errors=True)
    return [f"{target}: fetched", *map(_line, files), _next(public, folder)]


def _move(done: Path, target: Path, public: PublicSet) -> None:
    """Give the folder that was made its final name."""
    inner = done / public.folder if public.is_archive and public.inside else done
    if not inner.is_dir():
        contents = ", ".join(sorted(path.name for path in done.iterdir())[:5])
        shutil.rmtree(done, ignore_errors=True)
        raise TrainingError(
            f"{public.files[0].address}: the archive has no folder {public.folder} (found "
            f"{contents}); its layout has changed"
        )
    inner.replace(target)
    shutil.rmtree(done, ignore_errors=True)


def _download(file: PublicFile, folder: Path) -> dict[str, Any]:
    """Return the address, size and hash of a file, which is then in `folder`, complete."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("tmp*"):  # of a process that was killed
        old.unlink()
    pooch.get_logger().setLevel("WARNING")
    downloader: Any = pooch.HTTPDownloader(  # its signature differs from the protocol of pooch
        progressbar=sys.stderr.isatty(), timeout=TIMEOUT_SECONDS, chunk_size=2**16
    )
    try:
        pooch.retrieve(file.address, file.checksum, file.name, folder, downloader=downloader)
    except requests.RequestException as error:
        raise TrainingError(
            f"{file.address}: {_reason(error)}; check the network and try again, or download it in "
            "another way and give its folder with --data"
        ) from error
    except ValueError as error:  # of pooch, after which the file does not exist
        raise TrainingError(
            f"{file.address}: the file does not have the checksum {file.checksum}; it was not "
            "kept. Try again later; if it stays so, the file was changed"
        ) from error
    finally:
        with suppress(OSError):
            folder.rmdir()  # if it is empty
    path = folder / file.name
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "address": file.address,
        "bytes": path.stat().st_size,
        "sha256": digest,
        "checked": file.checksum,
    }


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT_SECONDS:.0f} seconds"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection was lost before the end of the file"
    return "cannot be reached"


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip or tar, refusing names that lead out of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as opened:
                for member in tqdm(opened.infolist(), desc="unpack", disable=None, delay=2):
                    path = PurePosixPath(member.filename.replace("\\", "/"))
                    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
                        raise TrainingError(
                            f"{archive.name}: contains {member.filename!r}, which leads out of its "
                            "folder; nothing was unpacked"
                        )
                    opened.extract(member, folder)
        else:
            with tarfile.open(archive) as opened:
                for member in tqdm(opened, desc="unpack", disable=None, delay=2):
                    opened.extract(member, folder, filter="data")
    except tarfile.FilterError as error:
        raise TrainingError(
            f"{archive.name}: contains {error.tarinfo.name!r}, which leads out of its folder; "
            "nothing was unpacked"
        ) from error
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        archive.unlink()
        raise TrainingError(
            f"{archive.name}: a damaged archive ({error}), which was removed; fetch it again"
        ) from error


def _line(file: dict[str, Any]) -> str:
    checked = file["checked"]
    said = f"checked: {checked}" if checked else "not checked, since no checksum is published"
    return f"{file['address']}: {file['bytes']:,} bytes, sha256 {file['sha256']}; {said}"


def _next(public: PublicSet, folder: Path) -> str:
    return f"next: {public.next_step.replace('DIR', str(folder))}"
