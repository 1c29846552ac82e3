"""uint16, uint32, uint64 and float8: made, converted, shown, saved and computed with as PyTorch
does, and refused where it refuses.
"""

from __future__ import annotations

import io
import itertools
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp.serialization import safetensors
from tests.support.samples import outcome

UNSIGNED = ["uint16", "uint32", "uint64"]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
USUAL = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128",
]  # fmt: skip


def octets(n: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, n, dtype=np.uint8)


def floats() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Every sign, exponent and first bits of a float32, and numbers between them."""
    coarse = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    rng = np.random.default_rng(0)
    return np.concatenate([coarse, rng.standard_normal(20000).astype(np.float32)])


def assert_same(ours: Any, theirs: Any) -> None:
    """The same type, layout and bytes, any nan standing for any other."""
    assert str(ours.dtype) == str(theirs.dtype)
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.stride() == theirs.stride()
    wide = [ours.to(skimp.complex128).numpy(), theirs.to(torch.complex128).numpy()]
    np.testing.assert_array_equal(*wide)
    if "uint" in str(ours.dtype):
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("name", FLOAT8)
def test_float32_and_float64_become_float8_bit_by_bit(name: str) -> None:
    for array in (floats(), floats().astype(np.float64) * (1 + 2.0**-30)):
        ours = skimp.from_numpy(array).to(getattr(skimp, name))
        theirs = torch.from_numpy(array).to(getattr(torch, name))
        nan = torch.isnan(theirs.float()).numpy()
        mine, other = ours.view(skimp.uint8).numpy(), theirs.view(torch.uint8).numpy()
        np.testing.assert_array_equal(mine[~nan], other[~nan])
        np.testing.assert_array_equal(np.isnan(ours.float().numpy()), nan)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", UNSIGNED + FLOAT8)
@pytest.mark.parametrize("other", USUAL + UNSIGNED + FLOAT8)
def test_conversions(name: str, other: str) -> None:
    raw = np.arange(256, dtype=np.uint8) if name in FLOAT8 else octets(8 * 300)
    ours = skimp.from_numpy(raw).view(getattr(skimp, name))
    theirs = torch.from_numpy(raw).view(getattr(torch, name))
    if getattr(skimp, other).category < 2 and other != "bool":  # what nan is as an integer is open
        keep = ~np.isnan(theirs.double().numpy())
        ours, theirs = ours[skimp.from_numpy(keep)], theirs[torch.from_numpy(keep)]
    assert_same(ours.to(getattr(skimp, other)), theirs.to(getattr(torch, other)))
    small = torch.tensor([0, 1, 2, 3, 100])
    there = small.to(getattr(torch, other)).to(getattr(torch, name))
    here = skimp.from_numpy(small.numpy()).to(getattr(skimp, other)).to(getattr(skimp, name))
    assert_same(here, there)


@pytest.mark.parametrize("name", UNSIGNED + FLOAT8)
def test_large_tensors_convert_blockwise(name: str) -> None:
    array = np.random.default_rng(1).uniform(0, 200, (300, 700)).astype(np.float32)
    ours = skimp.from_numpy(array).t().to(getattr(skimp, name)).t().contiguous().float()
    theirs = torch.from_numpy(array).to(getattr(torch, name)).float()
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


CALLS = (
    """
a*a|a==a|a!=a|a==1|a[0]|a[1:]|a[None]|a[T.tensor([0, 1])]|a[a==1]|T.where(a==1, a, a)|a.tolist()
a[0].item()|bool(a[0])|int(a[0])|float(a[0])|T.ones(2, dtype=D)|T.full((2,), 2, dtype=D)
a.isnan()|a.isreal()|a.view(T.uint8)|a.type()|a.element_size()|a.is_floating_point()|a.reshape(3, 1)
a.clone().fill_(2)|a.clone().copy_(T.ones(3))|T.cat([a, a])|T.stack([a, a])|a.repeat(2)|a.tile(2)
a.roll(1)|a.new_ones(2)|a.new_full((2,), 2)|T.ones_like(a)|T.full_like(a, 2)|a.unfold(0, 2, 1)
a.reshape(3, 1).expand(3, 2).contiguous()|a.half()|a.double()|a.int()|T.result_type(a, 1)
T.result_type(a, 1.5)|repr(a)|str(a.float().to(D))|a.any()|a.all()|T.can_cast(D, T.int8)|D
a.repeat_interleave(2)|a.float().to(D).dtype|T.scalar_tensor(2, dtype=D)|T.tensor([1, 2], dtype=D)
a+a|a-a|a<a|a<1|a//2|a%2|-a|abs(-a)|a.clamp(0, 3)|a.max()|a.min()|a.amax()|a.argmax()
a.masked_fill(a==1, 3)
a<<1|~a|a.sign()|a.pow(2)|T.maximum(a, a)|T.addcmul(a, a, a)|a+T.tensor([1, 2, 3])
T.cat([a, a.int()])
a*T.tensor([1, 2, 3])|a.relu()|T.dot(a, a)|T.bmm(a.reshape(1, 1, 3), a.reshape(1, 3, 1))|a.median()
a.logical_not()|a.logical_and(a)|a.square()|a.diff()|a.mode()|a.kthvalue(1)|a.aminmax()
a.softmax(0)|T.promote_types(D, T.int64)|T.promote_types(D, D)|T.promote_types(D, T.float16)
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
FEW = (
    """
a&a|a|a^a|a/2|a.sum()|a.prod()|a.mean(dtype=T.float32)|a.cumsum(0)|a.sort()|a.unique()|a.sqrt()
a.sin()
a*2|a*1.5|a+1.5|a.ceil()|a.round()|a.isinf()|a.isfinite()|a.signbit()|a.nan_to_num()|T.iinfo(D)
a.argsort()
T.equal(a, a)|T.tensor([-1], dtype=T.uint16)|T.tensor([70000], dtype=T.uint16)|a.to(T.int32) + 1
T.atan2(a, a)
T.tensor([2**64 - 1, 1], dtype=T.uint64)|T.full((2,), 2**64 - 1, dtype=T.uint64)
T.tensor([-1], dtype=T.uint64)
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
OF_FLOATS = (
    """
abs(a)|a*2|a+1|a.exp()|a.sum()|a.prod()|a.cumsum(0)|a.mean()|a.std()|a.norm()|a.sigmoid()
a.unique()|T.finfo(D)
a.clone().uniform_()|T.float8_e5m2 is D|a.isinf()|a.isfinite()|a * T.ones(3)|a.reciprocal()
a.log_softmax(0)
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


# How many of a type's cases PyTorch refuses.
REFUSED = dict.fromkeys(UNSIGNED, 38) | dict.fromkeys(FLOAT8, 54) | {"float8_e5m2": 52}


def shown(lib: Any, name: str, text: str) -> str:
    dtype = getattr(lib, name)
    return repr(eval(text, {"T": lib, "D": dtype, "a": lib.tensor([1, 2, 128]).to(dtype)}))


def cases() -> list[tuple[str, str]]:
    rows = [(n, c) for n, c in itertools.product(UNSIGNED + FLOAT8, CALLS)]
    rows += [(n, c) for n, c in itertools.product(UNSIGNED, FEW)]
    return rows + [(n, c) for n, c in itertools.product(FLOAT8, OF_FLOATS)]


@pytest.mark.parametrize("name", UNSIGNED + FLOAT8)
def test_what_works_and_what_is_refused(name: str) -> None:
    wrong, refused = [], 0
    for each, text in cases():
        if each != name:
            continue
        theirs, ours = [outcome(shown, lib, name, text) for lib in (torch, skimp)]
        if isinstance(theirs, Exception):
            refused += 1
            alike = isinstance(ours, type(theirs)) or isinstance(theirs, type(ours))
        else:
            alike = theirs == ours
        if not alike:
            wrong.append((text, theirs, ours))
    assert wrong == []
    assert refused == REFUSED[name]


@pytest.mark.parametrize("name", UNSIGNED + FLOAT8)
def test_files(name: str) -> None:
    raw = octets(64)
    ours = skimp.from_numpy(raw).view(getattr(skimp, name))
    theirs = torch.from_numpy(raw).view(getattr(torch, name))
    file = io.BytesIO()
    torch.save({"x": theirs, "part": theirs[1:3]}, file)
    file.seek(0)
    loaded = skimp.load(file)
    assert loaded["x"].dtype is getattr(skimp, name)
    assert loaded["x"].view(skimp.uint8).tolist() == raw.tolist()
    assert loaded["part"].storage_offset() == 1
    file = io.BytesIO()
    skimp.save({"x": ours}, file)
    file.seek(0)
    back = torch.load(file)["x"]
    assert back.dtype is getattr(torch, name)
    assert back.view(torch.uint8).tolist() == raw.tolist()
    safe = safetensors.load(safetensors.save({"x": ours}))["x"]
    assert safe.dtype is ours.dtype
    assert safe.view(skimp.uint8).tolist() == raw.tolist()


@pytest.mark.parametrize("name", [n for n in UNSIGNED + FLOAT8 if n != "float8_e8m0fnu"])
def test_safetensors_knows_them_too(name: str, tmp_path: Any) -> None:
    theirs = pytest.importorskip("safetensors.torch")
    raw = octets(64)
    kept = torch.from_numpy(raw).view(getattr(torch, name))
    theirs.save_file({"x": kept}, tmp_path / "a")
    assert safetensors.load_file(tmp_path / "a")["x"].view(skimp.uint8).tolist() == raw.tolist()
    ours = skimp.from_numpy(raw).view(getattr(skimp, name))
    safetensors.save_file({"x": ours}, tmp_path / "b")
    back = theirs.load_file(tmp_path / "b")["x"]
    assert back.dtype is kept.dtype
    assert back.view(torch.uint8).tolist() == raw.tolist()


def test_numpy_shares_unsigned_integers_and_refuses_float8() -> None:
    array = np.arange(4, dtype=np.uint32)
    t = skimp.from_numpy(array)
    t[0] = 7
    assert array[0] == 7
    assert skimp.tensor(array).dtype is skimp.uint32
    with pytest.raises(TypeError, match="Float8_e5m2"):
        skimp.ones(2, dtype=skimp.float8_e5m2).numpy()
    with pytest.raises(RuntimeError, match="attempted to promote UInt16 and Long"):
        skimp.ones(2, dtype=skimp.uint16) * skimp.ones(2, dtype=skimp.int64)
    with pytest.raises(NotImplementedError, match="\"add_stub\" not implemented for 'Float8_e5m2'"):
        skimp.ones(2, dtype=skimp.float8_e5m2) + 1


def test_a_gradient_goes_through_float8() -> None:
    for lib in (skimp, torch):
        x = lib.tensor([0.3, -2.7], requires_grad=True)
        x.to(lib.float8_e4m3fn).float().sum().backward()
        assert x.grad.tolist() == [1.0, 1.0]
