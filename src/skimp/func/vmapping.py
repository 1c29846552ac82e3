"""vmap: a function of samples as a function of a batch of them.

The function runs once, on tensors that stand for all samples (_engine/dispatch/batched.py);
docs/notes/func.md says how, and what was weighed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from skimp._engine.autograd import calls
from skimp._engine.dispatch.batched import Batched, Level, is_of, wrap
from skimp._engine.dispatch.forms import NAMESPACES
from skimp._engine.tensor.tensor import Tensor
from skimp.utils._pytree import TreeSpec, broadcast_to_and_flatten, tree_flatten, tree_unflatten

Function = Callable[..., Any]
MODES = ("error", "different", "same")


def vmap(
    func: Function,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Function:
    """A function that maps `func` over a dimension of its arguments.

    `in_dims`: which dimension of each argument, None for one that all samples share; one int for
    all, or nested as the arguments are. `out_dims`: where it stands in the results. `randomness`:
    whether random ops raise, draw for each sample, or the same for all. `chunk_size`: how many
    samples run together (all by default); fewer take less memory.

    Shape: the mapped dim of all arguments has one size, which the results have at `out_dims`.
    Dtypes: as `func`'s.
    Raises: ValueError for sizes that differ and dims that do not fit the arguments; RuntimeError
    for random numbers, unless `randomness` says which, and for branches on values.
    Memory: as `func`'s on the batch; `chunk_size` bounds it.
    """
    if randomness not in MODES:
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    name = _name(func)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = _given(args, in_dims, name)
        n = _size(given)
        if chunk_size is None or n <= chunk_size:
            return _run(func, given, kwargs, n, out_dims, randomness, name)
        results = []
        for start in range(0, n, chunk_size):
            size = min(chunk_size, n - start)
            part = _part(given, start, size)
            results.append(_run(func, part, kwargs, size, out_dims, randomness, name))
        return _chunks(results, out_dims, name)

    return wrapped


calls.VMAP.append(vmap)


def _name(func: Function) -> str:
    if isinstance(func, functools.partial):
        return f"functools.partial({_name(func.func)}, ...)"
    return getattr(func, "__name__", repr(func))


# -- what goes in ---------------------------------------------------------------------------------


class _Given(NamedTuple):
    leaves: list[Any]
    dims: list[int | None]
    spec: TreeSpec


def _given(args: tuple[Any, ...], in_dims: Any, name: str) -> _Given:
    """The arguments' leaves and the dimension of each; raises PyTorch's ValueErrors."""
    start = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>):"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{start} expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
            "trying to vmap over a function with no inputs. The latter is unsupported."
        )
    leaves, spec = tree_flatten(args)
    dims = broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{start} in_dims is not compatible with the structure of `inputs`. in_dims has "
            f"structure {tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    for i, (value, dim) in enumerate(zip(leaves, dims, strict=True)):
        dims[i] = _checked(value, dim, start)
    return _Given(leaves, dims, spec)


def _checked(value: Any, dim: Any, start: str) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ValueError(
            f"{start} Got in_dim={dim} for an input but in_dim must be either an integer "
            "dimension or None."
        )
    if not isinstance(value, Tensor):
        raise ValueError(
            f"{start} Got in_dim={dim} for an input but the input is of type {type(value)}. We "
            "cannot vmap over non-Tensor arguments, please use None as the respective in_dim"
        )
    n = value.dim()
    if not -n <= dim < n:
        raise ValueError(
            f"{start} Got in_dim={dim} for some input, but that input is a Tensor of "
            f"dimensionality {n} so expected in_dim to satisfy -{n} <= in_dim < {n}."
        )
    return dim % n


def _size(given: _Given) -> int:
    sizes = [t.shape[d] for t, d in zip(given.leaves, given.dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return int(sizes[0])


# -- the call -------------------------------------------------------------------------------------


def _run(
    func: Function,
    given: _Given,
    kwargs: dict[str, Any],
    n: int,
    out_dims: Any,
    randomness: str,
    name: str,
) -> Any:
    with Level(n, randomness) as level:
        leaves = [
            t if d is None else wrap(t.movedim(d, 0) if d else t, level)
            for t, d in zip(given.leaves, given.dims, strict=True)
        ]
        result = func(*tree_unflatten(leaves, given.spec), **kwargs)
    return _unwrapped(result, level, out_dims, name)


def _part(given: _Given, start: int, length: int) -> _Given:
    leaves = [
        t if d is None else t.narrow(d, start, length)
        for t, d in zip(given.leaves, given.dims, strict=True)
    ]
    return given._replace(leaves=leaves)


def _chunks(results: list[Any], out_dims: Any, name: str) -> Any:
    """The results of the chunks, as one."""
    first, spec = tree_flatten(results[0])
    dims = _out_dims(out_dims, spec, name)
    columns = zip(*[tree_flatten(r)[0] for r in results], strict=True)
    cat = NAMESPACES[""]["cat"]
    made = [
        t if d is None else cat(list(column), d)
        for t, column, d in zip(first, columns, dims, strict=True)
    ]
    return tree_unflatten(made, spec)


# -- what comes out -------------------------------------------------------------------------------


def _unwrapped(result: Any, level: Level, out_dims: Any, name: str) -> Any:
    """The results with the batch's dimension where `out_dims` says."""
    leaves, spec = tree_flatten(result)
    dims = _out_dims(out_dims, spec, name)
    for t, dim in zip(leaves, dims, strict=True):
        if dim is not None and not isinstance(t, Tensor):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type "
                f"{type(t)}. Did you mean to set out_dims= to None for output?"
            )
    made = [_out(t, level, d, name) for t, d in zip(leaves, dims, strict=True)]
    return tree_unflatten(made, spec)


def _out(t: Any, level: Level, dim: int | None, name: str) -> Any:
    if dim is None:
        if isinstance(t, Batched) and is_of(t, level):
            raise ValueError(
                f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None"
            )
        return t
    if isinstance(t, Batched) and is_of(t, level):
        held = t._held
    else:
        held = t.unsqueeze(0).expand(level.size, *t.shape)
    return held.movedim(0, dim) if dim else held


def _out_dims(out_dims: Any, spec: TreeSpec, name: str) -> list[Any]:
    start = f"vmap({name}, ..., out_dims={out_dims})"
    for dim in tree_flatten(out_dims)[0]:
        if not (dim is None or isinstance(dim, int)):
            raise ValueError(
                f"{start}: `out_dims` must be an int, None or a python collection of ints "
                "representing where in the outputs the vmapped dimension should appear."
            )
    if isinstance(out_dims, tuple) and len(out_dims) == 1 and spec.is_leaf():
        out_dims = out_dims[0]
    dims = broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise ValueError(
            f"{start}(<inputs>): out_dims is not compatible with the structure of `outputs`. "
            f"out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    return dims
