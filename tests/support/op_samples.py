"""PyTorch's own database of sample inputs, for both libraries."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import islice
from typing import Any, NamedTuple

import torch as oracle
from torch.testing._internal.common_methods_invocations import op_db

import skimp
from tests.support.samples import twin


class Sample(NamedTuple):
    """One call: `call(library)` gives the results on arguments made for that library."""

    op: str
    number: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def call(self, library: Any) -> Any:
        """The op on its own copies of the arguments; generators begin at the same place."""
        made: dict[int, Any] = {}
        args = [_entered(library, a, made) for a in self.args]
        kwargs = {k: _entered(library, a, made) for k, a in self.kwargs.items()}
        library.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function_of(library, self.op)(*args, **kwargs)


def _entered(library: Any, value: Any, made: dict[int, Any]) -> Any:
    if isinstance(value, (list, tuple)):
        values = [_entered(library, v, made) for v in value]
        return type(value)(*values) if hasattr(value, "_fields") else type(value)(values)
    if not isinstance(value, oracle.Tensor):
        return twin(value) if library is skimp else value
    if id(value) not in made:
        own = value.detach().clone().requires_grad_(value.requires_grad)
        made[id(value)] = twin(own) if library is skimp else own
    return made[id(value)]


def function_of(library: Any, name: str) -> Callable[..., Any]:
    """The public function of that name, or the method."""
    try:
        return reduce(getattr, name.split("."), library)
    except AttributeError:
        return getattr(library.Tensor, name)


def samples(count: int, dtype: oracle.dtype = oracle.float64) -> Iterator[Sample]:
    """The first samples of every op with gradients that both libraries have."""
    for info in op_db:
        if not (info.supports_autograd and info.supports_dtype(dtype, "cpu")):
            continue
        try:
            function_of(skimp, info.name)
            function_of(oracle, info.name)
        except AttributeError:
            continue
        for i, s in enumerate(_of(info, count, dtype)):
            yield Sample(info.name, i, (s.input, *s.args), s.kwargs)


def _of(info: Any, count: int, dtype: oracle.dtype) -> list[Any]:
    oracle.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(islice(info.sample_inputs("cpu", dtype, requires_grad=True), count))


def tensors_of(value: Any) -> list[Any]:
    """The dense tensors of either library in a result."""
    if isinstance(value, (oracle.Tensor, skimp.Tensor)):
        return [value] if str(value.layout).endswith(".strided") else []
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    return []
