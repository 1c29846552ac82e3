"""`autograd.Function`: operations whose forward and backward a user writes."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from skimp._engine.autograd import alias, errors, modes, node_lines as lines, saving
from skimp._engine.autograd.nodes import Grads, Node, init, shape_of
from skimp._engine.autograd.refresh import edge
from skimp._engine.dispatch.batched import Batched
from skimp._engine.tensor.tensor import Tensor, empty, mark_creation
from skimp.autograd.mapped import apply_samples, apply_vmap


class FunctionCtx:
    """What `forward` uses to tell `backward`: its `ctx`."""

    to_save: tuple[Any, ...] = ()
    dirty_tensors: tuple[Any, ...] = ()
    non_differentiable: tuple[Any, ...] = ()
    materialize_grads = True
    saved_for_forward: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors until backward, where `saved_tensors` gives them, checked for in-place
        writes.
        """
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type "
                    f"{type(t).__name__}"
                )
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors for `jvp`."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """These inputs were modified in place; they must be returned."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """These outputs have no gradient."""
        self.non_differentiable = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Deprecated and without effect, as in PyTorch."""
        warnings.warn(
            "mark_shared_storage is deprecated. Tensors with shared storages are automatically "
            "tracked. Note that calls to `set_()` are not tracked",
            FutureWarning,
            stacklevel=2,
        )

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (True) or None for outputs without a gradient."""
        self.materialize_grads = value


class BackwardCFunction(Node, FunctionCtx):
    """The node of one call of a Function, which is its `ctx` as well."""

    _forward_cls: ClassVar[Any]
    needs_input_grad: tuple[bool, ...]
    _skimp_tensor_args: tuple[bool, ...]
    _skimp_freed = False
    _skimp_live: tuple[bool, ...]  # which outputs are tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` saved."""
        saved = self._skimp_saved
        if self._skimp_freed or saved is None:
            raise errors.freed(self)
        return tuple(
            [saving.one(self, saved[i][0], saved[i][1], saved[i][2]) for i in range(len(saved))]
        )

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[Any, ...]:
        if self._skimp_freed:
            raise errors.freed(self)
        return tuple([saving.SavedTensor(self, entry, 0, entry[2]) for entry in self._skimp_saved])

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{type(self).__name__} object at {id(self):#x}>"

    def maybe_clear_saved_tensors(self) -> None:
        self._skimp_release()

    def _skimp_release(self) -> None:
        self._skimp_freed = True
        if self._skimp_saved:
            self._skimp_saved = None

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Sequence[Tensor | None]:
        user = self._forward_cls
        if user.backward is not Function.backward and user.vjp is not Function.vjp:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. "
                "You should only implement one of them."
            )
        f = user.vjp if user.vjp is not Function.vjp else user.backward
        arrived = self._skimp_arrived(grads)
        if not modes.state.vmaps:  # else the engine may need them once more
            grads.clear()
        found = f(self, *arrived)
        del arrived
        return self._skimp_checked(found if isinstance(found, tuple) else (found,))

    def _skimp_arrived(self, grads: Grads) -> list[Any]:
        if not self.materialize_grads:
            return list(grads)
        out: list[Any] = []
        for g, is_tensor, (shape, dtype) in zip(
            grads, self._skimp_live, self._skimp_metas(), strict=True
        ):
            if g is None and is_tensor:
                g = empty(shape, dtype).zero_()
            out.append(g)
        return out

    def _skimp_checked(self, found: tuple[Any, ...]) -> list[Tensor | None]:
        """Backward's results, for the inputs that were tensors."""
        expected = len(self._skimp_tensor_args)
        if len(found) > expected and all([g is None for g in found[expected:]]):
            found = found[:expected]
        if len(found) != expected:
            raise RuntimeError(
                f"function {self._skimp_label} returned an incorrect number of gradients (expected "
                f"{expected}, got {len(found)})"
            )
        out: list[Tensor | None] = []
        for i, (g, is_tensor) in enumerate(zip(found, self._skimp_tensor_args, strict=True)):
            if g is not None and not is_tensor:
                raise RuntimeError(
                    f"function {self._skimp_label} returned a gradient different than None at "
                    f"position {i + 1}, but the corresponding forward input was not a Variable"
                )
            if g is not None and not isinstance(g, Tensor):
                raise RuntimeError(f"expected Variable or None (got {type(g).__name__})")
            if is_tensor:
                out.append(g)
        return out


class FunctionMeta(type):
    """Gives each Function the class of its nodes: `MyFunctionBackward`."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        label = f"{name}Backward"
        space = {
            "_forward_cls": cls,
            "_skimp_label": label,
            "__module__": "skimp.autograd.function",
        }
        cls._backward_cls = type(label, (BackwardCFunction,), space)
        super().__init__(name, bases, attrs)


class Function(metaclass=FunctionMeta):
    """Subclass with static `forward(ctx, ...)` and `backward(ctx, *grads)`, and call `apply`."""

    _backward_cls: ClassVar[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself. Instantiating an autograd "
            "function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs: `forward(ctx, *args)`; without ctx if there is a `setup_context`."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Fill `ctx` after a forward without ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of forward's arguments, one for each (None where there is none)."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Forward-mode differentiation, which skimp does not have."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    generate_vmap_rule = False  # of no consequence: without `vmap`, samples go one by one

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """(output, out_dims) of forward for a batch: `info` has batch_size and randomness, and
        `in_dims` says for each argument where its batch dimension is, or None.
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or "
            "set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward, unrecorded, and record backward as its derivative."""
        splits = cls.setup_context is not Function.setup_context
        if kwargs or splits:
            args = _bound(cls, args, kwargs, splits)
        if modes.state.vmaps and any([type(a) is Batched for a in args]):
            if cls.vmap is Function.vmap:
                return apply_samples(cls.apply, args)
            return apply_vmap(cls, args)
        ctx = cls._backward_cls.__new__(cls._backward_cls)
        tensors = [a for a in args if isinstance(a, Tensor)]
        recorded = modes.state.grad and any([t._rg for t in tensors])
        init(ctx, tuple([x for t in tensors for x in edge(t)]) if recorded else (), (), None)  # type: ignore[arg-type]
        ctx._skimp_code, ctx._skimp_lasti = lines.here()
        if lines.TRACE:
            ctx._skimp_more().trace = lines.trace()
        ctx._skimp_tensor_args = tuple([isinstance(a, Tensor) for a in args])
        ctx.needs_input_grad = tuple([isinstance(a, Tensor) and a._rg for a in args])
        before = modes.state.grad
        modes.state.grad = False
        try:
            if splits:
                output = cls.forward(*args)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args)
        finally:
            modes.state.grad = before
        return _wrapped(ctx, tensors, output, recorded)


def _bound(
    cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], splits: bool
) -> tuple[Any, ...]:
    """All arguments of forward by position, with its defaults."""
    lead = () if splits else (None,)
    found = inspect.signature(cls.forward).bind(*lead, *args, **kwargs)
    found.apply_defaults()
    return tuple(found.args[len(lead) :])


def _is(t: Any, among: Sequence[Any]) -> bool:
    return any([t is one for one in among])


def _wrapped(ctx: Any, inputs: list[Tensor], output: Any, recorded: bool) -> Any:
    """The outputs, made results of `ctx`."""
    single = not isinstance(output, tuple)
    outputs = (output,) if single else output
    for t in ctx.dirty_tensors:
        if not _is(t, outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as "
                "output. The inputs that are modified inplace must all be outputs of the Function."
            )
    ctx._skimp_live = tuple([isinstance(t, Tensor) for t in outputs])
    metas = tuple(
        [(shape_of(t), t._dtype) if isinstance(t, Tensor) else ((), None) for t in outputs]
    )
    ctx._skimp_shape, ctx._skimp_dtype = metas[0] if metas else ((), None)
    if len(metas) != 1:
        ctx._skimp_outputs = metas
    wrapped = tuple(
        [
            _output(ctx, i, t, inputs, recorded) if isinstance(t, Tensor) else t
            for i, t in enumerate(outputs)
        ]
    )
    if recorded:
        ctx._skimp_saved = [_kept(ctx, t, wrapped, outputs) for t in ctx.to_save]
    ctx.to_save = ctx.dirty_tensors = ctx.non_differentiable = ()
    return wrapped[0] if single else wrapped


def _kept(ctx: Any, t: Any, wrapped: tuple[Any, ...], outputs: tuple[Any, ...]) -> list[Any]:
    if t is not None and t.is_sparse:
        return [saving.Entries(ctx, t), None, None]
    result = None
    for i, (new, old) in enumerate(zip(wrapped, outputs, strict=True)):
        if (
            t is not None
            and (t is old or t is new)
            and isinstance(new, Tensor)
            and new._skimp_node is ctx
        ):
            result = i
            t = new
    return [*saving.save(ctx, t, result), result]


def _output(ctx: Any, i: int, t: Tensor, inputs: list[Tensor], recorded: bool) -> Tensor:
    dirty = _is(t, ctx.dirty_tensors)
    is_input = _is(t, inputs)
    differentiable = t._dtype.category > 1 and not _is(t, ctx.non_differentiable)
    if dirty and is_input:
        if recorded:
            _rewrite(ctx, i, t, inputs)
        t._skimp_bump()
        return t
    if is_input:
        t = t.view_as(t)
    if not recorded:
        return t
    if not differentiable:
        if t._rg:
            t = t.detach()
        return t
    t._rg, t._skimp_node, t._skimp_index, t._skimp_inherits = True, ctx, i, False
    if t._base is not None:
        mark_creation(t, "custom")
        t._skimp_output = i
        t._skimp_stale = t._skimp_version
    return t


def _rewrite(ctx: Any, i: int, t: Tensor, inputs: list[Tensor]) -> None:
    """An input that forward wrote to, and returned."""
    if t._base is not None and t._skimp_creation is not None:
        raise errors.view_refused(t._skimp_creation, t._skimp_node, t._skimp_output, False)
    if t._rg and t._base is not None and t._base._skimp_node is None and t._base._rg:
        raise RuntimeError(errors.VIEW_OF_LEAF)
    if t._rg and t._skimp_node is None and t._base is None:
        raise RuntimeError(
            "a leaf Variable that requires grad has been used in an in-place operation."
        )
    if t._base is not None and len(ctx._skimp_metas()) > 1:
        raise RuntimeError("Functions which modify views in-place must return a single Variable")
    alias.replace_history(t, ctx, i, [a is t for a in inputs].index(True))


# -- once_differentiable ---------------------------------------------------------------------------


class Error(Node):
    """Stands where no second derivative exists."""

    __slots__ = ("text",)
    _skimp_label = "torch::autograd::Error"
    text: str

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Sequence[Tensor | None]:
        raise RuntimeError(self.text)


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A backward that can't itself be differentiated: doing so raises."""

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with modes.no_grad():
            outputs = fn(ctx, *args)
        if not modes.state.grad or not any([isinstance(a, Tensor) and a._rg for a in args]):
            return outputs
        several = isinstance(outputs, tuple)
        made = tuple([_undifferentiable(t) for t in (outputs if several else (outputs,))])
        return made if several else made[0]

    return wrapper


def _undifferentiable(t: Any) -> Any:
    if not isinstance(t, Tensor):
        return t
    node = Error.__new__(Error)
    leaf = t.detach()
    leaf._rg = True
    init(node, edge(leaf), shape_of(t), t._dtype)
    node.text = "trying to differentiate twice a function that was marked with @once_differentiable"
    return saving.revived(t, node, 0)


class InplaceFunction(Function):
    """A Function with an `inplace` flag, kept for old code."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
