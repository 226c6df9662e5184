"""Second copies of modules, for example as they are where Numba is not installed."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest


def load_copy(name: str) -> ModuleType:
    """Load a second copy of the module `name`, which no other module imports."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_without_numba(name: str) -> ModuleType:
    """Load a second copy of the module `name`, which cannot import Numba."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "numba", None)
        return load_copy(name)
