"""Parameters and buffers: tensors that modules find when they are assigned as attributes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from skimp._engine.dispatch.overrides import disabled
from skimp._engine.dispatch.row import KNOWN, ORDINARY
from skimp._engine.tensor import devices, promotion
from skimp._engine.tensor.fields import own
from skimp._engine.tensor.formats import preserve_format
from skimp._engine.tensor.meta import MetaTensor
from skimp._engine.tensor.tensor import Tensor, ghost, mark
from skimp.nn import ops


class _ParameterMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return (
            cls is Parameter
            and isinstance(instance, Tensor)
            and getattr(instance, "_is_param", False)
        )


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module counts among its parameters; requires grad unless told otherwise.

    Shape: any.
    Dtypes: floating point and complex numbers; others without `requires_grad`.
    Raises: RuntimeError for integers that shall require grad.
    Memory: of the tensor's storage, not a copy.
    """

    _is_param = True
    _skimp_on_fast_path = True
    __torch_function__ = classmethod(disabled)

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = ops.empty(0)
        if data._skimp_meta is not None:
            return _without_bytes(data, requires_grad)  # type: ignore[no-any-return]
        if type(data) is not Tensor and not type.__instancecheck__(Parameter, data):
            return _flagged(data.detach().requires_grad_(requires_grad), "_is_param")  # type: ignore[return-value]
        if requires_grad and data.dtype.category < 2:
            raise RuntimeError(
                "Only Tensors of floating point and complex dtype can require gradients"
            )
        new = ghost(data, cls)
        new._rg = requires_grad
        if data._skimp_inference:
            mark(new, _skimp_inference=True)
        return new  # type: ignore[return-value]

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            copied = self.data.clone(memory_format=preserve_format)
            memo[id(self)] = type(self)(copied, self.requires_grad)
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce_ex__(self, proto: Any) -> Any:
        parts: tuple[Any, ...] = self.data, self.requires_grad, OrderedDict()
        state = own(self)
        if state:
            return _rebuild_parameter_with_state, (*parts, state)
        return _rebuild_parameter, parts


class _MetaParameter(MetaTensor, Parameter):
    """A parameter without bytes. Who asks its type for another (`type(p)(data)`) gets what the data
    is.
    """

    _skimp_on_fast_path = False

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:  # type: ignore[misc]
        return Parameter(data, requires_grad)


_MetaParameter.__name__ = _MetaParameter.__qualname__ = "Parameter"


def _without_bytes(data: Tensor, requires_grad: bool) -> Any:
    if requires_grad and data.dtype.category < 2:
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    new = ghost(data)
    new.__class__ = _MetaParameter
    new._rg = requires_grad
    return new


ORDINARY.add(Parameter)
KNOWN.add(Parameter)


def _flagged(t: Tensor, flag: str) -> Tensor:
    setattr(t, flag, True)
    return t


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """What pickles of parameters call."""
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(
    data: Tensor, requires_grad: bool, backward_hooks: Any, state: dict[str, Any]
) -> Parameter:
    """The same, with what a program has set on the parameter."""
    made = Parameter(data, requires_grad)
    for name, value in state.items():
        setattr(made, name, value)
    return made


# -- buffers --------------------------------------------------------------------------------------


class _BufferMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Buffer:
            return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)
        return type.__instancecheck__(cls, instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module counts among its buffers; `persistent` ones are part of its
    state_dict.

    Shape: any.
    Dtypes: any.
    Raises: nothing.
    Memory: of the tensor's storage, not a copy.
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = ops.empty(0)
        t: Any = data.detach().requires_grad_(data.requires_grad)
        t.persistent = persistent
        t._is_buffer = True
        return t  # type: ignore[no-any-return]


# -- uninitialised: the shape comes with the first input ------------------------------------------


class UninitializedTensorMixin:
    """Stands for a tensor whose shape nobody knows yet."""

    cls_to_become: type[Tensor]
    _rg: bool
    _dtype: Any
    __class__: Any
    _CONVERSIONS = ("half", "float", "double", "char", "short", "int", "long", "cuda", "cpu", "to")
    _ALLOWED = (
        "size", "copy_", "is_complex", "is_floating_point", "get_device", *_CONVERSIONS,
    )  # fmt: skip
    _DEFINED = (
        "materialize", "requires_grad", "dtype", "device", "is_leaf", "detach", "share_memory_",
    )  # fmt: skip

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Attributes and few methods see the empty tensor behind; ValueError for all else."""
        if type(func).__name__ == "method-wrapper":
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[misc]
        if getattr(func, "__name__", "") in cls._ALLOWED:
            plain = [ghost(a) if is_lazy(a) else a for a in args]
            made = func(*plain, **(kwargs or {}))
            return args[0] if made is plain[0] else made
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. This error happens when you "
            "are using a `LazyModule` or explicitly manipulating `torch.nn.parameter."
            f"{cls.__name__}` objects. When using LazyModules Call `forward` with a dummy batch to "
            "initialize the parameters before calling torch functions"
        )

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a tensor of this shape, uninitialised as to its values."""
        devices.check(device)
        made = ops.empty(tuple(shape), dtype=dtype if dtype is not None else self._dtype)
        self.__class__ = self.cls_to_become
        whole_self: Any = self
        whole_self.data = made

    def _skimp_apply(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Take the dtype that `fn` gives to a tensor of this one's."""
        made = fn(ops.empty(0, dtype=self._dtype))
        own, self.__class__ = type(self), self.cls_to_become
        whole_self: Any = self
        whole_self.data = made
        self.__class__ = own

    @property
    def shape(self) -> NoReturn:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(requires_grad=self._rg, dtype=self._dtype)  # type: ignore[call-arg]
        return memo[id(self)]

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<{type(self).__name__}>"


def _uninitialized(cls: Any, dtype: Any, requires_grad: bool) -> Any:
    dtype = dtype if dtype is not None else promotion.get_default_dtype()
    new = ghost(ops.empty(0, dtype=dtype), cls)
    new._rg = requires_grad
    return new


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter whose shape the first forward gives.

    Shape: none (RuntimeError) until `materialize`.
    Dtypes: floating point and complex numbers.
    Raises: RuntimeError, or ValueError for some attributes, before `materialize`.
    Memory: none before `materialize`, then a new storage.
    """

    cls_to_become = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: Any = None, dtype: Any = None
    ) -> UninitializedParameter:
        return _uninitialized(cls, dtype, requires_grad)  # type: ignore[no-any-return]

    def __reduce_ex__(self, proto: Any) -> Any:
        return type(self), (self.requires_grad, None, self.dtype)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):  # type: ignore[misc]
    """A buffer whose shape the first forward gives.

    Shape: none (RuntimeError) until `materialize`.
    Dtypes: any.
    Raises: RuntimeError, or ValueError for some attributes, before `materialize`.
    Memory: none before `materialize`, then a new storage.
    """

    cls_to_become = Tensor
    persistent: bool

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> UninitializedBuffer:
        new = _uninitialized(cls, dtype, requires_grad)
        new.persistent = persistent
        new._is_buffer = True
        return new  # type: ignore[no-any-return]

    def __reduce_ex__(self, proto: Any) -> Any:
        return type(self), (self._rg, None, self._dtype, self.persistent)


def is_lazy(param: Any) -> bool:
    """Whether the tensor still waits for its shape."""
    return isinstance(param, (UninitializedParameter, UninitializedBuffer))


def gradients(parameters: Iterable[Tensor]) -> list[Tensor | None]:
    """`grad` of each, which most of them have."""
    return [g if type(p) in ORDINARY and (g := p._grad) is not None else p.grad for p in parameters]


def forget_gradients(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Let the gradients of tensors go, or fill them with zeros, without their history."""
    for p in parameters:
        if set_to_none:
            if type(p) not in ORDINARY:
                p.grad = None
            elif p._grad is not None:
                p._grad = None
            continue
        grad = p.grad
        if grad is None:
            continue
        if grad.grad_fn is not None:
            grad.detach_()
        else:
            grad.requires_grad_(False)
        grad.zero_()
