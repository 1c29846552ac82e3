"""The package's functions as seen from below it: `whole.stack` is `skimp.stack` (the package
itself imports nn).
"""

from typing import TYPE_CHECKING

import skimp._ops  # noqa: F401  (declares the functions)
from skimp._engine.dispatch.forms import NAMESPACES

if TYPE_CHECKING:
    from skimp import *  # noqa: F403  (what the update below brings)

globals().update(NAMESPACES[""])
