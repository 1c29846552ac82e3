"""Forward derivatives with PyTorch's dual tensors: a tensor that is made dual carries a tangent,
and what is computed from it can be asked for its own.

A dual tensor is a result of a `MakeDualBackward0`, so that what is computed from it is recorded.
`unpack_dual` finds these nodes behind a tensor and multiplies their tangents by the Jacobian, as
`torch.func.jvp` does: by differentiating the gradient with respect to what it is a product with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from skimp._engine.autograd import calls, modes
from skimp._engine.autograd.nodes import Grads, Node, init, shape_of
from skimp._engine.autograd.refresh import edge
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.interrupts import insist
from skimp._engine.tensor.tensor import Tensor

__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual",
    "unpack_dual",
]  # fmt: skip


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` gives: the value, and the tangent or None."""

    primal: Tensor
    tangent: Tensor | None


class _Level:
    """Forward differentiation that is going on: from entering it to leaving it."""

    def __init__(self) -> None:
        self.tangents: dict[Node, Tensor] = {}
        self.multiplying = False  # unpacked values are constants meanwhile
        self.recorded = modes.state.grad


_levels: list[_Level] = []  # one at most, as in PyTorch, for all threads


class _Boundary(Node):
    """A node that hands its gradient on as it is."""

    __slots__ = ("level",)
    level: _Level

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Sequence[Tensor | None]:
        return grads


class MakeDualBackward0(_Boundary):
    """Where a dual tensor begins."""

    __slots__ = ()
    _skimp_label = "MakeDualBackward0"


class UnpackDualBackward0(_Boundary):
    """Behind what was unpacked: reverse derivatives pass, forward ones of the level end."""

    __slots__ = ()
    _skimp_label = "UnpackDualBackward0"

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Sequence[Tensor | None]:
        return (None,) if self.level.multiplying else grads


def _behind(cls: type[_Boundary], t: Tensor, level: _Level) -> Tensor:
    """A tensor on the bytes of `t`, behind a node of this class."""
    node = cls.__new__(cls)
    init(node, edge(t), shape_of(t), t._dtype)
    node.level = level
    made = t.detach()
    made._rg, made._skimp_node, made._skimp_index = True, node, 0
    return made


# -- levels ---------------------------------------------------------------------------------------


def enter_dual_level() -> int:
    """Begin forward differentiation and return its level, 0: one can't be entered inside another.

    Operations are recorded until `exit_dual_level`, in `no_grad` too.
    """
    return _enter(_Level())


def _enter(level: _Level) -> int:
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _levels[:] = (level,)
    modes.state.grad = True  # one step with the line above
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End forward differentiation: all its tangents are forgotten.

    Raises: RuntimeError without a level, or for another than the one that was entered.
    """
    now = len(_levels) - 1
    if level is not None and level != now:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is "
            "not supported."
        )
    if not _levels:
        raise RuntimeError("Dual level must be a positive number.")
    left = _levels[0]
    modes.state.grad = left.recorded
    del _levels[0]  # one step with the line above
    left.tangents.clear()


class dual_level(modes.Mode):  # noqa: N801  (PyTorch's name)
    """Forward differentiation inside a `with`, or inside a function that it decorates."""

    def __enter__(self) -> int:
        self._level = level = _Level()
        try:
            return _enter(level)
        except BaseException:
            _leave(level)
            raise

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        insist(_leave, self._level)


def _leave(level: _Level) -> None:
    if level in _levels:
        exit_dual_level()


# -- dual tensors ---------------------------------------------------------------------------------


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor on the bytes of `tensor` whose derivative is `tangent`, of the same shape.

    Both are of floating point or complex types. Writes to the dual tensor change `tensor`'s bytes
    and the derivative, and leave `tangent`.

    Shape: both alike; so is the result.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError outside of a level and for another shape, ValueError for other dtypes.
    Memory: a view of `tensor`.
    """
    level = len(_levels) - 1 if level is None else level
    if level < 0:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    for what, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {t.dtype}")
    if level >= len(_levels):
        raise RuntimeError("Invalid level given to _make_dual")
    now = _levels[level]
    if tensor.requires_grad and _sources(tensor, now)[0]:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            f"same level {level} is not supported."
        )
    if tangent.requires_grad and _sources(tangent, now)[0]:
        raise RuntimeError(
            "Setting a forward grad that itself has a forward gradient at the same level"
            f"{level} is not supported."
        )
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(tensor.shape)} while the "
            f"given forward gradient is of size {list(tangent.shape)}."
        )
    made = _behind(MakeDualBackward0, tensor, now)
    assert made._skimp_node is not None
    now.tangents[made._skimp_node] = tangent
    return made


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(a tensor on the bytes of `tensor` without tangent, its tangent or None).

    None if `tensor` was computed from no dual tensor, or outside of a level. Each call computes
    the tangent anew, by way of the recorded operations.

    Shape: the tensor's, both.
    Dtypes: the tensor's, both.
    Raises: RuntimeError for a level that is not there.
    Memory: a view of the tensor; the tangent is new.
    """
    level = len(_levels) - 1 if level is None else level
    if level < 0 or not _levels:
        return UnpackedDualTensor(tensor, None)
    require_tensor("_unpack_dual", "dual", tensor)
    now = _levels[0]
    sources, connected = _sources(tensor, now) if tensor.requires_grad else ([], False)
    if not sources:
        return UnpackedDualTensor(tensor.view_as(tensor), None)
    if level >= len(_levels):
        raise RuntimeError("Invalid level given to _fw_primal")
    tangent = _tangent(tensor, sources, now, connected)
    primal = _behind(UnpackDualBackward0, tensor, now) if connected else tensor.detach()
    return UnpackedDualTensor(primal, tangent)


def _sources(t: Tensor, level: _Level) -> tuple[list[Node], bool]:
    """(the nodes of the level's dual tensors behind `t`, whether there is a leaf behind it that
    requires grad by itself).
    """
    found: list[Node] = []
    connected = False
    seen: set[Node] = set()
    stack = [edge(t)[0]]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, UnpackDualBackward0) and node.level is level:
            connected = True
            continue
        if node in level.tangents:
            found.append(node)
        edges = node._skimp_edges
        connected |= not edges
        stack.extend(edges[::2])
    return found, connected and level.recorded


def _recorded(
    products: Sequence[Tensor | None], given: list[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """The products that a tangent can be put through, and that of each, of its type."""
    both = zip(products, given, strict=True)
    return [(g, v.to(g.dtype)) for g, v in both if g is not None and g._rg]


def _tangent(t: Tensor, sources: list[Node], level: _Level, connected: bool) -> Tensor:
    """The Jacobian of `t` by the dual tensors behind it, times their tangents."""
    node = edge(t)[0]
    if node in level.tangents:
        return level.tangents[node]
    given = [level.tangents[s] for s in sources]
    keep = connected or (level.recorded and any([v.requires_grad for v in given]))
    ends = [calls.GradientEdge(s, 0) for s in sources]
    level.multiplying = True
    try:
        with modes.enable_grad():
            factor = t.new_ones(shape_of(t)).requires_grad_()
            products = calls.grad([t], ends, [factor], True, True, allow_unused=True)
            pairs = _recorded(products, given)
            found = None
            if pairs:
                outs, tangents = zip(*pairs, strict=True)
                found = calls.grad(outs, [factor], tangents, True, keep, allow_unused=True)[0]
    finally:
        level.multiplying = False
    if found is None:
        return t.new_zeros(shape_of(t))
    if keep and found.requires_grad:
        return _behind(UnpackDualBackward0, found, level)
    result: Tensor = found.detach()
    return result
