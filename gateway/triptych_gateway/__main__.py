"""``python -m triptych_gateway``."""

import sys

from triptych_gateway.cli import main

if __name__ == "__main__":
    sys.exit(main())
