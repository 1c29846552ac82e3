"""torch.ops.aten: the ops under the names and overloads that PyTorch's dispatcher knows.

An overload is found by its name and runs the public function of that op, which looks at its
arguments itself: `torch.ops.aten.add.Tensor(a, b)` is `torch.add(a, b)`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from skimp._engine.dispatch.row import METHODS, NAMESPACES
from skimp._engine.memory.layout import normalize_dim
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.nn.reduction import numbered
from skimp.nn.native import convolution

__all__ = ["Namespace", "OpOverload", "OpOverloadPacket", "aten", "function_of"]

Function = Callable[..., Any]
_PREFIXES = {"linalg_": "linalg", "fft_": "fft", "special_": "special"}


def _public(name: str) -> Function:
    return NAMESPACES[""].get(name) or NAMESPACES["nn.functional"].get(name) or METHODS[name]


# -- ops whose public function is called in another way -------------------------------------------


def _softmax_of(name: str) -> Function:
    def call(self: Tensor, dim: int, half_to_float: bool) -> Any:
        return _public(name)(self, dim, dtypes.float32 if half_to_float else None)

    return call


def _to_copy(
    self: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Any:
    return METHODS["to"](self, device, dtype, copy=True, memory_format=memory_format)


def _slice(self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    where = [slice(None)] * self.ndim
    where[normalize_dim(dim, self.ndim)] = slice(start, end, step)
    return self[tuple(where)]


def _pad_of(mode: str) -> Function:
    return lambda self, padding: _public("pad")(self, list(padding), mode)


def _upsample_of(mode: str, aligned: bool) -> Function:
    def call(input: Tensor, output_size: Any, *rest: Any, **words: Any) -> Any:
        names = ("align_corners", "scale_factors") if aligned else ("scale_factors",)
        given = {**dict(zip(names, rest, strict=False)), **words}
        scales = given.pop("scale_factors", None)
        if output_size is None:
            return _public("interpolate")(input, None, scales, mode, given.get("align_corners"))
        size = list(output_size)
        return _public("interpolate")(input, size, None, mode, given.get("align_corners"))

    return call


def _batch_norm_of_running(
    input: Tensor, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    return _public("native_batch_norm")(input, weight, bias, mean, var, False, momentum, eps)


def _alias(self: Tensor) -> Any:
    return METHODS["view"](self, tuple(self.shape))


def _scalar_of(self: Tensor) -> Any:
    return self.item()


def _im2col(self: Tensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return _public("unfold")(self, kernel_size, dilation, padding, stride)


def _col2im(
    self: Tensor, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    return NAMESPACES["nn.functional"]["fold"](
        self, output_size, kernel_size, dilation, padding, stride
    )


def _log_sigmoid_of(self: Tensor) -> Any:
    return _public("logsigmoid")(self), self.new_empty((0,))


def _svd(A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *,  # noqa: N803
         driver: Any = None) -> Any:  # fmt: skip
    if compute_uv:
        return NAMESPACES["linalg"]["svd"](A, full_matrices)
    return A.new_empty((0,)), NAMESPACES["linalg"]["svdvals"](A), A.new_empty((0,))


def _loss(name: str, place: int) -> Function:
    """A loss whose `reduction`, a number, stands at that place."""

    def call(*args: Any, **kwargs: Any) -> Any:
        how = args[place] if len(args) > place else kwargs.pop("reduction", 1)
        words = dict(zip(_AFTER.get(name, ()), args[place + 1 :], strict=False))
        reduction = how if isinstance(how, str) else numbered(how)
        return _public(name)(*args[:place], **kwargs, **words, reduction=reduction)

    return call


_AFTER = {"huber_loss": ("delta",), "smooth_l1_loss": ("beta",)}
_PLACES = {
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"), 2),
    **dict.fromkeys(("soft_margin_loss", "multilabel_margin_loss"), 2),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_with_logits"), 3),
    "multi_margin_loss": 5,
}


def _with_indices(name: str, samples: bool = False) -> Function:
    def call(self: Tensor, *args: Any) -> Any:
        f = NAMESPACES["nn.functional"][f"{name}_with_indices"]
        if not samples:
            return f(self, *args)
        kernel, size, drawn = args
        return f(self, kernel, size, _random_samples=drawn)

    return call


def _unpool(self: Tensor, indices: Tensor, output_size: Any, *_: Any) -> Any:
    n = len(output_size)
    flat = (*self.shape[: self.ndim - n], -1)
    made = self.new_zeros((*flat[:-1], math.prod(output_size)))
    made = made.scatter(-1, indices.reshape(flat), self.reshape(flat))
    return made.reshape((*flat[:-1], *output_size))


def _unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    found = NAMESPACES[""]["unique_consecutive"](self, return_inverse, return_counts, dim)
    return _three(found, return_inverse, return_counts)


def _three(found: Any, inverse: bool, counts: bool) -> Any:
    """Values, places and counts: an empty tensor for what was not asked for."""
    parts = list(found) if isinstance(found, tuple) else [found]
    empty = parts[0].new_empty((0,), dtype=dtypes.int64)
    return parts[0], parts[1] if inverse else empty, parts[-1] if counts else empty


def _unique2(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    found = NAMESPACES[""]["unique"](self, sorted, return_inverse, return_counts)
    return _three(found, return_inverse, return_counts)


def _index(self: Tensor, indices: Any) -> Any:
    return self[tuple([slice(None) if i is None else i for i in indices])]


def _nll_of(self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int) -> Any:
    """The loss, and the weight that its mean was divided by."""
    loss = _public("nll_loss")(
        self, target, weight, ignore_index=ignore_index, reduction=numbered(reduction)
    )
    counted = target[target != ignore_index]
    total = self.new_tensor(float(counted.numel())) if weight is None else weight[counted].sum()
    return loss, total if reduction else self.new_zeros(())


def _grouped(
    self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    grouped_mm = _public("grouped_mm")
    return grouped_mm(self, mat2, offs=offs, bias=bias, out_dtype=out_dtype)


_OTHERWISE: dict[str, Function] = {
    "nll_loss_forward": _nll_of,
    "nll_loss2d_forward": _nll_of,
    "index": _index,
    "convolution": convolution,
    "_unique2": _unique2,
    "_cdist_forward": lambda x1, x2, p, mode: NAMESPACES[""]["cdist"](x1, x2, p),
    "_pdist_forward": lambda self, p=2: NAMESPACES[""]["pdist"](self, p),
    "_prelu_kernel": lambda self, weight: NAMESPACES[""]["where"](self > 0, self, weight * self),
    **{name: _loss(name, place) for name, place in _PLACES.items()},
    **{f"adaptive_max_pool{n}d": _with_indices(f"adaptive_max_pool{n}d") for n in (2, 3)},
    **{f"fractional_max_pool{n}d": _with_indices(f"fractional_max_pool{n}d", True) for n in (2, 3)},
    **{f"max_unpool{n}d": _unpool for n in (2, 3)},
    "unique_consecutive": _unique_consecutive,
    "_softmax": _softmax_of("softmax"),
    "_log_softmax": _softmax_of("log_softmax"),
    "_to_copy": _to_copy,
    "_unsafe_view": lambda self, size: METHODS["reshape"](self, size).clone(),
    "alias": _alias,
    "lift_fresh": lambda self: self,
    "slice": _slice,
    "_local_scalar_dense": _scalar_of,
    "im2col": _im2col,
    "col2im": _col2im,
    "log_sigmoid_forward": _log_sigmoid_of,
    "_conj": lambda self: self.conj(),
    "_conj_physical": lambda self: NAMESPACES[""]["conj_physical"](self),
    "_linalg_svd": _svd,
    "_native_batch_norm_legit_no_training": _batch_norm_of_running,
    "_adaptive_avg_pool2d": lambda self, size: _public("adaptive_avg_pool2d")(self, size),
    "_adaptive_avg_pool3d": lambda self, size: _public("adaptive_avg_pool3d")(self, size),
    "_grouped_mm": _grouped,
    "_upsample_nearest_exact1d": _upsample_of("nearest-exact", False),
    "_upsample_nearest_exact2d": _upsample_of("nearest-exact", False),
    **{f"reflection_pad{n}d": _pad_of("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _pad_of("replicate") for n in (1, 2, 3)},
    **{f"upsample_nearest{n}d": _upsample_of("nearest", False) for n in (1, 2, 3)},
    "upsample_linear1d": _upsample_of("linear", True),
    "upsample_bilinear2d": _upsample_of("bilinear", True),
    "upsample_bicubic2d": _upsample_of("bicubic", True),
    "upsample_trilinear3d": _upsample_of("trilinear", True),
}


def function_of(name: str) -> Function | None:
    """The function that runs for an op of PyTorch's dispatcher; None where there is none."""
    found = _OTHERWISE.get(name) or NAMESPACES[""].get(name) or METHODS.get(name)
    if found is not None:
        return found
    for prefix, space in _PREFIXES.items():
        if name.startswith(prefix):
            return NAMESPACES[space].get(name.removeprefix(prefix))
    return NAMESPACES["nn.functional"].get(name)


def _refuse(name: str, *_: Any, **__: Any) -> NoReturn:
    """What runs for an op that skimp has not: libraries name many that they never call."""
    raise NotImplementedError(f"aten::{name}: skimp has no such op")


# -- what programs hold ---------------------------------------------------------------------------


class OpOverload:
    """One overload, `torch.ops.aten.add.Tensor`."""

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self.overloadpacket = packet
        self.namespace = packet.namespace
        self._overloadname = overload
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__qualname__ = self.__name__
        self.__module__ = packet.__module__
        self.tags: list[Any] = []

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if "out" in self._overloadname.split("_") and not (
            "out" in kwargs or any([k in kwargs for k in ("values", "indices", "out0", "min")])
        ):
            raise RuntimeError(
                f"aten::{self.overloadpacket.__name__}() is missing value for argument 'out'."
            )
        return self.overloadpacket(*args, **kwargs)

    def name(self) -> str:
        """`aten::add.Tensor`."""
        end = "" if self._overloadname == "default" else f".{self._overloadname}"
        return f"{self.namespace}::{self.overloadpacket.__name__}{end}"

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        op = f"{self.namespace}.{self.overloadpacket.__name__}"
        return f"<OpOverload(op='{op}', overload='{self._overloadname}')>"

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self


class OpOverloadPacket:
    """All overloads of an op, `torch.ops.aten.add`; called, the one that the arguments fit."""

    def __init__(self, namespace: str, name: str, overloads: tuple[str, ...], f: Function) -> None:
        self.namespace = namespace
        self.__name__ = self.__qualname__ = name
        self.__module__ = f"torch._ops.{namespace}"
        self._overloads = overloads
        self._f = f

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if "self" in kwargs:
            args = (kwargs.pop("self"), *args)
        try:
            return self._f(*args, **kwargs)
        except TypeError as error:
            raise RuntimeError(f"aten::{self.__name__}(): {error}") from error

    def __getattr__(self, name: str) -> OpOverload:
        if name not in self.__dict__.get("_overloads", ()):
            raise AttributeError(
                f"The underlying op of '{self}' has no overload name '{name}'"
                if not name.startswith("__")
                else f"'OpOverloadPacket' object has no attribute '{name}'"
            )
        found = self.__dict__[name] = OpOverload(self, name)
        return found

    def overloads(self) -> list[str]:
        """Their names."""
        return list(self._overloads)

    def __iter__(self) -> Iterator[str]:
        return iter(self._overloads)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __deepcopy__(self, memo: Any) -> OpOverloadPacket:
        return self


@functools.cache
def _overloads() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in (Path(__file__).parent / "aten.txt").read_text().splitlines():
        names, _, ops = line.partition(":")
        if not line.startswith("#"):
            found.update(dict.fromkeys(ops.split(), tuple(names.split())))
    return found


class Namespace:
    """`torch.ops.aten`: its ops are made when they are asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> OpOverloadPacket:
        names = _overloads().get(name)
        if names is None:
            raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'")
        f = function_of(name) or functools.partial(_refuse, name)
        found = self.__dict__[name] = OpOverloadPacket(self.name, name, names, f)
        return found

    def __dir__(self) -> list[str]:
        return sorted(_overloads())

    def __iter__(self) -> Iterator[str]:
        return iter(_overloads())


aten: Namespace = Namespace("aten")


def __getattr__(name: str) -> Function:
    """The function of an op, by the op's name: `torch._C._nn` has some of them."""
    found = function_of(name) if name in _overloads() else None
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
