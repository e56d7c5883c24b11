"""``python -m triptych_gateway``."""

from triptych_gateway.cli import main

if __name__ == "__main__":
    main()
