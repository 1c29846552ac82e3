"""How ops come to cast their inputs: while autocast is on somewhere, the listed functions run
another body.

An op pays nothing outside: its function is the same object in every module that has imported it,
and only its code is
exchanged, for one that casts and then runs the old. Threads in which autocast is off go straight to
the old one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp.amp.state import state

# PyTorch's lists for the CPU, by the names of its functions. einsum and what follows it are there
# made of listed ops, and here not.
LOWER = """
    conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d bmm mm
    baddbmm addmm addbmm linear matmul __matmul__ __rmatmul__ prelu scaled_dot_product_attention
    linalg.vecdot vecdot einsum tensordot chain_matmul linalg.multi_dot inner
"""
FLOAT32 = """
    adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d max_pool3d max_unpool2d max_unpool3d
    fractional_max_pool2d fractional_max_pool3d binary_cross_entropy
    binary_cross_entropy_with_logits cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss
    huber_loss hinge_embedding_loss poisson_nll_loss cosine_embedding_loss margin_ranking_loss
    soft_margin_loss triplet_margin_loss multi_margin_loss multilabel_margin_loss ctc_loss kl_div
    grid_sample cdist prod quantile nanquantile trace polar stft view_as_complex cholesky
    cholesky_inverse cholesky_solve inverse pinverse qr svd geqrf orgqr ormqr lu_solve
    triangular_solve linalg.cholesky linalg.cholesky_ex linalg.cond linalg.eig linalg.eigh
    linalg.eigvals linalg.eigvalsh linalg.householder_product linalg.inv linalg.inv_ex
    linalg.lstsq linalg.matrix_rank linalg.qr linalg.solve linalg.svd linalg.svdvals
    linalg.tensorinv linalg.tensorsolve fft.fft fft.ifft fft.fft2 fft.ifft2 fft.fftn fft.ifftn
    fft.rfft fft.irfft fft.rfft2 fft.irfft2 fft.rfftn fft.irfftn fft.hfft fft.ihfft
"""
WIDEST = "stack cat concat concatenate index_copy"

_lock = threading.Lock()
_regions = 0
_codes: list[tuple[FunctionType, CodeType, CodeType]] = []  # a function, its own code, ours


class _Inside(threading.local):
    now = False


_inside = _Inside()


# -- exchanging code ------------------------------------------------------------------------------


def install() -> None:
    """One more thread has autocast on."""
    global _regions
    with _lock:
        _regions += 1
        if _regions == 1:
            if not _codes:
                _codes.extend([(f, f.__code__, _casting(f, cast)) for f, cast in _found()])
            for f, _, casting in _codes:
                f.__code__ = casting


def remove() -> None:
    """One thread less: after the last the functions have their own code again."""
    global _regions
    with _lock:
        _regions -= 1
        if _regions == 0:
            for f, own, _ in _codes:
                f.__code__ = own


def _casting(f: FunctionType, cast: Callable[[Any], Any]) -> CodeType:
    """Code for `f` that casts its arguments and runs the code that it has now."""
    own = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
    own.__kwdefaults__ = f.__kwdefaults__

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _run(own, cast, args, kwargs)

    consts = tuple([run if c == _HOLE else c for c in _TEMPLATE.co_consts])
    return _TEMPLATE.replace(
        co_consts=consts, co_name=f.__name__, co_freevars=f.__code__.co_freevars
    )


_HOLE = "the function that runs it"


def _template(*args: Any, **kwargs: Any) -> Any:
    run: Any = "the function that runs it"
    return run(args, kwargs)


_TEMPLATE = _template.__code__


def _found() -> Iterator[tuple[FunctionType, Callable[[Any], Any]]]:
    """The listed functions, each once: whichever ways lead to one, it is one object."""
    from skimp._engine.dispatch.forms import METHODS, NAMESPACES
    from skimp.nn import functional

    spaces = (NAMESPACES[""], METHODS, vars(Tensor), vars(functional))
    seen: set[int] = set()
    for names, cast in ((LOWER, to_lower), (FLOAT32, to_float32), (WIDEST, to_widest)):
        for name in names.split():
            where, _, last = name.rpartition(".")
            for space in (NAMESPACES.get(where, {}),) if where else spaces:
                f = space.get(last)
                if isinstance(f, FunctionType) and id(f) not in seen:
                    seen.add(id(f))
                    yield f, cast


# -- casting --------------------------------------------------------------------------------------


def _run(
    old: FunctionType, cast: Callable[[Any], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if not state.enabled["cpu"] or _inside.now or kwargs.get("out") is not None:
        return old(*args, **kwargs)
    change = cast((*args, *kwargs.values()))
    _inside.now = True  # what the op is made of is not cast again
    try:
        return old(
            *[_each(a, change) for a in args], **{k: _each(v, change) for k, v in kwargs.items()}
        )
    finally:
        _inside.now = False


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)) and any(isinstance(v, _HOLDS) for v in value):
        return type(value)([_each(v, change) for v in value])
    return value


_HOLDS = (Tensor, list, tuple)


def _eligible(t: Tensor) -> bool:
    return t.dtype.is_floating_point and t.dtype is not dtypes.float64


def to_lower(values: Any) -> Callable[[Tensor], Tensor]:
    """Cast to autocast's type."""
    dtype = state.dtype["cpu"]
    return lambda t: cached(t, dtype) if _eligible(t) else t


def lowered(value: Any) -> Any:
    """Cast to autocast's type, in containers too."""
    return _each(value, to_lower(())) if value is not None else None


def to_float32(values: Any) -> Callable[[Tensor], Tensor]:
    """Cast to float32."""
    return lambda t: cast_to(t, dtypes.float32) if _eligible(t) else t


def to_widest(values: Any) -> Callable[[Tensor], Tensor]:
    """Cast to float32 if one of them is, else to autocast's type."""
    dtype = state.dtype["cpu"]
    if any(t.dtype is dtypes.float32 for t in _tensors(values)):
        dtype = dtypes.float32
    return lambda t: cached(t, dtype) if _eligible(t) else t


def _tensors(values: Any) -> Iterator[Tensor]:
    for v in values:
        if isinstance(v, Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _tensors(v)


def cast_to(t: Tensor, dtype: dtypes.dtype) -> Tensor:
    return t if t.dtype is dtype else t.to(dtype)


def cached(t: Tensor, dtype: dtypes.dtype) -> Tensor:
    """The cast tensor; a weight's is kept until the outermost region ends."""
    if t.dtype is dtype:
        return t
    keep = (
        state.cache and t._rg and t._node is None and t._base is None and t.dtype is dtypes.float32
    )
    if not keep or dtype is dtypes.float32:
        return cast_to(t, dtype)
    known = state.casts.get(id(t))
    if known is not None and known[0]() is t and known[1].dtype is dtype:
        return known[1]  # type: ignore[no-any-return]
    found = cast_to(t, dtype)
    state.casts[id(t)] = weakref.ref(t), found
    return found
