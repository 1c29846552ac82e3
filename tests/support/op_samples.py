"""Sample inputs of every op, for both libraries: PyTorch's own database, and what it lacks."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from functools import cache, reduce
from itertools import islice
from typing import Any, NamedTuple

import torch as oracle
from torch.testing._internal.common_methods_invocations import op_db

import skimp
from skimp._compat.refusals import is_refused
from skimp._engine.dispatch.forms import METHODS, NAMESPACES, OPS
from skimp._engine.dispatch.pointwise_forms import ROWS
from skimp._engine.dispatch.row import FORMS, Op
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
        args = [entered(library, a, made) for a in self.args]
        kwargs = {k: entered(library, a, made) for k, a in self.kwargs.items()}
        library.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function_of(library, self.op)(*args, **kwargs)


def entered(library: Any, value: Any, made: dict[int, Any]) -> Any:
    if isinstance(value, (list, tuple)):
        values = [entered(library, v, made) for v in value]
        return type(value)(*values) if hasattr(value, "_fields") else type(value)(values)
    if value is oracle.Tensor:
        return library.Tensor
    if getattr(value, "__module__", "") == "torch.masked._ops":
        return getattr(library.masked, value.__name__)
    if not isinstance(value, oracle.Tensor):
        return twin(value) if library is skimp else value
    if value.layout is oracle.sparse_coo:
        # not in `made`: these live for a moment, and their ids come again
        parts = [entered(library, part, {}) for part in (value._indices(), value._values())]
        return library.sparse_coo_tensor(*parts, tuple(value.shape))
    if id(value) not in made:
        own = value.detach().clone().requires_grad_(value.requires_grad)
        made[id(value)] = twin(own) if library is skimp else own
    return made[id(value)]


def function_of(library: Any, name: str) -> Callable[..., Any]:
    """The public function of that name, or the method (`torch.bool` is a type)."""
    try:
        found = reduce(getattr, name.split("."), library)
    except AttributeError:
        found = None
    return found if callable(found) else getattr(library.Tensor, name)


def samples(count: int, dtype: oracle.dtype = oracle.float64) -> Iterator[Sample]:
    """The first samples of every op with gradients that both libraries have."""
    for info in op_db:
        if not (info.supports_autograd and info.supports_dtype(dtype, "cpu")):
            continue
        if info.name.startswith("torch.ops."):  # the same once more, by the dispatcher's name
            continue
        try:
            function_of(skimp, info.name)
            function_of(oracle, info.name)
        except AttributeError:
            continue
        for i, s in enumerate(_of(info, count, dtype)):
            yield Sample(info.name, i, (s.input, *s.args), s.kwargs)


def compared(
    count: int, f: Callable[[Any, Sample], Any], alike: Callable[[Any, Any], bool] = operator.eq
) -> tuple[set[str], set[str]]:
    """Over the oracle's own samples of ops: those on which `f(library, sample)` gives something on
    both sides (other tests say what is refused), and those of them that are not alike.
    """
    seen, unlike = set(), set()
    for sample in samples(count):
        try:
            theirs, ours = f(oracle, sample), f(skimp, sample)
        except AssertionError:
            raise
        except Exception:
            continue
        seen.add(sample.op)
        if not alike(ours, theirs):
            unlike.add(sample.op)
    return seen, unlike


# What the database calls otherwise, or lacks: the calls themselves.
X = oracle.arange(6.0, dtype=oracle.float64).reshape(2, 3) / 3 - 0.5
PLACES = oracle.tensor([2, 0, 2])
OWN: dict[str, list[tuple[Any, ...]]] = {
    "cpu": [(X,), (X.t(),)],
    "storage": [(X,), (X.t(),)],
    "copy_": [(X.clone(), X[0]), (X.float(), PLACES)],
    "svd_lowrank": [(X, 2), (X.t(), 1)],
    "pca_lowrank": [(X, 2), (X.t(), 1)],
    "fill_": [(X.clone(), 2.5), (X.long(), X[0, 0])],
    "einsum": [("ij,kj->ik", X, X[:1]), ("ij->j", X), ("ij", [X])],
    "_unsafe_index": [(X, [PLACES // 2]), (X, [PLACES // 2, PLACES])],
    "unsafe_split_with_sizes": [(X, [1, 1]), (X, [2, 1], 1)],
    "native_dropout": [(X, 0.5, True), (X, 0.5, False), (X, 0.0, True)],
    "_safe_softmax": [(X, 1), (X.masked_fill(X < 0, -oracle.inf), 1)],
    "embedding": [(X.t(), PLACES), (X.t(), PLACES[None], 0)],
    "_standard_gamma": [(X.abs() + 0.1,)],
    "_standard_gamma_grad": [(X.abs() + 0.1, X.abs() + 0.2)],
    "_sample_dirichlet": [(X.abs() + 0.1,)],
    "_dirichlet_grad": [(X.abs() / 4 + 0.1, X.abs() + 0.5, X.abs() + 2)],
    "from_file": [(__file__, False, 4), (__file__, False, 2, {"dtype": oracle.int32})],
    "slice_copy": [(X, 0, 0, 1), (X, 1, -2)],
    "_input_mask": [(X, {"mask": X > 0})],
    "_output_mask": [(oracle.masked.sum, X, {"dim": 1, "mask": X > 0})],
    "binomial": [(X.abs().ceil() * 4, oracle.full((2, 3), 0.25, dtype=oracle.float64))],
}


def registry() -> dict[str, tuple[str, ...]]:
    """The rows of all ops that a program can reach, each with its names in PyTorch."""
    titles = {id(row): title for title, row in OPS.items()}
    found: dict[str, list[str]] = {}
    for space, functions in (*NAMESPACES.items(), ("", METHODS)):
        for name, f in functions.items():
            title = titles.get(id(FORMS[f].op)) if f in FORMS else None
            if title is not None and not is_refused(OPS[title].raw):
                found.setdefault(title, []).append(f"{space}.{name}" if space else name)
    found = {title: names for title, names in found.items() if any(map(_reached, names))}
    spaces = ("", *(f"{space}." for space in NAMESPACES if space))
    return {
        title: tuple(dict.fromkeys([f"{space}{title}" for space in spaces] + found.get(title, [])))
        for title in sorted([*found, *ROWS])
        if not title.startswith("_foreach_")  # tests/ops/math/test_foreach.py has them all
    }


def _reached(name: str) -> bool:
    """Whether a program can call it: names that PyTorch keeps to itself are none of these."""
    try:
        return all([callable(function_of(library, name)) for library in (oracle, skimp)])
    except AttributeError:
        return False


@cache
def _infos() -> dict[str, list[Any]]:
    """Rows of the database by name and by other names."""
    found: dict[str, list[Any]] = {}
    for info in op_db:
        for name in {info.name, *(alias.name for alias in info.aliases)}:
            found.setdefault(name, []).append(info)
    return found


def _values(numbers: Any) -> Any:
    """What the samples in a row are made of."""
    return oracle.tensor(numbers, dtype=oracle.float64)


def samples_of(title: str, names: tuple[str, ...], count: int) -> list[Sample]:
    """The first samples of an op: its row's, or by any of its names those of the database, of the
    widest type that it takes; a form in place has those of its function whose results fit, and a
    copy those of its view.
    """
    row = OPS.get(title)
    if title in OWN and row is not None:
        return [_declared(row, i, call) for i, call in enumerate(OWN[title])][:count]
    if row is not None and row.samples is not None:
        return [_declared(row, i, call) for i, call in enumerate(row.samples(_values))][:count]
    found = _of_database(names, count)
    if found or row is None:
        return found
    if row.looks:  # at a tensor
        return [Sample(title, i, (x,), {}) for i, x in enumerate((X, X.t()))][:count]
    for ending, fits in (("_", _fits), ("_copy", bool)):
        base = title.removesuffix(ending)
        if base != title and base in OPS:
            known = samples_of(base, registry().get(base, (base,)), 8)
            return [s._replace(op=s.op + ending) for s in known if fits(s)][:count]
    return []


def _declared(row: Op, number: int, call: tuple[Any, ...]) -> Sample:
    called = [f"{space}.{row.name}" if space else row.name for space in row.namespaces]
    kwargs = call[-1] if isinstance(call[-1], dict) else {}
    args = call[:-1] if kwargs else call
    return Sample(next(filter(_reached, called), row.name), number, args, kwargs)


def _fits(s: Sample) -> bool:
    """Whether the result could be written over the first argument."""
    if not s.args or not isinstance(s.args[0], oracle.Tensor):
        return False
    made = s.call(oracle)
    return bool(made.shape == s.args[0].shape and made.dtype == s.args[0].dtype)


def _of_database(names: tuple[str, ...], count: int) -> list[Sample]:
    infos = [info for name in names for info in _infos().get(name, ())]
    found = []
    for info in {id(i): i for i in infos if not i.name.startswith("sparse.")}.values():
        dtype = next((d for d in (*WIDEST, *info.dtypes) if info.supports_dtype(d, "cpu")), None)
        for i, s in enumerate(_of(info, count, dtype, grad=False) if dtype else ()):
            found.append(Sample(info.name, i, (s.input, *s.args), s.kwargs))
    return found


WIDEST = (oracle.float64, oracle.int64, oracle.complex128, oracle.float32, oracle.bool)


def _of(info: Any, count: int, dtype: oracle.dtype, grad: bool = True) -> list[Any]:
    """From the function behind `info.sample_inputs`, which looks at the stack at each sample."""
    oracle.default_generator.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(islice(info.sample_inputs_func(info, "cpu", dtype, grad), count))


def tensors_of(value: Any) -> list[Any]:
    """The dense tensors of either library in a result."""
    if isinstance(value, (oracle.Tensor, skimp.Tensor)):
        return [value] if str(value.layout).endswith(".strided") else []
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    return []
