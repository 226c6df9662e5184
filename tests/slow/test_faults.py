"""Faults of the machine: the page is killed, the disk is full."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import httpx
import pytest
from gradio_client import Client

from tests.support.loaded import program, wait_until
from tests.support.served import MARKS, PATIENT
from tokenization.midi import read_midi

pytestmark = [*MARKS, pytest.mark.skipif(sys.platform != "linux", reason="uses signals and mounts")]


def test_a_page_that_is_killed_loses_nothing_that_was_finished(tmp_path):
    """The second job is killed half-way: no file of it is damaged, and the page starts again."""
    options = ["--output-dir", str(tmp_path / "music")]
    with program(tmp_path / "log.txt", *options) as page:
        client = Client(page.address, verbose=False, httpx_kwargs=PATIENT)
        client.predict(bars=1, takes=1, seed=1, api_name="/generate")
        kept = {path: path.read_bytes() for path in (tmp_path / "music").rglob("*.mid")}
        assert kept
        client.submit(bars=256, variations=4, seed=2, api_name="/generate")
        wait_until(lambda: httpx.get(f"{page.address}healthz").json()["jobs"]["running"] == 1)
        os.kill(page.pid, signal.SIGKILL)
    with program(tmp_path / "log.txt", *options) as page:
        files = {path: path.read_bytes() for path in (tmp_path / "music").rglob("*.mid")}
        assert kept.items() <= files.items()
        assert all(read_midi(data).num_notes for data in files.values())
        assert httpx.get(f"{page.address}healthz").json()["jobs"]["running"] == 0


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 64 kB; needs the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
    if os.getuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("disks cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_is_said_in_a_sentence_and_music_is_kept_again_when_there_is_room(
    small_disk, tmp_path
):
    filling = small_disk / "filling"
    log = tmp_path / "log.txt"
    with program(log, "--output-dir", str(small_disk)) as page:
        client = Client(page.address, verbose=False, httpx_kwargs=PATIENT)
        filling.write_bytes(bytes(shutil.disk_usage(small_disk).free))
        with pytest.raises(Exception, match=r"(?i)no space|disk|full") as refused:
            client.predict(bars=1, takes=1, seed=1, api_name="/generate")
        assert "Traceback" not in str(refused.value)
        filling.unlink()
        client.predict(bars=1, takes=1, seed=1, api_name="/generate")
        assert [*small_disk.rglob("*.mid")]
    assert "Traceback" not in log.read_text()
