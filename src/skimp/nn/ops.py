"""The public functions for those who stand between the ops and the package's root, which imports
them: `ops.stack` is `skimp.stack`.
"""

from typing import TYPE_CHECKING

import skimp._ops  # noqa: F401  (declares the functions)
from skimp._engine.dispatch.forms import NAMESPACES

if TYPE_CHECKING:
    from skimp import *  # noqa: F403  (what the update below brings)

globals().update(NAMESPACES[""])
