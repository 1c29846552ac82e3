"""`python -m skimp`."""

import sys

from skimp.cli import main

if __name__ == "__main__":
    sys.exit(main())
