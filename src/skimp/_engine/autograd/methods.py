"""What a tensor can do about differentiation: set on the Tensor class by `attach`."""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from weakref import ref

from skimp._engine.autograd import alias, calls, engine, modes, node_lines as lines
from skimp._engine.autograd.nodes import Node, RemovableHandle, shape_of
from skimp._engine.autograd.refresh import node_of_view
from skimp._engine.interpreter import HELD_BY_ARGUMENT, HELD_BY_ATTRIBUTE
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor.tensor import Tensor, VersionCounter, ghost, mark, mark_version

_frame = sys._getframe
_outside = lines.OUTSIDE

NON_LEAF_GRAD = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
    "attribute won't be populated during autograd.backward(). If you indeed want the .grad field "
    "to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you "
    "access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead. See "
    "github.com/pytorch/pytorch/pull/30531 for more information."
)
NOT_A_LEAF = (
    "you can only change requires_grad flags of leaf variables. If you want to use a computed "
    "variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
)
DETACH_VIEW = (
    "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel "
    "(DDP) for training, and gradient_as_bucket_view is set as True, gradients are views of DDP "
    "buckets, and hence detach_() cannot be called on these gradients. To fix this error, please "
    "refer to the Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution."
)


def grad_fn(t: Tensor) -> Node | None:
    """The node that made the tensor; None for a leaf."""
    return t._skimp_node if t._base is None else node_of_view(t)


def is_leaf(t: Tensor) -> bool:
    """Whether no recorded operation made the tensor."""
    return grad_fn(t) is None


def get_requires_grad(t: Tensor) -> bool:
    return t._rg


def set_requires_grad(t: Tensor, value: bool) -> None:
    if not isinstance(value, bool):
        raise RuntimeError("requires_grad must be a bool")
    if value and t._dtype.category < 2:
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    if t._skimp_node is not None:
        if not value:
            raise RuntimeError(NOT_A_LEAF)
        return
    if t._skimp_inference and value and not modes.state.inference:
        raise RuntimeError(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
        )
    base = t._base
    if not value and base is not None and base._rg:
        t._skimp_inherits = True
        return
    t._rg = value
    if value:
        t._skimp_inherits = False
    if t._skimp_views is not None:
        alias.mark_views(t)


def requires_grad_(t: Tensor, requires_grad: bool = True) -> Tensor:
    """Take part in differentiation from now on, or no longer.

    Shape: any.
    Dtypes: floating point and complex numbers; others can only be set to False.
    Raises: RuntimeError for other dtypes, and for False on what is no leaf.
    Memory: no tensor is made.
    """
    if not isinstance(requires_grad, bool):
        raise TypeError(
            "requires_grad_(): argument 'requires_grad' must be bool, not "
            f"{type(requires_grad).__name__}"
        )
    set_requires_grad(t, requires_grad)
    return t


def get_grad(t: Tensor) -> Tensor | None:
    """The gradient that backward left; with PyTorch's warning on a tensor where it leaves none."""
    if t._grad is None and t._rg and not t._skimp_retains and t._skimp_node is not None:
        warnings.warn(NON_LEAF_GRAD, stacklevel=2)
    return t._grad


def set_grad(t: Tensor, value: Any) -> None:
    if value is None:
        t._grad = None
        return
    if not isinstance(value, Tensor):
        raise TypeError(
            f"assigned grad expected to be a Tensor or None but got grad of type "
            f"{type(value).__name__}"
        )
    if value is t:
        raise RuntimeError("can't assign Variable as its own grad")
    if value._dtype is not t._dtype:
        raise RuntimeError(
            f"attempting to assign a gradient with dtype '{value._dtype}' to a tensor with "
            f"grad_dtype '{t._dtype}'. "
            "The gradient must match the tensor's grad_dtype (defaults to the tensor's dtype)."
        )
    if shape_of(value) != shape_of(t):
        raise RuntimeError(
            f"attempting to assign a gradient of size '{list(shape_of(value))}' to a tensor of "
            f"size '{list(shape_of(t))}'. Please ensure that the gradient and the tensor are the "
            "same size"
        )
    t._grad = value


def del_grad(t: Tensor) -> None:
    t._grad = None


def backward(
    self: Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add this tensor's gradients to the `.grad` of the leaves it was computed from (or of `inputs`
    only).

    Shape: one number, or `gradient` has the tensor's shape.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for a tensor that does not require grad, for several elements without
    `gradient`, and for a graph that was released.
    Memory: new tensors in `.grad`, or written in place where there is one; what the graph saved is
    released unless `retain_graph`.
    """
    if isinstance(gradient, (list, tuple)):
        calls.backward(self, gradient, retain_graph, create_graph, inputs=inputs)
        return
    captures = None
    if inputs is not None or modes.state.vmaps:
        captures = calls.captured(inputs)
    roots = [calls.root(0, self, gradient)]
    if create_graph:
        calls.warn_cycle()
    del gradient
    keep = create_graph if retain_graph is None else retain_graph
    engine.run(roots, keep, create_graph, captures)


# -- hooks -----------------------------------------------------------------------------------------


def retain_grad(t: Tensor) -> None:
    """Keep this tensor's `.grad` in backward although it is not a leaf.

    Shape: the gradient has the tensor's shape.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for a tensor that does not require grad.
    Memory: the gradient stays after backward.
    """
    if not t._rg:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if t._skimp_node is None or t._skimp_retains:
        return
    node = grad_fn(t)
    assert node is not None

    t._skimp_retains = True
    node._skimp_more().retains[t._skimp_index] = ref(t)


def retains_grad(t: Tensor) -> bool:
    """Whether backward will leave a `.grad` although the tensor is not a leaf."""
    return t._skimp_retains


def register_hook(t: Tensor, hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(grad)` when this tensor's gradient is known; what it returns replaces the
    gradient.

    Shape: the gradient has the tensor's shape.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for a tensor that does not require grad.
    Memory: no tensor is made.
    """
    if not t._rg:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node = grad_fn(t)
    if node is None:
        if t._skimp_hooks is None:
            t._skimp_hooks = OrderedDict()
        return RemovableHandle.put(t._skimp_hooks, hook)
    return RemovableHandle.put(
        node._skimp_more().on.setdefault(t._skimp_index, OrderedDict()), hook
    )


def register_post_accumulate_grad_hook(t: Tensor, hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(tensor)` after backward has updated this leaf's `.grad`.

    Shape: the gradient has the tensor's shape.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError for a tensor that does not require grad or is no leaf.
    Memory: no tensor is made.
    """
    if not t._rg:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if grad_fn(t) is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if t._skimp_post_hooks is None:
        t._skimp_post_hooks = OrderedDict()
    return RemovableHandle.put(t._skimp_post_hooks, hook)


# -- the same bytes without the history ------------------------------------------------------------


def detach(input: Tensor) -> Tensor:
    """The same bytes and version, without the history: does not require grad.

    >>> x = torch.ones(2, requires_grad=True)
    >>> x.detach()[0] = 5
    >>> x
    tensor([5., 1.], requires_grad=True)

    Shape: any; the result's is the input's.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing.
    Memory: a view, which shares the input's bytes.
    """
    if not input._skimp_on_fast_path and input._skimp_asks():
        return input._skimp_hand_over(detach, input)  # type: ignore[no-any-return]
    new = ghost(input)
    if input._skimp_inference:
        mark(new, _skimp_inference=True)
    if input._rg:
        f = _frame(1)
        code = f.f_code
        if code.co_filename in _outside:
            new._skimp_cut = ("detach()", code, f.f_lasti)
        else:
            new._skimp_cut = ("detach()", *lines.outside(f))
    return new


def detach_(input: Tensor) -> Tensor:
    """Forget the history of this tensor: it becomes a leaf that does not require grad.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError for a view.
    Memory: the tensor itself; no byte moves.
    """
    if input._base is not None:
        raise RuntimeError(DETACH_VIEW)
    if input._rg:
        input._skimp_cut = ("detach_()", *lines.here())
    input._rg, input._skimp_node, input._skimp_index, input._skimp_retains = False, None, 0, False
    if input._skimp_views is not None:
        alias.mark_views(input)
    return input


def get_data(t: Tensor) -> Tensor:
    """The same bytes with a history and a version of their own: writes to it go unnoticed by
    autograd.
    """
    if not t._skimp_on_fast_path and t._skimp_asks():
        return t._skimp_hand_over(Tensor.data.__get__, t)  # type: ignore[no-any-return]
    new = ghost(t)
    mark_version(new, VersionCounter())
    if t._skimp_inference:
        mark(new, _skimp_inference=True)
    return new


OTHER_KIND = (
    "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible "
    "tensor type. "
)


def set_data(t: Tensor, value: Any) -> None:
    """Let the tensor look at another one's bytes; its history, its version and its `.grad` stay."""
    if not isinstance(value, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    if t._rg and value._dtype.category < 2:
        raise RuntimeError(
            "data set to a tensor that requires gradients must be floating point or complex dtype"
        )
    if (t._skimp_meta is None) is not (value._skimp_meta is None):
        raise RuntimeError(OTHER_KIND)
    if value._storage is not t._storage:  # else whoever counts its versions goes on, for views too
        counter = VersionCounter()
        counter.version = t._skimp_version
        mark_version(t, counter)
        t._storage = value._storage
    elif value._np is t._np is not None and value._dtype is t._dtype:  # after `t.data += x`
        return
    t._np = value._np
    t._skimp_turned = value._skimp_turned
    t._skimp_layout = value._skimp_layout
    t._dtype = value._dtype
    if value._conj or value._skimp_neg or t._skimp_marked:
        mark(t, _conj=value._conj, _skimp_neg=value._skimp_neg)
    t._skimp_accumulate = None


def take_data(t: Tensor, value: Tensor) -> None:
    """`t.data = value`, for who was handed a value and hands it on here: where nobody else has it,
    or its bytes, their version is the tensor's own, which stays on the fast paths.
    """
    alone = (
        sys.getrefcount(value) == HELD_BY_ARGUMENT
        and sys.getrefcount(value._storage) == HELD_BY_ATTRIBUTE
    )
    set_data(t, value)
    counter = t._skimp_counter
    rare = t._conj or t._skimp_neg or t._skimp_inference or t._skimp_creation is not None
    if alone and counter is not None and t._skimp_meta is None and not rare:
        t._storage.version = counter.version
        mark(t, _skimp_counter=None)
        t._skimp_marked = False


def is_view(t: Tensor) -> bool:
    return t._base is not None


def output_nr(t: Tensor) -> int:
    """Which output of its grad_fn the tensor is."""
    return t._skimp_index if grad_fn(t) is not None else 0


def is_inference(input: Tensor) -> bool:
    """Whether the tensor was made in inference mode.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing.
    Memory: no tensor is made.
    """
    if not isinstance(input, Tensor):
        got = type(input).__name__
        raise TypeError(f"is_inference(): argument 'input' (position 1) must be Tensor, not {got}")
    return input._skimp_inference


def attach(cls: type[Tensor]) -> None:
    """Give the Tensor class what this module defines."""
    members: dict[str, Any] = {
        "requires_grad": property(get_requires_grad, set_requires_grad),
        "requires_grad_": requires_grad_,
        "is_leaf": property(is_leaf),
        "grad": property(get_grad, set_grad, del_grad),
        "grad_fn": property(grad_fn),
        "backward": backward,
        "retain_grad": retain_grad,
        "retains_grad": property(retains_grad),
        "register_hook": register_hook,
        "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
        "detach": detach,
        "detach_": detach_,
        "data": property(get_data, set_data),
        "_is_view": is_view,
        "output_nr": property(output_nr),
        "is_inference": is_inference,
    }
    for name, member in members.items():
        setattr(cls, name, member)
    for name, default in {
        "_skimp_inherits": False,
        "_skimp_creation": None,
        "_skimp_views": None,
        "_skimp_output": 0,
    }.items():
        if not hasattr(cls, name):
            setattr(cls, name, default)
    for name, default in {"saved": False, "written": None}.items():
        if not hasattr(Storage, name):
            setattr(Storage, name, default)


attach(Tensor)
