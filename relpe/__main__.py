"""Where the commands begin: `app` and `training` are common names, which others use too.

`python -m relpe` is the command `relpe`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path


def relpe() -> int:
    """Run the command `relpe`."""
    return _run("app.cli.main", "app", "tokenization")


def relpe_train() -> int:
    """Run the command `relpe-train`."""
    return _run("training.cli", "training", "tokenization")


def _run(module: str, *packages: str) -> int:
    """Call the `main` of a module, unless other packages are found under these names."""
    if problem := shadowed(*packages):
        print(problem, file=sys.stderr)  # noqa: T201 - what commands do
        return 2
    return import_module(module).main()


def shadowed(*packages: str) -> str:
    """Return a sentence on the first package that is not the one beside this one, or nothing."""
    home = Path(__file__).parents[1]
    for name in packages:
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec else []
        if not any(Path(place).resolve() == (home / name).resolve() for place in places):
            other = places[0] if places else "nothing"
            return (
                f"relpe: found {other} under the name {name}, expected {home / name}; remove the "
                "other one from PYTHONPATH, or install relpe in an environment of its own"
            )
    return ""


if __name__ == "__main__":
    sys.exit(relpe())
