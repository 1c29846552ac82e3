"""jacobian, hessian and the products with them, on top of `grad`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._compat.modules import lookup
from skimp._engine.autograd import calls, modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.memory.layout import numel
from skimp._engine.tensor.tensor import Tensor

__getattr__ = lookup(__name__)

Function = Callable[..., Any]
Tuple = tuple[Tensor, ...]


def _as_tuple(values: Any, what: str, fn: str) -> tuple[bool, Tuple]:
    """(whether it was a tuple, the tensors)."""
    several = isinstance(values, tuple)
    found = values if several else (values,)
    for i, t in enumerate(found):
        if not isinstance(t, Tensor):
            where = f"value at index {i}" if several else f"given {what}"
            raise TypeError(
                f"The {what} given to {fn} must be either a Tensor or a tuple of Tensors but the "
                f"{where} has type {type(t)}."
            )
    return several, found


def _inputs(values: Tuple, create_graph: bool) -> Tuple:
    """Inputs to differentiate with respect to: connected to the originals if the result is to be
    differentiated.
    """
    if create_graph:
        return tuple([t.view_as(t) if t._rg else t.detach().requires_grad_() for t in values])
    return tuple([t.detach().requires_grad_() for t in values])


def _outputs(func: Function, inputs: Tuple, fn: str, strict: bool) -> tuple[bool, Tuple]:
    several, outputs = _as_tuple(func(*inputs), "outputs of the user-provided function", fn)
    if strict:
        for i, t in enumerate(outputs):
            if not t._rg:
                raise RuntimeError(
                    f"Output {i} of the user-provided function does not require gradients. The "
                    "outputs must be computed in a differentiable manner from the input when "
                    "running in strict mode."
                )
    return several, outputs


def _grads(
    outputs: Tuple, inputs: Tuple, v: Any, create: bool, strict: bool, keep: bool = True
) -> Tuple:
    """Gradients, zeros where an input has no part in the outputs."""
    pairs = [(t, g) for t, g in zip(outputs, v or (None,) * len(outputs), strict=True) if t._rg]
    found: tuple[Any, ...] = (None,) * len(inputs)
    if pairs:
        found = calls.grad(
            [t for t, _ in pairs],
            inputs,
            [g for _, g in pairs],
            retain_graph=keep,
            create_graph=create,
            allow_unused=True,
        )
    if strict:
        for i, g in enumerate(found):
            if g is None:
                raise RuntimeError(
                    f"The output of the user-provided function is independent of input {i}. "
                    "This is not allowed in strict mode."
                )
    return tuple(
        [t.new_zeros(shape_of(t)) if g is None else g for g, t in zip(found, inputs, strict=True)]
    )


def _vector(v: Any, like: Tuple, fn: str, who: str) -> Tuple:
    """The vector of a product, checked against what it multiplies; 1 for a single element."""
    if v is None:
        if len(like) != 1 or numel(shape_of(like[0])) != 1:
            raise RuntimeError(
                "The vector v can only be None if the user-provided function returns a single "
                "Tensor with a single element."
                if who == "outputs"
                else "The vector v can only be None if the input to the user-provided function is "
                "a single Tensor "
                "with a single element."
            )
        return tuple([t.new_ones(shape_of(t)) for t in like])
    _, found = _as_tuple(v, "v", fn)
    if len(found) != len(like):
        if len(like) == 1:
            raise RuntimeError("The given v should contain a single Tensor.")
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(like)} but got {len(found)}."
        )
    for i, (a, b) in enumerate(zip(found, like, strict=True)):
        if shape_of(a) != shape_of(b):
            entry = f"Entry {i} in " if len(like) > 1 else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {b.shape} but got {a.shape}.")
    return found


def _finish(values: Tuple, several: bool, create: bool) -> Any:
    out = values if create else tuple([t.detach() for t in values])
    return out if several else out[0]


def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), v times its Jacobian)."""
    with modes.enable_grad():
        several_in, ins = _as_tuple(inputs, "inputs", "vjp")
        ins = _inputs(ins, create_graph)
        several_out, outs = _outputs(func, ins, "vjp", strict)
        found = _grads(outs, ins, _vector(v, outs, "vjp", "outputs"), create_graph, strict)
    return _finish(outs, several_out, create_graph), _finish(found, several_in, create_graph)


def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), its Jacobian times v), by differentiating a vjp with respect to its vector."""
    with modes.enable_grad():
        _, given = _as_tuple(inputs, "inputs", "jvp")
        ins = _inputs(given, create_graph)
        vector = _vector(v, ins, "jvp", "inputs")
        several_out, outs = _outputs(func, ins, "jvp", strict)
        dummy = tuple([t.new_zeros(shape_of(t)).requires_grad_() for t in outs])
        grads = _grads(outs, ins, dummy, True, strict)
        found = _grads(grads, dummy, vector, create_graph, strict)
    return _finish(outs, several_out, create_graph), _finish(found, several_out, create_graph)


def _scalar(func: Function, fn: str) -> Function:
    def checked(*inputs: Tensor) -> Tensor:
        several, outs = _as_tuple(func(*inputs), "outputs of the user-provided function", fn)
        if several or len(outs) != 1:
            raise RuntimeError(f"The function given to {fn} should return a single Tensor")
        if numel(shape_of(outs[0])) != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to {fn} should contain a single element"
            )
        return outs[0].reshape(())

    return checked


def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), v times its Hessian)."""
    with modes.enable_grad():
        several, given = _as_tuple(inputs, "inputs", "vhp")
        ins = _inputs(given, create_graph)
        vector = _vector(v, ins, "vhp", "inputs")
        out = _scalar(func, "vhp")(*ins)
        first = _grads((out,), ins, None, True, strict)
        found = _grads(first, ins, vector, create_graph, strict)
    return _finish((out,), False, create_graph), _finish(found, several, create_graph)


def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), its Hessian times v)."""
    with modes.enable_grad():
        several, given = _as_tuple(inputs, "inputs", "hvp")
        ins = _inputs(given, create_graph)
        vector = _vector(v, ins, "hvp", "inputs")
        out = _scalar(func, "hvp")(*ins)
        first = _grads((out,), ins, None, True, strict)
        dummy = tuple([t.new_zeros(shape_of(t)).requires_grad_() for t in ins])
        double = _grads(first, ins, dummy, True, strict)
        found = _grads(double, dummy, vector, create_graph, strict)
    return _finish((out,), False, create_graph), _finish(found, several, create_graph)


def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: shape of the output, then of the input; nested tuples where there are several.

    It is computed row by row; with `vectorize` all rows in one backward.

    Raises: AssertionError for an unknown strategy, TypeError for what are no tensors, RuntimeError
    for `strict` beside `vectorize` and where an output depends on no input.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(
            f'Expected strategy to be either "forward-mode" or "reverse-mode". Got: {strategy}'
        )
    if vectorize and strict:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
            "supported together. Please either set `strict=False` or `vectorize=False`."
        )
    of = _jacobian_at_once if vectorize else _jacobian_of
    with modes.enable_grad():
        several_in, given = _as_tuple(inputs, "inputs", "jacobian")
        ins = _inputs(given, create_graph)
        several_out, outs = _outputs(func, ins, "jacobian", strict)
        rows = tuple(
            [_finish(of(t, ins, create_graph, strict), several_in, create_graph) for t in outs]
        )
    return rows if several_out else rows[0]


def _jacobian_of(out: Tensor, ins: Tuple, create: bool, strict: bool) -> Tuple:
    flat = out.reshape(-1)
    shape = shape_of(out)
    pieces = [_grads((flat[i],), ins, None, create, strict) for i in range(numel(shape))]
    made = []
    for k, t in enumerate(ins):
        whole = (*shape, *shape_of(t))
        if not pieces:
            made.append(out.new_zeros(whole))
            continue
        stack = _stack()
        made.append(stack([row[k] for row in pieces]).view(whole))
    return tuple(made)


def _jacobian_at_once(out: Tensor, ins: Tuple, create: bool, strict: bool) -> Tuple:
    shape = shape_of(out)
    n = numel(shape)
    if not n or not out._rg:
        return tuple([out.new_zeros((*shape, *shape_of(t))) for t in ins])
    rows = out.new_zeros((n, n))
    rows.diagonal().fill_(1)
    found = calls.grad(
        (out,), ins, rows.view((n, *shape)), True, create, allow_unused=True, is_grads_batched=True
    )
    return tuple(
        [
            t.new_zeros((*shape, *shape_of(t))) if g is None else g.view((*shape, *shape_of(t)))
            for g, t in zip(found, ins, strict=True)
        ]
    )


def _stack() -> Any:

    return NAMESPACES[""]["stack"]


def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a function with one value: the Jacobian of its gradient."""
    several, _ = _as_tuple(inputs, "inputs", "hessian")
    one = _scalar(func, "hessian")

    def gradient(*ins: Tensor) -> Any:
        found = jacobian(one, ins, create_graph=True, strict=strict)
        return found if several else found[0]

    return jacobian(gradient, inputs, create_graph, strict, vectorize)
