"""A rank under a launcher that kills all ranks as soon as the process of one ends: two processes,
of which the first one stays a while after the second one has failed, so that the ranks that waited
for it can say so.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import warnings
from typing import Any

from skimp.distributed import mpi

STAYS = 2.0  # seconds; who waits looks four times a second
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def stand() -> None:
    """Go on in a child, under mpiexec or srun; the process that they know waits for it. Does
    nothing where `skimp launch` stands guard, or nobody has launched ranks.
    """
    found = mpi.launched()
    if found is None or found[1] < 2 or "TORCHELASTIC_USE_AGENT_STORE" in os.environ:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of BLAS's threads, which expect it
        child = os.fork()
    if child:
        _wait(child)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)


def _wait(child: int) -> None:
    """Wait for the rank, and end as it has."""

    def forward(number: int, _: Any) -> None:
        os.kill(child, number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal it comes to the rank as well
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 128 + signal.SIGINT):
        time.sleep(STAYS)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
