"""The name `torch`: programs that import it get skimp.

import skimp.compat
skimp.compat.install()
import torch  # skimp
"""

from skimp.compat.finder import install, uninstall
from skimp.compat.missing import missing

__all__ = ["install", "missing", "uninstall"]
