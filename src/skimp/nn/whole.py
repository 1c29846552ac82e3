"""The package's functions as seen from below it: `whole.stack` is `skimp.stack` (the package
itself imports nn).
"""

from typing import TYPE_CHECKING

import skimp.ops
from skimp.ops.forms import NAMESPACES

if TYPE_CHECKING:
    from skimp import *

globals().update(NAMESPACES[""])
