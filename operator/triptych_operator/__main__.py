"""``python -m triptych_operator`` is the ``triptych`` command."""

import sys

from triptych_operator.cli import main

sys.exit(main())
