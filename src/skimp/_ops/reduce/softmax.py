"""Functions of whole rows, softmax and its kin, on blocks of rows.

A tensor is seen as (outer, n, inner) around the dim that a row runs along; a block has shape
(a, n) or (a, n, c), so a row always runs along axis 1. A deferred source is consumed block by
block, without being written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import export, hidden, rowwise
from skimp._engine.dispatch.reduction import source_of
from skimp._engine.dispatch.row import sampled
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval.rows import is_one_block, map_rows
from skimp._engine.eval.run import threads_for
from skimp._engine.memory import call_site, layout as layouts
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import compiled, softmax as kernels, softmax_onednn
from skimp._kernels.normalization import loops
from skimp._kernels.threads import quietly, share
from skimp._ops import batching
from skimp._ops.reduce.small import rows_or_row
from skimp._ops.reduce.whole_rows import middle_rows, small_columns

Block = Callable[..., None]
SMALL: Final = 1 << 17  # elements below which one call on all rows is the shortest way
_UNIT: Final = 1 << 17  # elements of a block where rows are not runs of memory


# -- blocks of rows -------------------------------------------------------------------------------


def sides(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """(outer, n, inner) of a dim, counted from the front."""
    if not shape:
        return 1, 1, 1
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def row_numbers(shape: tuple[int, ...], dim: int, dtype: Any) -> Array:
    """An array with one number for each row, as `over_rows` takes it."""
    outer, _, inner = sides(shape, dim)
    return np.empty((outer, 1, inner) if inner > 1 else (outer, 1), dtype)


def over_rows(
    source: Tensor, dim: int, fn: Block, *parts: Array, group: int = 1, shares: bool = False
) -> None:
    """Call fn(block, *parts) for blocks of the rows of `source` along `dim`.

    `parts` are contiguous arrays of the source's shape, or made by `row_numbers`; fn may read or
    write its share of them. Along the last dim, blocks begin and end at `group`s of rows, and rows
    that lie there are one block if fn `shares` its work among threads itself.
    """
    shape = tuple(source.shape)
    outer, n, inner = sides(shape, dim)
    size = outer * n * inner
    if size == 0:
        return
    flat = [p.reshape((outer, -1, inner) if inner > 1 else (outer, -1)) for p in parts]
    if inner > 1:
        _over_columns(_contiguous(source._skimp_array()).reshape(outer, n, inner), fn, flat)
    elif size < SMALL:
        quietly(fn, _contiguous(source._skimp_array()).reshape(outer, n), *flat)
    else:
        found, _ = source_of(source, in_order=True)
        whole = shares or is_one_block(outer, n)
        if whole and isinstance(found, np.ndarray) and found.flags.c_contiguous:
            quietly(fn, found.reshape(outer, n), *flat)
            return
        row_ndim = len(shape) - dim  # dims after this one have size 1
        lead = shape[:dim]
        outs = tuple([p.reshape((*lead, -1)) for p in flat])
        map_rows(found, _as_rows(fn, n), outs, row_ndim, group=group)


def _as_rows(fn: Block, n: int) -> Block:
    return lambda block, *parts: fn(block.reshape(-1, n), *parts)


def _contiguous(a: Array) -> Array:
    return a if a.flags.c_contiguous else np.ascontiguousarray(a)


def _over_columns(source: Array, fn: Block, parts: list[Array]) -> None:
    outer, n, inner = source.shape
    c = min(inner, max(512, _UNIT // n))  # 512: runs of memory long enough for the ufuncs
    a = max(1, _UNIT // (n * c)) if c == inner else 1
    pieces = -(-inner // c)
    tasks = -(-outer // a) * pieces
    numbers = iter(range(tasks))  # shared by the threads: next() is atomic

    def work() -> None:
        for number in numbers:
            group, piece = divmod(number, pieces)
            box = (
                slice(group * a, (group + 1) * a),
                slice(None),
                slice(piece * c, (piece + 1) * c),
            )
            fn(source[box], *[p[box] for p in parts])

    share(work, min(tasks, threads_for(source.size)))


def floating(name: str, input: Tensor) -> None:
    """Refuse what is not a real floating type, in PyTorch's words."""
    if not input._dtype.is_floating_point or input._dtype in dtypes.FLOAT8:
        raise no_kernel(name, input._dtype)


def contiguous_array(t: Tensor) -> Array:
    """The elements in row-major order: where they lie, if they lie so."""
    return _contiguous(t._skimp_array())


# -- softmax --------------------------------------------------------------------------------------


def _small_back(g: Any, y: Any, dim: Any) -> Tensor | None:
    """The gradient of `softmax` on small arrays."""
    if (whole := g._np) is None:
        return middle_rows(kernels.softmax_back_rows, dim, g, y)
    if type(g) is type(y) is Tensor and (found := compiled.loops()) is not None:
        made = found.made_softmaxes_back(whole, y._np, dim)
        if made is not None:
            return fresh(made, g._dtype)
    a, b = _pair_of_rows(g, y, dim)
    if a is None or b is None:
        return small_columns(kernels.softmax_back_steps, dim, g, y)
    return fresh(kernels.small_softmax_back(a, b, whole.shape), g._dtype)


def _small_log_back(g: Any, y: Any, dim: Any) -> Tensor | None:
    """The gradient of `log_softmax` on small arrays."""
    if (whole := g._np) is None:
        return middle_rows(kernels.log_softmax_back, dim, g, y)
    if type(g) is type(y) is Tensor and (found := compiled.loops()) is not None:
        made = found.made_log_softmaxes_back(whole, y._np, dim)
        if made is not None:
            return fresh(made, g._dtype)
    a, b = _pair_of_rows(g, y, dim)
    if a is None or b is None:
        return small_columns(kernels.log_softmax_back, dim, g, y)
    return fresh(kernels.small_log_softmax_back(a, b, whole.shape), g._dtype)


def _pair_of_rows(g: Any, y: Any, dim: Any) -> tuple[Array | None, Array | None]:
    if type(g) is not Tensor or type(y) is not Tensor or g._dtype is not y._dtype:
        return None, None
    a, b = rows_or_row(g, dim), rows_or_row(y, dim)
    return (a, b) if a is None or b is None or a.shape == b.shape else (None, None)


def _mapped(input: Tensor, dim: int, fn: Block, *more: Array, shares: bool = False) -> Tensor:
    if input._hollow:
        layouts.normalize_dim(dim, input.ndim)
        return meta.like(input)
    by_rows = sides(tuple(input.shape), layouts.normalize_dim(dim, input.ndim))[2] == 1
    result, target = blank(tuple(input.shape), input._dtype, None, () if by_rows else (input,))
    whole = shares or loops(input._dtype.np) is not None
    over_rows(input, layouts.normalize_dim(dim, input.ndim), fn, *more, target, shares=whole)
    return result


def _small_softmax(input: Any, dim: Any = None, dtype: Any = None) -> Tensor | None:
    given = input._np
    if dtype is not None or given is None:  # it may be cast first
        return None if dtype is not None else middle_rows(kernels.softmax, dim, input)
    if (found := compiled.loops()) is not None:
        made = found.made_softmaxes(given, dim)
        if made is not None:
            return fresh(made, input._dtype)
    x = rows_or_row(input, dim)
    if x is None:
        return small_columns(kernels.softmax, dim, input)
    return fresh(kernels.small_softmax(x, given.shape), input._dtype)


def _small_log_softmax(input: Any, dim: Any = None, dtype: Any = None) -> Tensor | None:
    given = input._np
    if dtype is not None or given is None:  # it may be cast first
        return None if dtype is not None else middle_rows(kernels.log_softmax, dim, input)
    if (found := compiled.loops()) is not None:
        made = found.made_log_softmaxes(given, dim)
        if made is not None:
            return fresh(made, input._dtype)
    x = rows_or_row(input, dim)
    if x is None:
        return small_columns(kernels.log_softmax, dim, input)
    return fresh(kernels.small_log_softmax(x, given.shape), input._dtype)


def _softmax_back(g: Any, y: Any, dim: int) -> Any:
    if modes.state.grad or g._hollow:
        return y * (g - (g * y).sum(dim, True))
    made = _small_back(g, y, dim)
    return _softmax_back_whole(g, y, dim) if made is None else made


def _softmax_back_whole(g: Any, y: Any, dim: int) -> Tensor:
    others = () if y._hollow else (contiguous_array(y),)
    block = partial(kernels.softmax_back, size=g.numel())
    return _mapped(g, dim, block, *others, shares=softmax_onednn.takes(g._dtype.np, g.numel()))


def _log_softmax_back(g: Any, y: Any, dim: int) -> Any:
    if modes.state.grad or g._hollow:
        return g - y.exp() * g.sum(dim, True)
    made = _small_log_back(g, y, dim)
    return _mapped(g, dim, kernels.log_softmax_back, contiguous_array(y)) if made is None else made


SOFTMAX = Rule(
    "SoftmaxBackward0", input=lambda g, result, dim: _softmax_back(g, result, dim), at_once=True
)
LOG_SOFTMAX = Rule(
    "LogSoftmaxBackward0",
    input=lambda g, result, dim: _log_softmax_back(g, result, dim),
    at_once=True,
)


def checked_rows(name: str, input: Any, dim: int, block: Block) -> Tensor:
    if 0 not in input.shape:  # else no kernel is asked for
        floating(f"{name}_lastdim_kernel_impl", input)
    return _mapped(input, dim, block)


@hidden(kind="row-wise", fast=_small_softmax, rule=SOFTMAX, batch=batching.dims.by_dims("dim"))
def _softmax(input: Any, dim: int) -> Any:
    return checked_rows("softmax", input, dim, kernels.softmax)


@hidden(
    kind="row-wise", fast=_small_log_softmax, rule=LOG_SOFTMAX, batch=batching.dims.by_dims("dim")
)
def _log_softmax(input: Any, dim: int) -> Any:
    return checked_rows("log_softmax", input, dim, kernels.log_softmax)


def typed(input: Any, dtype: Any) -> Any:
    return input if dtype is None or dtype is input._dtype else input.to(dtype)


@rowwise(out="own", fast=_small_softmax, fast_rule=SOFTMAX, namespaces=("", "special"))
def softmax(input: Any, dim: int, dtype: Any = None) -> Any:
    """exp(input) over its sum along `dim`; keeps its result for backward, nothing else."""
    return _softmax(typed(input, dtype), dim)


@rowwise(out="own", fast=_small_log_softmax, fast_rule=LOG_SOFTMAX, namespaces=("", "special"))
def log_softmax(input: Any, dim: int, dtype: Any = None) -> Any:
    """The logarithm of `softmax`, without its overflow and underflow."""
    return _log_softmax(typed(input, dtype), dim)


@rowwise(
    method=False,
    out=True,
    rule=Rule(
        "SoftmaxBackwardDataBackward0",
        grad_output=lambda g, output, dim: _softmax_back(g, output, dim),
        output=lambda g, grad_output, output, dim: (
            g * grad_output
            - (g * output).sum(dim, True) * grad_output
            - (grad_output * output).sum(dim, True) * g
        ),
    ),
)
def _softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return typed(_softmax_back_whole(grad_output, output, dim), input_dtype)


# -- nn.functional's forms: the dim may be left out ------------------------------------------------


def _implicit(name: str, ndim: int, stacklevel: int) -> int:
    warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument."
    )
    return 0 if ndim in (0, 1, 3) else 1


# of the docstrings of softmax and its kin
_SECTIONS = """\
Shape: any; the result's is the input's.
Dtypes: floating point, or `dtype`, to which the input is cast first.
Raises: NotImplementedError for other dtypes, IndexError for a dim that is not there.
Memory: a new tensor; exponentials are never written beside it."""


def _functional(
    name: str, doc: str, f: Callable[..., Any], quick: Any = None, rule: Rule | None = None
) -> None:
    @call_site.named(name)
    def function(
        input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
    ) -> Any:
        if dim is None:
            dim = _implicit(name, input.ndim, _stacklevel)
        return f(typed(input, dtype), dim)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc}\n\n{_SECTIONS}"
    fast = quick and (lambda input, dim=None, _stacklevel=3, dtype=None: quick(input, dim, dtype))
    export(name, function, ("nn.functional",), method=False, fast=fast, fast_rule=rule)


_functional("softmax", "exp(input) over its sum along `dim`.", _softmax, _small_softmax, SOFTMAX)
_functional(
    "log_softmax", "The logarithm of `softmax`.", _log_softmax, _small_log_softmax, LOG_SOFTMAX
)
_functional("softmin", "`softmax` of -input.", lambda input, dim: _softmax(-input, dim))


@sampled(lambda tensor: [(tensor([[1, -2, 3]]),)])
def gumbel_softmax(
    logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Any:
    """A sample of the Gumbel-softmax distribution; `hard`: one-hot, with the soft sample's
    gradient.

    Shape: any; the result's is the input's.
    Dtypes: floating point; the result has the input's.
    Raises: RuntimeError for other dtypes.
    Memory: a new tensor, drawn at the call.
    """
    if eps != 1e-10:
        warn("`eps` parameter is deprecated and has no effect.")
    with modes.no_grad():
        noise = -logits.detach().clone(memory_format=None).exponential_().log()
    soft = _softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    place = soft.detach().argmax(dim, True)
    one = soft.detach().new_zeros(tuple(soft.shape)).scatter(dim, place, 1.0)
    return one - soft.detach() + soft


export("gumbel_softmax", gumbel_softmax, ("nn.functional",), method=False)


SAYS = """\
Shape: any; the result's is the input's.
Dtypes: floating point, or `dtype`, to which the input is cast first.
Raises: NotImplementedError for other dtypes, IndexError for a dim that is not there."""
