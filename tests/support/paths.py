"""Folders of the repository that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN_FOLDER = ROOT / "tests" / "golden"
