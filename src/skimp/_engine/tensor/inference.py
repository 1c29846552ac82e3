"""Whether tensors made now are made in inference mode, for the path of every op."""

from __future__ import annotations

import threading


class _Inference(threading.local):
    """Whether this thread is in inference mode (`_engine/autograd/modes.py` sets it)."""

    here = False


class Marks:
    """`anywhere` counts the threads in inference mode: the only thing that the path of every op
    looks at.
    """

    __slots__ = ("anywhere", "of_thread")  # C asks too

    def __init__(self) -> None:
        self.anywhere = 0
        self.of_thread = _Inference()


marks = Marks()  # an instance: its attributes are found faster than a class's
