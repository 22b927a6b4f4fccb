"""`python -m gateway`: the same as the command `gateway`; holds nothing of its own."""

import sys

from gateway.cli import main

if __name__ == "__main__":
    sys.exit(main())
