from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.small_models import save_tiny_model

_SCRIPT = """
import os, sys
from app import MusicOptions, generate_midi
from app.compose.models import ComputeOptions, load_music_model

def attempt(work):
    if child := os.fork():
        os.waitpid(child, 0)
        return
    try:
        work()
        print("done", flush=True)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)

def load():
    return load_music_model(sys.argv[1], ComputeOptions(backend="torch"))

attempt(load)
model = load()
attempt(lambda: generate_midi(model, MusicOptions(bars=1, seed=1)))
attempt(lambda: attempt(load))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_that_lost_its_threads_by_a_fork_says_so_and_does_not_wait(tmp_path):
    save_tiny_model(tmp_path)
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    before, after, within, *_ = done.stdout.splitlines()
    assert before == "done", done.stdout + done.stderr
    assert "forked after a model was loaded" in after
    assert within == after
