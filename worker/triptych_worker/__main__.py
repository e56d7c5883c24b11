"""``python -m triptych_worker``."""

import sys

from triptych_worker.cli import main

sys.exit(main())
