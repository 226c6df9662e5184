"""Positional encodings for linear attention, and the decoder that uses them.

`public.py` lists what this package exports. It is imported when the first of these names is used,
since it imports PyTorch, for which commands should not wait before they know their arguments.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relpe.public import *  # noqa: F403

    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Export everything in `public.py`, and return the object with a name."""
        if name == "__version__":
            globals()[name] = version("relpe")
        elif name == "__all__" or not name.startswith("__"):
            public = import_module("relpe.public")
            exported = {k: value for k, value in vars(public).items() if not k.startswith("_")}
            globals().update(exported, __all__=[*exported])
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    def __dir__() -> list[str]:
        return __getattr__("__all__")
