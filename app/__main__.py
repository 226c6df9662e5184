"""Runs the command `relpe` as `python -m app`."""

import sys

from app.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
