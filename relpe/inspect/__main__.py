"""The command `python -m relpe.inspect`: see `relpe.inspect.plots`."""

from __future__ import annotations

import sys

from relpe.inspect.plots import main

sys.exit(main())
