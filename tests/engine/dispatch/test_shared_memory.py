"""What `out=` and in-place forms may share with what they read: all ops, compared with PyTorch."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from typing import Any

import torch

import skimp
from tests.support.op_samples import Sample, function_of, registry, samples_of
from tests.support.samples import twin

# Refused here and computed by PyTorch: elements of the result lie at one place.
PILED = (
    *("bmm", "mm", "mv", "matmul", "multi_dot", "linear", "addmv_", "baddbmm_"),  # products
    *("cummax", "cummin", "ihfftn", "narrow_copy", "norm", "randperm"),
    "_convert_indices_from_coo_to_csr",
)
# Refused by PyTorch for some layouts of `out`, which it computes in; here they compute beside it.
BESIDE = (
    *("householder_product", "orgqr", "ormqr", "ldl_solve", "lu_solve", "solve"),
    *("solve_triangular", "diff", "linear", "multinomial"),
)
# PyTorch compares copies of what these read, not what they are given.
COPIES = ("take_along_dim",)
# PyTorch writes over the rows that it goes on to read, and crashes.
CRASHES = ("_convert_indices_from_csr_to_coo",)
# Which third of all ops is looked at depends on the mode, so `make test` looks at all.
THIRD = ("never", "always", "auto").index(os.environ.get("SKIMP_DEFER", "auto"))


def _rows() -> Iterator[tuple[str, Sample]]:
    for i, (title, names) in enumerate(registry().items()):
        if i % 3 == THIRD and title not in CRASHES:
            yield from ((title, s) for s in samples_of(title, names, 1))


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([math.prod(shape[d + 1 :]) for d in range(len(shape))])


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (list, tuple, dict)):
        return []
    return [t for v in values for t in _tensors(v)]


def _entered(lib: Any, value: Any, made: dict[int, Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_entered(lib, v, made) for v in value])
    if isinstance(value, dict):
        return {k: _entered(lib, v, made) for k, v in value.items()}
    if not isinstance(value, torch.Tensor):
        return twin(value) if lib is skimp else value
    if id(value) not in made:
        made[id(value)] = twin(value.detach().clone()) if lib is skimp else value.detach().clone()
    return made[id(value)]


KINDS = {  # of a target of this shape, in memory whose second element is an input's first
    "full": lambda memory, shape: memory.as_strided(shape, _strides(shape), 1),
    "shifted": lambda memory, shape: memory.as_strided(shape, _strides(shape), 0),
    "transposed": lambda memory, shape: memory.as_strided(shape, (1, shape[0]), 1),
    "gaps": lambda memory, shape: memory.as_strided(shape, [2 * n for n in _strides(shape)], 1),
}


class Case:
    """One call of a sample whose result goes where an argument lies, or to one place."""

    def __init__(self, sample: Sample, name: str, kind: str, result: torch.Tensor, at: int) -> None:
        self.sample, self.name, self.kind, self.at = sample, name, kind, at
        self.result = result
        self.inplace = name.endswith("_")
        args = sample.args[1:] if self.inplace else sample.args
        self.inputs = _tensors((args, sample.kwargs))

    def answer(self, lib: Any) -> tuple[str, str, Any]:
        """The error, or "computed" and whether the memory is as before."""
        made: dict[int, Any] = {}
        shape, dtype = tuple(self.result.shape), str(self.result.dtype).removeprefix("torch.")
        memory = lib.zeros(2 * self.result.numel() + 300, dtype=getattr(lib, dtype))
        if self.kind == "piled":
            d = [n > 1 for n in shape].index(True)
            strides = list(_strides(shape))
            strides[d] = 0
            target = memory.as_strided(shape, strides)
        else:
            read = self.inputs[self.at]
            held = memory.as_strided(tuple(read.shape), _strides(tuple(read.shape)), 1)
            made[id(read)] = held.copy_(_entered(lib, read, {}))
            target = held if self.kind == "same" else KINDS[self.kind](memory, shape)
        words = _entered(lib, self.sample.kwargs, made)
        before = memory.clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if self.inplace:
                    args = _entered(lib, self.sample.args[1:], made)
                    getattr(target, self.name)(*args, **words)
                else:
                    args = _entered(lib, self.sample.args, made)
                    function_of(lib, self.sample.op)(*args, **words, out=target)
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
                same = bool((before == memory).logical_or(before != before).all())
                return type(error).__name__, str(error).split("\n")[0], same
        return "computed", "", None

    def __repr__(self) -> str:
        return f"{self.name}, sample {self.sample.number}, {self.kind} of input {self.at}"


def _cases(title: str, s: Sample) -> Iterator[Case]:
    if any(t.layout is not torch.strided for t in _tensors((s.args, s.kwargs))):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = s.call(torch)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return
        if isinstance(made, torch.Tensor) and made.layout is torch.strided:
            words = _entered(torch, s.kwargs, {})
            try:
                f = function_of(torch, s.op)
                f(*_entered(torch, s.args, {}), **words, out=torch.empty_like(made))
            except (RuntimeError, TypeError, ValueError, AttributeError):
                pass
            else:
                yield from _placed(Case(s, title, "piled", made, 0))
        own = title if title.endswith("_") else f"{title}_"
        if s.args and isinstance(s.args[0], torch.Tensor) and own not in LAYS_ANEW:
            f = getattr(torch.Tensor, own, None)
            if f is None or not hasattr(skimp.Tensor, own):
                return
            try:
                f(*_entered(torch, s.args, {}), **_entered(torch, s.kwargs, {}))
            except (RuntimeError, TypeError, ValueError, NotImplementedError):
                return
            yield from _placed(Case(s, own, "piled", s.args[0], 0))


LAYS_ANEW = ("detach_", "requires_grad_", "set_", "resize_", "apply_", "map_", "map2_")


def _placed(case: Case) -> Iterator[Case]:
    result = case.result
    if result.numel() < 2:
        return
    yield case
    for at, t in enumerate(case.inputs):
        if t.dtype is not result.dtype or not 2 <= t.numel() <= 100:
            continue
        kinds = ["full", "shifted", "gaps"]
        kinds += ["same"] if t.shape == result.shape else []
        kinds += ["transposed"] if result.ndim == 2 else []
        yield from (Case(case.sample, case.name, kind, result, at) for kind in kinds)


def _known(case: Case, expected: str, found: str) -> bool:
    """Whether a difference stands in docs/differences.md."""
    if case.kind == "piled":
        named = PILED if expected == "computed" else BESIDE
        return case.name in named and {expected, found} == {"computed", "RuntimeError"}
    refused = expected == "RuntimeError" and found == "computed"
    return (case.name in BESIDE and refused) or case.name in COPIES


def test_targets_share_memory_where_pytorch_lets_them() -> None:
    tried = {"computed": 0, "RuntimeError": 0}
    for title, sample in _rows():
        for case in _cases(title, sample):
            expected, found = case.answer(torch), case.answer(skimp)
            if not _known(case, expected[0], found[0]):
                assert found[:2] == expected[:2], case
                assert found[2] is not False or expected[2] is False, f"{case} wrote, then refused"
            if expected[0] in tried:
                tried[expected[0]] += 1
    assert min(tried.values()) > 100, tried
