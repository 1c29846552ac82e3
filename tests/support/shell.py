"""An IPython shell for a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from IPython.core.interactiveshell import InteractiveShell


@contextmanager
def shell_of_ipython() -> Iterator[InteractiveShell]:
    """A shell that leaves this process's `__main__` as it was: processes that start need it."""
    made = InteractiveShell()
    try:
        yield made
    finally:
        made.reset(new_session=False)
        made.history_manager.end_session()
        made.restore_sys_module_state()
        assert "__spec__" in vars(sys.modules["__main__"])
