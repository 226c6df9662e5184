"""Return of unused memory, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

_EIGHT_THREADS = """
import ctypes, re, threading
from pathlib import Path
from app.server.memory.heap import limit_heaps, return_unused

limit_heaps()
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
gate = threading.Barrier(8)

def resident():
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmRSS:\\s+(\\d+) kB", status)[0]) / 1e3

def fill():  # 20 MB, of which a hundredth is kept
    gate.wait()
    blocks = [libc.malloc(20_000) for _ in range(1000)]
    for block in blocks:
        ctypes.memset(block, 1, 20_000)
    gate.wait()
    for number, block in enumerate(blocks):
        if number % 100:
            libc.free(block)

before = resident()
threads = [threading.Thread(target=fill) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
after = resident()
return_unused()
print(before, after, resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc and /proc")
def test_freed_memory_of_many_threads_returns_although_neighbours_are_in_use():
    run = subprocess.run(
        [sys.executable, "-c", _EIGHT_THREADS], capture_output=True, text=True, check=True
    )
    before, after, later = map(float, run.stdout.split())
    assert after > before + 100
    assert later < before + 20
