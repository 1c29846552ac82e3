"""Texts of tensors, storages and limits are PyTorch's, on generated arrays and options."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._engine.tensor import dtypes, finfo as limits, printing, promotion

FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
SEEDS = st.integers(0, 2**32 - 1)
SPECIAL = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -2.5, 1e-5, 3e7])
FILLS = ("whole", "scaled", "mixed", "special", "zeros", "bits")

shapes = st.lists(st.sampled_from((1, 2, 3, 5, 7, 9)), max_size=4).filter(
    lambda sizes: math.prod(sizes) <= 200
)
empty_shapes = st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(lambda sizes: 0 in sizes)
summarized_shapes = st.sampled_from(
    [(1001,), (7, 200), (1200, 1), (1, 2000), (6, 400, 2), (2, 3, 300, 1), (11, 10, 10), (5,) * 5]
)
options = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.integers(0, 9),
        "threshold": st.sampled_from((0, 1, 7, 30, 1000, math.inf)),
        "edgeitems": st.integers(0, 4),
        "linewidth": st.sampled_from((1, 12, 33, 80, 140)),
        "profile": st.sampled_from(("default", "short", "full")),
        "sci_mode": st.sampled_from((None, True, False)),
    },
)


def filled(fill: str, count: int, dt: dtypes.dtype, rng: np.random.Generator) -> np.ndarray:
    """`count` elements of one kind: bit patterns, or numbers of a scale."""
    if dt is dtypes.bool:
        return rng.random(count) < 0.5
    if fill == "bits":
        return np.frombuffer(rng.bytes(count * dt.itemsize), dt.np).copy()
    numbers = {
        "whole": lambda: np.round(rng.normal(size=count) * 10.0 ** rng.integers(0, 10)),
        "scaled": lambda: rng.normal(size=count) * 10.0 ** rng.integers(-8, 9),
        "mixed": lambda: rng.normal(size=count) * 10.0 ** rng.uniform(-5, 5, count),
        "special": lambda: rng.choice(SPECIAL, count),
        "zeros": lambda: rng.choice(SPECIAL[:5], count),
    }[fill]
    with np.errstate(all="ignore"):
        if not dt.is_complex:
            return numbers().astype(dt.np)
        parts = np.empty(count, dt.np)
        parts.real, parts.imag = numbers(), numbers()
        return parts


def to_torch(array: np.ndarray, dt: dtypes.dtype) -> torch.Tensor:
    """The torch tensor on the array's memory."""
    if dt is dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@contextmanager
def both_with(**chosen: Any) -> Iterator[None]:
    with printing.printoptions(**chosen), torch._tensor_str.printoptions(**chosen):
        yield


@contextmanager
def both_default(dt: dtypes.dtype) -> Iterator[None]:
    promotion.set_default_dtype(dt)
    torch.set_default_dtype(getattr(torch, dt.name))
    try:
        yield
    finally:
        promotion.set_default_dtype(dtypes.float32)
        torch.set_default_dtype(torch.float32)


def check(array: np.ndarray, dt: dtypes.dtype) -> None:
    assert printing.tensor_str(array, dt) == repr(to_torch(array, dt))


# --- elements ---------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, shape=shapes, fill=st.sampled_from(FILLS))
def test_elements_of_every_type(seed: int, shape: list[int], fill: str) -> None:
    rng = np.random.default_rng(seed)
    for dt in dtypes.ALL:
        check(filled(fill, math.prod(shape), dt, rng).reshape(shape), dt)


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS, shape=shapes, fill=st.sampled_from(FILLS), chosen=options)
def test_options(seed: int, shape: list[int], fill: str, chosen: dict[str, Any]) -> None:
    rng = np.random.default_rng(seed)
    with both_with(**chosen):
        for dt in rng.choice(dtypes.ALL, 4):
            check(filled(fill, math.prod(shape), dt, rng).reshape(shape), dt)


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, shape=summarized_shapes, fill=st.sampled_from(FILLS), edge=st.integers(1, 4))
def test_summarized(seed: int, shape: tuple[int, ...], fill: str, edge: int) -> None:
    rng = np.random.default_rng(seed)
    with both_with(edgeitems=edge):
        for dt in rng.choice(dtypes.ALL, 2):
            check(filled(fill, math.prod(shape), dt, rng).reshape(shape), dt)


@settings(max_examples=100, deadline=None)
@given(
    seed=SEEDS,
    shape=shapes.filter(len),
    step=st.integers(1, 3),
    threshold=st.sampled_from((3, 1000)),
)
def test_not_contiguous(seed: int, shape: list[int], step: int, threshold: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(shape))
    with both_with(threshold=threshold):
        for dt in rng.choice(dtypes.ALL, 4):
            array = filled("mixed", math.prod(shape), dt, rng).reshape(shape)
            check(array.transpose(order)[::step], dt)


@settings(max_examples=60, deadline=None)
@given(shape=empty_shapes, chosen=options)
def test_empty(shape: list[int], chosen: dict[str, Any]) -> None:
    with both_with(**chosen):
        for dt in dtypes.ALL:
            check(np.empty(shape, dt.np), dt)


def test_a_huge_tensor_is_not_read_whole() -> None:
    shape = (10**6,) * 3  # 10^18 elements: only views of its edges can be made
    expected = repr(torch.tensor(0.25).expand(shape))
    assert printing.tensor_str(np.broadcast_to(np.float32(0.25), shape), dtypes.float32) == expected


@pytest.mark.parametrize("size", [(2**62,), (2**40, 2, 2**20), (3, 2**59)])
def test_one_element_repeated_more_often_than_numpy_counts(size: tuple[int, ...]) -> None:
    stride = (0,) * len(size)
    expected = torch.ones(3).as_strided(size, stride)
    assert repr(skimp.ones(3).as_strided(size, stride)) == repr(expected)


def test_width_of_what_is_hidden_does_not_count() -> None:
    array = np.ones(2000, np.float32)
    array[1000] = 1e12
    check(array, dtypes.float32)
    array[-1] = 123456.5
    check(array, dtypes.float32)


@pytest.mark.parametrize("edges", [(1.5, 1500.0), (1.5, 1e8), (0.5, 1e8), (1.0, 1e8), (1e-4, 0.01)])
def test_where_scientific_mode_starts(edges: tuple[float, float]) -> None:
    for low, high in itertools.product(*[np.nextafter(e, [0, e, np.inf]) for e in edges]):
        check(np.array([low, high]), dtypes.float64)
        check(np.array([-high, math.nan]), dtypes.float64)


def test_a_0d_tensor_is_never_summarized() -> None:
    with both_with(threshold=0, edgeitems=0):
        check(np.array(1.5, np.float32), dtypes.float32)


# --- suffixes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("default", FLOATS, ids=repr)
def test_dtype_is_told_where_it_is_not_the_default(default: dtypes.dtype) -> None:
    for dt in dtypes.ALL:
        for shape in ((), (2,), (0,), (2, 0)):
            array = np.ones(shape, dt.np)
            with both_default(default):
                expected = repr(to_torch(array, dt))
            assert printing.tensor_str(array, dt, default_dtype=default) == expected


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, shape=shapes, dt=st.sampled_from(FLOATS), width=st.integers(20, 100))
def test_gradient_suffixes(seed: int, shape: list[int], dt: dtypes.dtype, width: int) -> None:
    rng = np.random.default_rng(seed)
    array = filled("scaled", math.prod(shape), dt, rng).reshape(shape)
    tensor = to_torch(array, dt)
    leaf, result = tensor.clone().requires_grad_(), tensor.clone().requires_grad_().expand(shape)
    parameter = torch.nn.Parameter(tensor)
    text = printing.tensor_str
    with both_with(linewidth=width):
        assert text(array, dt, requires_grad=True) == repr(leaf)
        assert text(array, dt, requires_grad=True, grad_fn="ExpandBackward0") == repr(result)
        told = text(array, dt, requires_grad=True)
        assert printing.parameter_str(told, plain=True, derived=True) == repr(parameter)


def test_device_and_class() -> None:
    class Named(torch.Tensor):
        pass

    array = np.linspace(0, 1, 40, dtype=np.float32)
    expected = repr(torch.from_numpy(array).as_subclass(Named))
    assert printing.tensor_str(array, dtypes.float32, class_name="Named") == expected
    text = printing.tensor_str(array[:1], dtypes.float32, device="cuda:0", requires_grad=True)
    assert text == "tensor([0.], device='cuda:0', requires_grad=True)"


PARAMETERS: dict[str, Any] = {
    "derived": lambda t: type("Weight", (t.nn.Parameter,), {})(t.arange(4.0).view(2, 2)),
    "frozen": lambda t: type("Weight", (t.nn.Parameter,), {})(t.ones(2).int(), False),
    "of a subclass": lambda t: t.nn.Parameter(t.ones(2).as_subclass(type("Own", (t.Tensor,), {}))),
    "turned into": lambda t: t.ones(2).as_subclass(type("Weight", (t.nn.Parameter,), {})),
    "in a list": lambda t: [type("Weight", (t.nn.Parameter,), {})(t.ones(2))],
    "without bytes": lambda t: t.nn.Parameter(t.ones(2, device="meta")),
    "sparse": lambda t: t.nn.Parameter(t.eye(2).to_sparse()),
    "by rows": lambda t: t.nn.Parameter(t.eye(2).to_sparse_csr()),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse (CSR|invariant):UserWarning")
@pytest.mark.parametrize("case", PARAMETERS)
def test_parameters(case: str) -> None:
    assert repr(PARAMETERS[case](skimp)) == repr(PARAMETERS[case](torch))


# --- options ----------------------------------------------------------------------------------


def same_options() -> bool:
    return printing.get_printoptions() == torch._tensor_str.get_printoptions()


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(options, max_size=4))
def test_options_are_set_as_in_pytorch(steps: list[dict[str, Any]]) -> None:
    before = printing.get_printoptions()
    with both_with():
        for chosen in steps:
            printing.set_printoptions(**chosen)
            torch.set_printoptions(**chosen)
            assert same_options()
    assert same_options()
    assert printing.get_printoptions() == before


def test_options_return_after_an_error() -> None:
    before = printing.get_printoptions()
    with pytest.raises(KeyError), printing.printoptions(precision=2, sci_mode=True):
        raise KeyError
    assert printing.get_printoptions() == before


# --- storages ---------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, count=st.integers(0, 12), fill=st.sampled_from(FILLS))
def test_storages(seed: int, count: int, fill: str) -> None:
    rng = np.random.default_rng(seed)
    for dt in dtypes.ALL:
        array = filled(fill, count, dt, rng)
        tensor = to_torch(array, dt)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # TypedStorage is deprecated
            typed = repr(tensor.storage())
        kind = f"TypedStorage(dtype={dt!r}, device=cpu)"
        assert printing.storage_str(kind, array.size, array) == typed
        raw = array.view(np.uint8)
        untyped = printing.storage_str("UntypedStorage(device=cpu)", raw.size, raw)
        assert untyped == repr(tensor.untyped_storage())


# --- finfo and iinfo --------------------------------------------------------------------------


def public(limit: Any) -> dict[str, Any]:
    return {name: getattr(limit, name) for name in dir(limit) if not name.startswith("_")}


def meaning(of: Any) -> Any:
    return getattr(torch, of.name) if isinstance(of, dtypes.dtype) else of


def test_limits_of_every_type() -> None:
    floats = [*FLOATS, dtypes.complex64, dtypes.complex128, float, complex]
    integers = [dt for dt in dtypes.ALL if dt.category == dtypes.INT]
    pairs = [(limits.finfo(of), torch.finfo(meaning(of))) for of in floats]
    pairs += [(limits.iinfo(of), torch.iinfo(meaning(of))) for of in (*integers, int)]
    for limit, expected in pairs:
        assert public(limit) == public(expected)
        assert [*map(type, public(limit).values())] == [*map(type, public(expected).values())]
        assert repr(limit) == str(limit) == repr(expected)


@pytest.mark.parametrize(
    ("name", "of"),
    [
        *[("finfo", of) for of in (dtypes.int32, dtypes.bool, int, bool)],
        *[("iinfo", of) for of in (dtypes.float32, dtypes.bool, dtypes.complex64, float, bool)],
        *[(name, of) for name in ("finfo", "iinfo") for of in (None, 3, "float32", str)],
    ],
)
def test_limits_refuse(name: str, of: Any) -> None:
    with pytest.raises(TypeError) as expected:
        getattr(torch, name)(meaning(of))
    with pytest.raises(TypeError) as caught:
        getattr(limits, name)(of)
    assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize("default", FLOATS, ids=repr)
def test_limits_of_the_default_type(default: dtypes.dtype) -> None:
    with both_default(default):
        assert repr(limits.finfo()) == repr(torch.finfo())


def test_limits_are_equal_by_type_and_cannot_be_set() -> None:
    limit = limits.finfo(type=dtypes.float32)
    assert limit == limits.finfo(dtypes.complex64)
    assert limit != limits.finfo(dtypes.float64)
    assert limit != limits.iinfo(type=dtypes.int8)
    with pytest.raises(AttributeError):
        limit.eps = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        limits.iinfo()  # type: ignore[call-arg]
