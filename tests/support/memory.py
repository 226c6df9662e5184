"""Memory of processes, as Linux reports it."""

from __future__ import annotations

import re
from pathlib import Path


def resident(process: int | str = "self") -> int:
    """Resident memory of a process in kB."""
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0])
