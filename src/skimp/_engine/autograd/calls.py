"""`backward` and `grad`: arguments checked, then the engine."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from skimp._engine.autograd import engine, errors, modes
from skimp._engine.autograd.captures import Captures
from skimp._engine.autograd.nodes import Node, accumulate_of, shape_of
from skimp._engine.autograd.ops import ops
from skimp._engine.autograd.refresh import edge
from skimp._engine.tensor import meta
from skimp._engine.tensor.tensor import Tensor, fresh


def _tensors(values: Any) -> tuple[Any, ...]:
    return (values,) if isinstance(values, (Tensor, GradientEdge)) else tuple(values)


def _refuse(t: Any) -> NoReturn:
    raise RuntimeError(
        f"all inputs have to be Tensors or GradientEdges, but got {type(t).__name__}"
    )


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the leaves they were computed from (or of
    `inputs` only).

    Shape: outputs of one element, or `grad_tensors` of their shapes.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for outputs that do not require grad, for several elements without a
    gradient, for other shapes, and for a graph that was released.
    Memory: new tensors in `.grad`, or written in place where there is one; what the graph saved is
    released unless `retain_graph`.
    """
    if grad_variables is not None:
        warnings.warn(
            "`grad_variables` is deprecated. Use `grad_tensors` instead.",
            FutureWarning,
            stacklevel=2,
        )
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                "`backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    outputs = _tensors(tensors)
    taker = _taker(outputs)
    if taker is not None:
        taker._skimp_hand_over(
            backward,
            tensors,
            grad_tensors=grad_tensors,
            retain_graph=retain_graph,
            create_graph=create_graph,
            inputs=inputs,
        )
        return
    captures = captured(inputs)
    roots = _roots(outputs, _given(outputs, grad_tensors))
    if create_graph:
        warn_cycle()
    del tensors, outputs, grad_tensors
    engine.run(
        roots, create_graph if retain_graph is None else retain_graph, create_graph, captures
    )


def _taker(given: Iterable[Any]) -> Tensor | None:
    """A tensor whose class, or else a mode, takes over what is given these."""
    for t in given:
        if isinstance(t, Tensor) and (t._skimp_watched or not t._skimp_on_fast_path):  # noqa: SIM102
            if t._skimp_asks():
                return t
    return None


def captured(inputs: Any) -> Captures | None:
    """What a backward for some `inputs` catches; refuses where backward can't be called."""
    if modes.state.vmaps:
        raise RuntimeError(
            "backward() called inside a functorch transform. This is not supported, please use "
            "functorch.grad or functorch.vjp instead or call backward() outside of functorch "
            "transforms."
        )
    if inputs is None:
        return None
    inputs = _tensors(inputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    return Captures([_retained(t) for t in inputs], True)


def _retained(t: Any) -> tuple[Node | None, int]:
    if isinstance(t, GradientEdge):
        return t.node, t.output_nr
    if not isinstance(t, Tensor):
        _refuse(t)
    if not t.is_leaf or not t._rg:
        t.retain_grad()
    return edge(t)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to `inputs`; no `.grad` changes.

    Shape: the inputs'; outputs of one element, or `grad_outputs` of their shapes.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError as `backward`, for inputs that are no tensors, and for those that the
    outputs do not depend on, unless `allow_unused`.
    Memory: new tensors; what the graph saved is released unless `retain_graph`.
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, "
            "but got: allow_unused=False."
        )
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    outs, ins = _tensors(outputs), _tensors(inputs)
    taker = _taker((*outs, *ins))
    if taker is not None:
        return taker._skimp_hand_over(  # type: ignore[no-any-return]
            grad,
            outputs,
            inputs,
            grad_outputs=grad_outputs,
            retain_graph=retain_graph,
            create_graph=create_graph,
            only_inputs=only_inputs,
            allow_unused=allow_unused,
            is_grads_batched=is_grads_batched,
            materialize_grads=materialize_grads,
        )
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To "
            "accumulate gradient for other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    if not ins:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched(
            outs, ins, grad_outputs, keep, create_graph, allow_unused, materialize_grads
        )
    roots = _roots(outs, _given(outs, grad_outputs))
    captures = Captures([_asked(t) for t in ins], False)
    del outputs, outs, grad_outputs
    engine.run(roots, keep, create_graph, captures)
    found: list[Any] = list(captures.found)
    for i, (t, g) in enumerate(zip(ins, found, strict=True)):
        if g is None and materialize_grads:
            found[i] = ops.new_zeros(t, shape_of(t))
        elif g is None and not allow_unused:
            raise RuntimeError(
                f"The differentiated Tensor at index {i} appears to not have been used in the "
                "graph. Set allow_unused=True if this is the desired behavior."
            )
    return tuple(found)


def _asked(t: Any) -> tuple[Node | None, int]:
    if isinstance(t, GradientEdge):
        return t.node, t.output_nr
    if not isinstance(t, Tensor):
        _refuse(t)
    if not t._rg:
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    return edge(t)


VMAP: list[Any] = []  # torch.vmap (func/vmapping.py)


def _batched(
    outs: tuple[Any, ...],
    ins: tuple[Any, ...],
    batches: Any,
    keep: bool,
    create: bool,
    unused: bool,
    zeros: bool,
) -> tuple[Any, ...]:
    """The gradients of all rows at once: `grad`, mapped over the first dimension of the batched
    gradients.
    """
    given = _tensors(batches)
    used: list[bool] = []

    def one(rows: tuple[Any, ...]) -> tuple[Any, ...]:
        found = grad(outs, ins, rows, keep, create, allow_unused=unused, materialize_grads=zeros)
        used[:] = [g is not None for g in found]
        return tuple([g for g in found if g is not None])

    found = iter(VMAP[0](one)(given))
    return tuple([next(found) if yes else None for yes in used])


def _given(outputs: tuple[Any, ...], grads: Any) -> tuple[Any, ...]:
    if grads is None:
        return (None,) * len(outputs)
    given = _tensors(grads)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    return given


def _roots(outputs: tuple[Any, ...], grads: tuple[Any, ...]) -> list[engine.Root | None]:
    if not all([isinstance(t, (Tensor, GradientEdge)) for t in outputs]):
        raise AssertionError("Expected output to be a torch.Tensor")
    return [root(i, t, g) for i, (t, g) in enumerate(zip(outputs, grads, strict=True))]


def root(i: int, t: Any, g: Any) -> engine.Root | None:
    """Where backward begins: a node, its output, and the gradient of that; None where nothing
    flows, from a view made under no_grad of what requires grad.
    """
    if isinstance(t, GradientEdge):
        if g is None:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        return t.node, t.output_nr, g
    if g is not None:
        g = _checked(i, t, g)
    if not t._rg:
        raise errors.no_grad_fn(i, t)
    if g is None:
        if (t.numel() if t._np is None else t._np.size) != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if not t._dtype.is_floating_point:
            raise RuntimeError(
                f"grad can be implicitly created only for real scalar outputs but got {t._dtype}"
            )
        one = np.empty(shape_of(t) if t._np is None else t._np.shape, t._dtype.np)
        one.fill(1)
        g = fresh(one, t._dtype) if t._skimp_meta is None else meta.empty(one.shape, t._dtype)
    node, index = (t._skimp_node, t._skimp_index) if t._base is None else (None, 0)
    if node is None:
        node, index = edge(t)
    return None if node is None else (node, index, g)


def _checked(i: int, t: Tensor, g: Any) -> Any:
    """The gradient to begin with."""
    if not isinstance(g, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    if shape_of(g) != shape_of(t):
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of torch.Size({list(shape_of(g))}) "
            f"and output[{i}] has a shape of torch.Size({list(shape_of(t))})."
        )
    if t._dtype.is_complex != g._dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. "
            f"Mismatch in dtype: grad_output[{i}] has a dtype of {g._dtype} and output[{i}] has a "
            f"dtype of {t._dtype}."
        )
    return g


_told: list[bool] = []


def warn_cycle() -> None:
    """PyTorch's warning, once per program as PyTorch gives it."""
    if _told:
        return
    _told.append(True)
    warnings.warn(
        "Using backward() with create_graph=True will create a reference cycle between the "
        "parameter and its gradient which can cause a memory leak. We recommend using "
        "autograd.grad when creating the graph to avoid this. If you have to use this function, "
        "make sure to reset the .grad fields of your parameters to None after use to break the "
        "cycle and avoid the leak.",
        stacklevel=3,
    )


class GradientEdge(tuple[Node, int]):
    """A place in the graph: output `output_nr` of `node`. Stands for a tensor in `backward` and
    `grad`.
    """

    __slots__ = ()

    def __new__(cls, node: Node, output_nr: int, ownership_token: Any = None) -> GradientEdge:
        return super().__new__(cls, (node, output_nr))

    @property
    def node(self) -> Node:
        return self[0]

    @property
    def output_nr(self) -> int:
        return self[1]


def get_gradient_edge(t: Tensor) -> GradientEdge:
    """The edge that the gradient of `t` goes along.

    Shape: any.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for a tensor that doesn't require grad.
    Memory: none; the edge holds the graph.
    """
    if not t._rg:
        raise RuntimeError(
            "It is not possible to get the gradient edge of a Tensor that does not require "
            "gradients"
        )
    node, index = edge(t)
    return GradientEdge(accumulate_of(t) if node is None else node, index)
