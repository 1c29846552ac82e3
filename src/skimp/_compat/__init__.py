"""The name `torch`: programs that import it get skimp.

import skimp._compat
skimp._compat.install()
import torch  # skimp
"""

from skimp._compat.finder import install, uninstall
from skimp._compat.missing import missing

__all__ = ["install", "missing", "uninstall"]
