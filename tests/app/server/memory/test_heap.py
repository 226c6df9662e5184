"""Return of unused memory, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

_FILL_MEMORY = """
import ctypes, re, threading
from pathlib import Path
from app.server.memory.heap import limit_heaps, return_unused

limit_heaps()
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

def resident():
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmRSS:\\s+(\\d+) kB", status)[0]) / 1e3

def fill():  # 100 MB, of which a hundredth is kept
    blocks = [libc.malloc(20_000) for _ in range(5000)]
    for block in blocks:
        ctypes.memset(block, 1, 20_000)
    for number, block in enumerate(blocks):
        if number % 100:
            libc.free(block)

before = resident()
thread = threading.Thread(target=fill)
thread.start()
thread.join()
print(before, resident(), return_unused(), resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc and /proc")
def test_freed_memory_of_a_thread_returns_although_neighbours_are_in_use():
    run = subprocess.run(
        [sys.executable, "-c", _FILL_MEMORY], capture_output=True, text=True, check=True
    )
    before, after, is_returned, later = run.stdout.split()
    assert float(after) > float(before) + 80
    assert is_returned == "True"
    assert float(later) < float(before) + 20
