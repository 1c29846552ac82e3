"""vmap: a function of samples as a function of a batch of them.

The function runs once for each sample, and what it returns is stacked, so every op works under vmap
and gradients flow; a batch of n costs n calls (docs/notes/func.md says why, and what was weighed).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from skimp._tensor import Tensor
from skimp.ops.forms import NAMESPACES
from skimp.ops.random import default_generator
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
    whether random ops raise, draw for each sample, or the same for all. `chunk_size` is accepted:
    samples run one after the other anyway.
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
        call = _Call(func, given, kwargs)
        results = _run(call, n, randomness)
        return _stacked(results, n, out_dims, name)

    return wrapped


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


# -- the calls ------------------------------------------------------------------------------------


class _Call:
    """The function, ready to be called with a sample."""

    def __init__(self, func: Function, given: _Given, kwargs: dict[str, Any]) -> None:
        self._func, self._given, self._kwargs = func, given, kwargs
        # one node in the graph for all samples of an argument, not one for each
        self._samples = [
            None if d is None else t.unbind(d)
            for t, d in zip(given.leaves, given.dims, strict=True)
        ]

    def with_sample(self, i: int) -> Any:
        """The result for sample `i`."""
        leaves = [
            t if samples is None else samples[i]
            for t, samples in zip(self._given.leaves, self._samples, strict=True)
        ]
        return self._func(*tree_unflatten(leaves, self._given.spec), **self._kwargs)

    def with_zeros(self) -> Any:
        """The result for a sample of zeros, where there is none: it has the shapes and dtypes."""
        leaves = [
            t if d is None else t.sum(d, dtype=t.dtype)  # a sum of nothing
            for t, d in zip(self._given.leaves, self._given.dims, strict=True)
        ]
        return self._func(*tree_unflatten(leaves, self._given.spec), **self._kwargs)


def _run(call: _Call, n: int, randomness: str) -> list[Any]:
    """The results of all samples (one result for an empty batch)."""
    if n == 0:
        return [call.with_zeros()]
    if randomness == "different":
        return [call.with_sample(i) for i in range(n)]
    engine = default_generator._engine
    before = engine.get_state()
    results = []
    for i in range(n):
        if i and randomness == "same":
            engine.set_state(before)
        results.append(call.with_sample(i))
        if i == 0 and randomness == "error" and (engine.get_state() != before).any():
            engine.set_state(before)
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap or perform the randomness "
                "operation out of vmap"
            )
    return results


# -- what comes out -------------------------------------------------------------------------------


def _stacked(results: list[Any], n: int, out_dims: Any, name: str) -> Any:
    """The results as one, of which each leaf has the batch's dimension where `out_dims` says."""
    first, spec = tree_flatten(results[0])
    dims = _out_dims(out_dims, spec, name)
    columns: list[list[Any]] = [[] for _ in first]
    for result in results:
        for column, leaf in zip(columns, tree_flatten(result)[0], strict=True):
            column.append(leaf)
    made = []
    for column, dim in zip(columns, dims, strict=True):
        if dim is None:
            made.append(_shared(column, name))
            continue
        if not isinstance(column[0], Tensor):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type "
                f"{type(column[0])}. Did you mean to set out_dims= to None for output?"
            )
        made.append(_joined(column, n, dim))
    return tree_unflatten(made, spec)


def _joined(column: list[Tensor], n: int, dim: int) -> Tensor:
    made: Tensor = NAMESPACES[""]["stack"](column, dim)
    return made if n else made.narrow(dim, 0, 0).clone()


def _shared(column: list[Any], name: str) -> Any:
    """What all samples return alike, for `out_dims` None."""
    first = column[0]
    for other in column[1:]:
        same = first.equal(other) if isinstance(first, Tensor) else first == other
        if other is not first and not same:
            raise ValueError(
                f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None"
            )
    return first


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
