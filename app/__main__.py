"""`python -m app` runs the command `relpe`."""

import sys

from app.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
