"""Module: the base class of everything that has parameters and a forward."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar

from skimp._engine.autograd.methods import take_data
from skimp._engine.autograd.modes import no_grad
from skimp._engine.memory.meta import NO_DATA
from skimp._engine.tensor import devices, dtypes
from skimp._engine.tensor.options import default_of
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.shape.conversions import to_arguments
from skimp.nn import ops
from skimp.nn.modules.hooks import (
    Hooked,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from skimp.nn.modules.state import State
from skimp.nn.parameter import Parameter, UninitializedTensorMixin, forget_gradients

__all__ = [
    "Module", "register_module_backward_hook", "register_module_buffer_registration_hook",
    "register_module_forward_hook", "register_module_forward_pre_hook",
    "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook",
]  # fmt: skip


def _forward_unimplemented(self: Any, *input: Any) -> None:
    """Define the computation of the module: every subclass does."""
    raise NotImplementedError(
        f'Module [{type(self).__name__}] is missing the required "forward" function'
    )


def _hook_tables() -> dict[str, Any]:
    names = (
        "_backward_pre_hooks", "_backward_hooks", "_is_full_backward_hook", "_forward_hooks",
        "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
    )  # fmt: skip
    return {n: None if n == "_is_full_backward_hook" else OrderedDict() for n in names}


class Module(Hooked, State):
    """Something with parameters, buffers, children and a `forward`.

    A class says in `_skimp_shows` what its repr has between the parentheses, names separated by
    commas: `name` shows the bare value, `name=` both (`name!r=` the value's repr), `name?` both,
    unless the value is the option's default. A parameter is shown by whether there is one.

    Shape: forward's, which a subclass defines.
    Raises: AttributeError for parameters and modules assigned before `__init__` ran;
    NotImplementedError when called without a forward.
    Memory: it holds the tensors themselves; `to` and its like replace their bytes, not the
    objects.
    """

    _skimp_shows: ClassVar[str] = ""
    dump_patches: bool = False
    training: bool
    call_super_init: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and kwargs:
            name = next(iter(kwargs))
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument '{name}'"
            )
        if not self.call_super_init and args:
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} "
                "were given"
            )
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            **_hook_tables(),
            _modules={},
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented

    def _skimp_new_parameters(self, device: Any, dtype: Any, **shapes: Any) -> None:
        """Register parameters of these shapes, uninitialised; None stands where there is none."""
        for name, shape in shapes.items():
            made = None if shape is None else ops.empty(shape, device=device, dtype=dtype)
            self.register_parameter(name, None if made is None else Parameter(made))

    # -- changing all tensors ---------------------------------------------------------------------

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Replace the bytes of all parameters, gradients and buffers by `fn` of them."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is None:
                continue
            if isinstance(param, UninitializedTensorMixin):
                param._skimp_apply(fn)
                continue
            grad = param.grad
            with no_grad():
                moved = _moved(param, fn(param))
                if grad is not None:
                    grad = _moved(grad, fn(grad))
            if moved is not param:
                self._parameters[name] = moved
                moved.grad = grad
        for name, buffer in self._buffers.items():
            if isinstance(buffer, UninitializedTensorMixin):
                buffer._skimp_apply(fn)
            elif buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def apply(self, fn: Callable[[Any], Any]) -> Any:
        """Call `fn` with every module below, then with this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Change device, dtype (of what is floating point) or memory format, in place."""
        dtype, where, _, memory_format = to_arguments(*args, **kwargs)
        if where is not None:
            where = devices.place(where)
        if dtype is not None:
            if dtype.category < dtypes.FLOAT:
                raise TypeError(
                    "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                    f"dtype={dtype}"
                )
            if dtype.is_complex:
                warnings.warn(
                    "Complex modules are a new feature under active development whose design may "
                    "change, and some modules might not work as expected when using complex "
                    "tensors as parameters or buffers. Please file an issue at "
                    "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml if a "
                    "complex module does not work as expected.",
                    stacklevel=2,
                )

        def convert(t: Tensor) -> Tensor:
            wanted = dtype if t.is_floating_point() or t.is_complex() else None
            if t._skimp_meta is not None and where is devices.CPU:
                raise NotImplementedError(
                    f"{NO_DATA} Please use torch.nn.Module.to_empty() instead of "
                    "torch.nn.Module.to() when moving module from meta to a different device."
                )
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(where, wanted, memory_format=memory_format)
            return t.to(where, wanted)

        return self._apply(convert)

    def _skimp_to_float(self, dtype: dtypes.dtype) -> Any:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Any:
        """Make everything floating point float32."""
        return self._skimp_to_float(dtypes.float32)

    def double(self) -> Any:
        """Make everything floating point float64."""
        return self._skimp_to_float(dtypes.float64)

    def half(self) -> Any:
        """Make everything floating point float16."""
        return self._skimp_to_float(dtypes.float16)

    def bfloat16(self) -> Any:
        """Make everything floating point bfloat16."""
        return self._skimp_to_float(dtypes.bfloat16)

    def type(self, dst_type: Any) -> Any:
        """Make everything of this dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self) -> Any:
        """Stay on the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Any:
        """Raises: no CUDA here."""
        devices.check("cuda" if device is None else devices.device(device))
        return self

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Fresh, uninitialised storages for everything."""
        return self._apply(lambda t: ops.empty_like(t, device=device), recurse=recurse)

    def share_memory(self) -> Any:
        """Move everything to memory that other processes can map."""
        return self._apply(lambda t: t.share_memory_())

    # -- modes ------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Any:
        """Training (or evaluation) mode for this module and all below it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Any:
        """Evaluation mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Let all parameters take part in differentiation, or none."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros."""
        forget_gradients(self.parameters(), set_to_none)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: large pointwise work is fused anyway."""

    # -- text and pickling ------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands between the parentheses, beside the children."""
        shown = [_shown(self, what) for what in self._skimp_shows.split(", ") if what]
        return ", ".join([text for text in shown if text is not None])

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        below = [f"({name}): {indented(repr(module))}" for name, module in self._modules.items()]
        if not below and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        if not lines and not below:
            return f"{self._get_name()}()"
        inner = "\n  ".join(lines + below)
        return f"{self._get_name()}(\n  {inner}\n)"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name, table in {**_hook_tables(), "_non_persistent_buffers_set": set()}.items():
            self.__dict__.setdefault(name, table)


def _shown(module: Module, what: str) -> str | None:
    """One item of `_skimp_shows`."""
    name = what.rstrip("=?").removesuffix("!r")
    value = getattr(module, name)
    if name in module._parameters or (isinstance(value, Tensor) and value.ndim):
        value = value is not None  # of a bias; a tensor of one number stands for the number
    if what.endswith("?") and value == default_of(type(module), name):
        return None
    text = repr(value) if "!r" in what else format(value)
    return text if what == name else f"{name}={text}"


def _moved(t: Any, new: Tensor) -> Any:
    """The tensor on the bytes of `new`; another one where it had none, or has none now."""
    if new is t:
        return t
    if (t._skimp_meta is None) is not (new._skimp_meta is None):
        if isinstance(t, Parameter):
            return Parameter(new, t.requires_grad)
        return new.requires_grad_(t.requires_grad)
    take_data(t, new)
    return t


def indented(text: str) -> str:
    return text.replace("\n", "\n  ")
