"""Guards the page's server against malformed, foreign and excessive requests."""

from __future__ import annotations

from app.web.guard.hosts import Hosts
from app.web.guard.middleware import HEALTH, Guard

__all__ = ["HEALTH", "Guard", "Hosts"]
