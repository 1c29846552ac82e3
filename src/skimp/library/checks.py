"""opcheck: whether an op keeps what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.autograd import backward
from skimp.library.aten import OpOverload, OpOverloadPacket
from skimp.library.custom import CustomOpDef, Overload
from skimp.testing import assert_close
from skimp.utils import _pytree as trees

__all__ = ["OpCheckError", "opcheck"]

Given = tuple[tuple[Any, ...], dict[str, Any]]


class OpCheckError(Exception):
    """A check failed."""


def _tensors(value: Any) -> list[Tensor]:
    return [t for t in trees.tree_leaves(value) if isinstance(t, Tensor)]


def _copied(value: Any) -> Any:
    """The arguments with tensors of their own, of the same strides."""
    return trees.tree_map(_copy, value)


def _copy(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _named(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments with their names, where the op knows them."""
    if isinstance(op, CustomOpDef):
        yield from op._signature.bind(*args, **kwargs).arguments.items()
        return
    for i, value in enumerate(args):
        yield ("self" if i == 0 else f"argument {i}"), value
    yield from kwargs.items()


def _writes(op: Any, name: str) -> bool:
    """Whether the op says that it writes to the argument."""
    if isinstance(op, CustomOpDef):
        return op._mutates == "unknown" or name in op._mutates
    packet = op.overloadpacket if isinstance(op, OpOverload) else op
    return name in ("out", "self") and (name == "out" or packet.__name__.endswith("_"))


def _schema(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What is not said to be written to is not."""
    before = _copied((args, kwargs))
    op(*args, **kwargs)
    pairs = zip(_named(op, args, kwargs), _named(op, *before), strict=True)
    for (name, now), (_, then) in pairs:
        for a, b in zip(_tensors(now), _tensors(then), strict=True):
            if not _writes(op, name) and not _same(a, b):
                raise RuntimeError(f"Argument {name} is not defined as mutable but was mutated")


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(a.detach().isclose(b.detach(), rtol=0, atol=0, equal_nan=True).all())


def _autograd(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What is made of tensors that require grad requires grad, if a derivative is registered."""
    wanted = any([t.requires_grad for t in _tensors((args, kwargs))])
    outs = [t for t in _tensors(op(*args, **kwargs)) if t.is_floating_point() or t.is_complex()]
    known = not isinstance(op, CustomOpDef) or op._backward is not None
    if wanted and known and outs and not any([t.requires_grad for t in outs]):
        raise AssertionError("no result requires grad, although an argument does")


def _fake(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Results without bytes have the shapes, strides and dtypes of those with bytes."""
    hollow = trees.tree_map(
        lambda v: v.detach().to("meta") if isinstance(v, Tensor) else v, _copied((args, kwargs))
    )
    found, made = _tensors(op(*args, **kwargs)), _tensors(op(*hollow[0], **hollow[1]))
    if len(found) != len(made):
        raise AssertionError(f"{len(made)} results without bytes, {len(found)} with bytes")
    for a, b in zip(found, made, strict=True):
        for what, x, y in (
            ("Shapes", a.shape, b.shape),
            ("Dtypes", a.dtype, b.dtype),
            ("Strides", a.stride(), b.stride()),
        ):
            if x != y:
                raise AssertionError(
                    f"When comparing the output of {op} on FakeTensor and concrete Tensors, found "
                    f"mismatched tensor metadata: {what} {x} and {y} are not equal!"
                )


def _again(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A second run gives the same results and gradients."""
    runs = [_results(op, *_copied((args, kwargs))) for _ in range(2)]
    for a, b in zip(*runs, strict=True):
        assert_close(a, b, equal_nan=True)


def _results(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    leaves = [t for t in _tensors((args, kwargs)) if t.requires_grad]
    made = _tensors(op(*args, **kwargs))
    known = not isinstance(op, CustomOpDef) or op._backward is not None
    roots = [t for t in made if t.requires_grad]
    if leaves and roots and known:
        backward(roots, [t.detach() * 0 + 1 for t in roots])
    return [t.detach() for t in made] + [t.grad for t in leaves if t.grad is not None]


_CHECKS: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], None]] = {
    "test_schema": _schema,
    "test_autograd_registration": _autograd,
    "test_faketensor": _fake,
    "test_aot_dispatch_static": _again,
    "test_aot_dispatch_dynamic": _again,
}
_USUAL = tuple([name for name in _CHECKS if name != "test_aot_dispatch_static"])


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = _USUAL,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Run an op on these arguments and check that it writes to what it says, that its results
    without bytes are those with bytes, and that it gives the same again; what each check found.

    Raises: OpCheckError where a check fails, unless `raise_exception` is False.
    """
    if isinstance(op, Overload):
        op = op._definition
    if not isinstance(op, (CustomOpDef, OpOverload, OpOverloadPacket)):
        raise ValueError(
            "opcheck(op, ...): op must be instance of torch._ops.OpOverload, e.g. "
            f"torch.ops.aten.sin.default, got {type(op)}"
        )
    wanted = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not _CHECKS.keys() >= set(wanted):
        raise ValueError(
            f"opcheck(op, ..., test_utils={wanted}), expected test_utils to be subset of "
            f"{tuple(_CHECKS)} but it was not"
        )
    found: dict[str, Any] = {}
    for name in wanted:
        try:
            _CHECKS[name](op, *_copied((args, kwargs or {})))
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error}") from error
            found[name] = error
        else:
            found[name] = "SUCCESS"
    return found
