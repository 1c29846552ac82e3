"""Anomaly mode: backward checks each gradient for nan, and an error says where forward made the
node.
"""

from __future__ import annotations

import warnings
from typing import Any

from skimp._engine.autograd import node_lines as lines, saving, watched
from skimp._engine.autograd.nodes import Grads, Node
from skimp._engine.autograd.ops import ops
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.interrupts import insist
from skimp._engine.tensor.tensor import Tensor

ON: list[bool] = []  # empty: off; else whether nan is an error
_NAME = "anomaly mode"  # in the list of those for whom nodes are watched


def is_anomaly_enabled() -> bool:
    """Whether a backward that fails shows the lines of the forward."""
    return bool(ON)


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode refuses gradients that are NaN."""
    return bool(ON) and ON[0]


def _set(mode: bool, check_nan: bool) -> None:
    was = ON != []
    # one step from here on: signal handlers run after the call, which is the last
    ON[:] = [check_nan] if mode else []
    lines.TRACE[:] = [True] if mode else []
    if mode and not was:
        saving.GUARDED[:0] = (None,)  # the fast path of recording takes no trace
        watched.ON[:0] = (_NAME,)
    elif was and not mode:
        del saving.GUARDED[0]
        watched.ON.remove(_NAME)


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Switch anomaly mode on or off."""
    _set(enabled, check_nan)


class set_detect_anomaly:  # noqa: N801
    """Anomaly mode on or off: at once as a function, until its end as a context."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.previous = list(ON)
        _set(mode, check_nan)

    def __enter__(self) -> None:
        return None

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        insist(_set, self.previous != [], self.previous != [False])


class detect_anomaly(set_detect_anomaly):  # noqa: N801
    """Anomaly mode inside a `with`."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        self.previous = list(ON)
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self.previous = list(ON)
        try:
            _set(True, self.check_nan)
        except BaseException:
            self.__exit__()
            raise


def apply(node: Node, grads: Grads, wanted: set[Node] | None) -> Any:
    """Run a node; say where it comes from if it fails, or gives nan."""
    try:
        results = node.apply(grads, wanted)
        if ON and ON[0]:
            _refuse_nan(node, results)
    except Exception:
        _tell(node)
        raise
    return results


def _refuse_nan(node: Node, results: Any) -> None:
    for i, r in enumerate(results):
        if isinstance(r, Tensor) and r._dtype.category > 1 and bool(ops.any(r != r)):
            raise RuntimeError(
                f"Function '{node._skimp_label}' returned nan values in its {i}th output."
            )


def _tell(node: Node) -> None:
    trace = node._skimp_extra.trace if node._skimp_extra is not None else None
    if trace is None:
        text = (
            f"Error detected in {node._skimp_label}. No forward pass information available. Enable "
            f"detect anomaly during "
            f"forward pass for more information. The forward call was at {lines.of(node)}."
        )
    else:
        text = (
            f"Error detected in {node._skimp_label}. Traceback of forward call that caused the "
            f"error:\n{trace}"
        )
    warnings.warn(text, stacklevel=5)
