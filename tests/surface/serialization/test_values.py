"""What programs keep beside weights, in files of PyTorch's and of skimp's, both ways."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import fractions
import io
import pathlib
import pickle
import sys
import types
import uuid
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.utils.prune

import skimp
from skimp._engine.memory.ledger import host
from skimp.serialization.archive import ArchiveWriter

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated"),
    pytest.mark.filterwarnings("ignore:Seems like `optimizer.step"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]

Make = Callable[[Any], Any]


def hooked(t: Any) -> Any:
    layer = t.nn.Linear(2, 2)
    layer.register_forward_hook(print)
    return layer


def pruned(t: Any, twice: bool = False) -> Any:
    layer = t.nn.Linear(2, 2)
    t.nn.utils.prune.l1_unstructured(layer, "weight", 1)
    if twice:
        t.nn.utils.prune.random_unstructured(layer, "weight", 1)
    return layer


def schedule(name: str, *args: Any, **words: Any) -> Make:
    def make(t: Any) -> Any:
        optimizer = t.optim.SGD(t.nn.Linear(2, 2).parameters(), 0.1)
        return getattr(t.optim.lr_scheduler, name)(optimizer, *args, **words)

    return make


def normal(t: Any) -> Any:
    return t.distributions.Normal(t.zeros(2), t.ones(2))


LIMITS: dict[str, Make] = {
    "positive": lambda t: t.distributions.constraints.positive,
    "real vector": lambda t: t.distributions.constraints.real_vector,
    "unit interval": lambda t: t.distributions.constraints.unit_interval,
    "at least": lambda t: t.distributions.constraints.greater_than_eq(t.ones(2)),
    "integers": lambda t: t.distributions.constraints.integer_interval(0, 3),
    "simplex": lambda t: t.distributions.constraints.simplex,
    "cholesky": lambda t: t.distributions.constraints.lower_cholesky,
    "several": lambda t: t.distributions.constraints.stack([t.distributions.constraints.real], 0),
}
UTC = datetime.timezone.utc  # noqa: UP017  (what its pickles call it)
ROWS: dict[str, Make] = {
    "relu": lambda t: t.nn.TransformerEncoderLayer(4, 2, 8, activation=t.relu),
    "silu": lambda t: t.nn.TransformerEncoderLayer(4, 2, 8, activation=t.nn.functional.silu),
    "gelu": lambda t: t.nn.TransformerEncoderLayer(4, 2, 8, activation=t.nn.functional.gelu),
    "distance": lambda t: t.nn.TripletMarginWithDistanceLoss(
        distance_function=t.nn.functional.pairwise_distance
    ),
    "weight_norm": lambda t: t.nn.utils.weight_norm(t.nn.Linear(2, 2)),
    "spectral_norm": lambda t: t.nn.utils.spectral_norm(t.nn.Linear(2, 2)),
    "pruned": pruned,
    "pruned twice": lambda t: pruned(t, True),
    "lazy": lambda t: t.nn.LazyLinear(3),
    "lazy norm": lambda t: t.nn.LazyBatchNorm1d(),
    "hook": hooked,
    "cyclic": schedule("CyclicLR", 0.1, 0.2, cycle_momentum=False),
    "cyclic 2": schedule("CyclicLR", 0.1, 0.2, mode="triangular2", cycle_momentum=False),
    "cyclic exp": schedule("CyclicLR", 0.1, 0.2, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "one cycle": schedule("OneCycleLR", 0.1, 10, cycle_momentum=False),
    "plateau": schedule("ReduceLROnPlateau"),
    "lambda": schedule("LambdaLR", float),
    "averaged": lambda t: t.optim.swa_utils.AveragedModel(t.nn.Linear(2, 2)),
    "adafactor": lambda t: t.optim.Adafactor(t.nn.Linear(2, 2).parameters()),
    "muon": lambda t: t.optim.Muon([t.nn.Linear(2, 2).weight]),
    "adamw": lambda t: t.optim.AdamW(t.nn.Linear(2, 2).parameters()),
    "lbfgs": lambda t: t.optim.LBFGS(t.nn.Linear(2, 2).parameters()),
    "normal": normal,
    "categorical": lambda t: t.distributions.Categorical(t.ones(3)),
    "independent": lambda t: t.distributions.Independent(normal(t), 1),
    "transformed": lambda t: t.distributions.TransformedDistribution(
        normal(t), [t.distributions.AffineTransform(0.0, 2.0), t.distributions.ExpTransform()]
    ),
    "mixture": lambda t: t.distributions.MixtureSameFamily(
        t.distributions.Categorical(t.ones(2)), normal(t)
    ),
    "multivariate": lambda t: t.distributions.MultivariateNormal(t.zeros(2), t.eye(2)),
    "constraints": lambda t: {name: limit(t) for name, limit in LIMITS.items()},
    "packed": lambda t: t.nn.utils.rnn.pack_sequence([t.ones(3), t.zeros(2)]),
    "max": lambda t: t.max(t.ones(2, 2), 0),
    "qr": lambda t: t.linalg.qr(t.eye(2)),
    "sort": lambda t: t.ones(2).sort(),
    "deque": lambda t: collections.deque([1, "a"], 3),
    "open deque": lambda t: collections.deque([1]),
    "datetime": lambda t: datetime.datetime(2020, 1, 2, 3, 4, 5, 6),
    "utc": lambda t: datetime.datetime(2020, 1, 1, tzinfo=UTC),
    "zone": lambda t: datetime.datetime(
        2020, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "here")
    ),
    "date": lambda t: datetime.date(2020, 1, 2),
    "time": lambda t: datetime.time(1, 2, 3),
    "timedelta": lambda t: datetime.timedelta(1, 2, 3),
    "decimals": lambda t: [decimal.Decimal(x) for x in ("1.50", "-Infinity", "1E+30", "0E-8")],
    "fraction": lambda t: fractions.Fraction(-1, 3),
    "range": lambda t: range(1, 9, 2),
    "slice": lambda t: slice(1, None, 2),
    "path": lambda t: pathlib.Path("a/b"),
    "pure path": lambda t: pathlib.PureWindowsPath("c:\\a"),
    "uuid": lambda t: uuid.UUID(int=5),
    "objects": lambda t: np.array([{}, None, [1]], dtype=object),
    "structured": lambda t: np.ones(2, [("a", "i4"), ("b", ">f8", (2,)), ("c", [("d", "u1")])]),
    "big-endian": lambda t: np.arange(3, dtype=">i4"),
    "times": lambda t: np.array(["2020-01-01"], "M8[D]"),
    "record": lambda t: np.zeros(1, [("a", "i4")])[0],
    "numpy type": lambda t: np.dtype([("a", ">i4")]),
    "mersenne": lambda t: np.random.MT19937(1),
    "namespace": lambda t: types.SimpleNamespace(a=1),
    "arguments": lambda t: argparse.Namespace(a=1),
    "ellipsis": lambda t: [..., int, len],
    "default": lambda t: collections.defaultdict(list, {1: [2]}),
    "frozen": lambda t: frozenset([(1, 2)]),
    "integer": lambda t: 1 << 5000,
    "bytes": lambda t: [b"", b"abc", bytearray(b"xy"), bytearray()],
}  # fmt: skip


def through(value: Any, writer: Any, reader: Any, **words: Any) -> Any:
    file = io.BytesIO()
    writer.save(value, file, **words)
    file.seek(0)
    return reader.load(file, weights_only=False)


def told(value: Any) -> str:
    found = repr(value)
    return type(value).__name__ if " at 0x" in found else found


@pytest.mark.parametrize(
    "name", ["contiguous_format", "channels_last", "channels_last_3d", "preserve_format"]
)
def test_memory_formats_which_the_oracle_does_not_save(name: str) -> None:
    assert through([getattr(skimp, name)], skimp, skimp)[0] is getattr(skimp, name)
    assert through([getattr(skimp, name)], skimp, torch)[0] is getattr(torch, name)


@pytest.mark.parametrize("what", ROWS)
def test_values_both_ways(what: str) -> None:
    for writer, reader in ((torch, skimp), (skimp, torch), (skimp, skimp)):
        value = ROWS[what](writer)
        found = through(value, writer, reader)
        assert type(found).__name__ == type(value).__name__
        if what != "big-endian":  # which NumPy turns around
            assert told(found) == told(value)
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("what", ["cyclic", "cyclic 2", "cyclic exp", "one cycle"])
def test_loaded_schedules_go_on(what: str) -> None:
    value = ROWS[what](torch)
    found = through(value, torch, skimp)
    back = through(found, skimp, torch)
    for one in (value, found, back):
        one.optimizer.step()
        for _ in range(3):
            one.step()
    assert found.get_last_lr() == pytest.approx(value.get_last_lr())
    assert back.get_last_lr() == value.get_last_lr()


@pytest.mark.parametrize("what", ["weight_norm", "spectral_norm", "pruned", "lazy"])
def test_loaded_layers_compute(what: str) -> None:
    torch.manual_seed(0)
    value = ROWS[what](torch).eval()
    found = through(value, torch, skimp)
    x = torch.randn(3, 2)
    got = found(skimp.from_numpy(x.numpy()))
    if what == "lazy":
        assert got.shape == (3, 3)
        return
    np.testing.assert_allclose(got.detach().numpy(), value(x).detach().numpy(), rtol=1e-5)
    state = value.state_dict()
    found.load_state_dict(through(state, torch, skimp))
    assert found.state_dict()._metadata == state._metadata


def test_old_spectral_norms_get_their_second_vector() -> None:
    for library in (torch, skimp):
        library.manual_seed(0)
    theirs = torch.nn.utils.spectral_norm(torch.nn.Linear(2, 3))
    theirs(torch.ones(1, 2))
    ours = skimp.nn.utils.spectral_norm(skimp.nn.Linear(2, 3))
    state = theirs.state_dict()
    old = {k: v.clone() for k, v in state.items() if k != "weight_v"} | {
        "weight": theirs.weight.detach().clone()
    }
    again = torch.nn.utils.spectral_norm(torch.nn.Linear(2, 3))
    again.load_state_dict(old)
    ours.load_state_dict({k: skimp.from_numpy(v.numpy()) for k, v in old.items()})
    np.testing.assert_allclose(ours.weight_v.numpy(), again.weight_v.numpy(), rtol=1e-4)


def test_generators_go_on() -> None:
    for writer, reader in ((torch, skimp), (skimp, torch), (skimp, skimp)):
        value = writer.Generator().manual_seed(5)
        writer.rand(3, generator=value)
        found = through(value, writer, reader)
        assert reader.rand(2, generator=found).tolist() == writer.rand(2, generator=value).tolist()
    for make in (np.random.RandomState, np.random.default_rng):
        rng = make(3)
        rng.standard_normal(3)
        assert through(rng, torch, skimp).standard_normal() == rng.standard_normal()


def test_data_sets() -> None:
    for writer, reader in ((torch, skimp), (skimp, torch)):
        data = writer.utils.data
        found = through(data.Subset(data.TensorDataset(writer.arange(4)), [1, 2]), writer, reader)
        assert [row[0].item() for row in (found[0], found[1])] == [1, 2]


# -- sparse tensors, older formats, other machines ------------------------------------------------


def carried(
    made: Callable[[Any], list[Any]], zipped: bool, weights_only: bool
) -> Iterator[tuple[Any, Any]]:
    """What a library reads of a file, and what a library wrote: ours to theirs, back, and ours."""
    for writer, reader in ((torch, skimp), (skimp, torch), (skimp, skimp)):
        file = io.BytesIO()
        writer.save(made(writer), file, _use_new_zipfile_serialization=zipped)
        file.seek(0)
        yield from zip(reader.load(file, weights_only=weights_only), made(writer), strict=True)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("weights_only", [True, False])
def test_sparse_tensors(zipped: bool, weights_only: bool) -> None:
    def made(t: Any) -> list[Any]:
        loose = t.sparse_coo_tensor(t.tensor([[0, 0], [1, 1]]), t.tensor([1.0, 2.0]), (2, 3))
        return [t.eye(3).to_sparse(), loose, loose.coalesce(), t.zeros(2, 2, 2).to_sparse(2)]

    for one, want in carried(made, zipped, weights_only):
        assert one.is_coalesced() == want.is_coalesced()
        assert one.to_dense().tolist() == want.to_dense().tolist()
        assert one._nnz() == want._nnz()


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("weights_only", [True, False])
def test_sparse_tensors_by_rows(zipped: bool, weights_only: bool) -> None:
    def made(t: Any) -> list[Any]:
        narrow = [t.tensor(n, dtype=t.int32) for n in ([0, 1, 3], [2, 0, 2])]
        whole = t.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr()
        return [whole, t.sparse_csr_tensor(*narrow, t.ones(3).double(), (2, 3))]

    for one, want in carried(made, zipped, weights_only):
        assert repr(one) == repr(want)
    assert repr(pickle.loads(pickle.dumps(made(skimp)))) == repr(made(torch))


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_sparse_tensors_by_rows_that_lie_are_refused() -> None:
    file = io.BytesIO()
    torch.save(torch.eye(3).to_sparse_csr(), file)
    for record, bad in {"data/0": [0, 1, 2, 9], "data/1": [0, 1, 3]}.items():
        with pytest.raises((RuntimeError, pickle.UnpicklingError)):
            skimp.load(rewritten(file, {record: np.array(bad).tobytes()}))


def test_sparse_tensors_that_lie_are_refused() -> None:
    file = io.BytesIO()
    torch.save(torch.eye(3).to_sparse(), file)
    for bad in ([[0, 1, 3], [0, 1, 2]], [[0, 1, -1], [0, 1, 2]], [[1, 0, 2], [0, 1, 2]]):
        with pytest.raises((RuntimeError, pickle.UnpicklingError)):
            skimp.load(rewritten(file, {"data/0": np.array(bad).tobytes()}))


def rewritten(file: io.BytesIO, changes: dict[str, bytes | None]) -> io.BytesIO:
    """An archive with some records exchanged, or left out."""
    with zipfile.ZipFile(file) as archive:
        records = {n.partition("/")[2]: archive.read(n) for n in archive.namelist()}
    new = io.BytesIO()
    with ArchiveWriter(new, "archive") as out:
        for title, data in {**records, **changes}.items():
            if data is not None:
                out.add(title, data)
    new.seek(0)
    return new


@pytest.mark.parametrize("weights_only", [True, False])
def test_the_format_before_1_6(weights_only: bool) -> None:
    for writer, reader in ((torch, skimp), (skimp, torch), (skimp, skimp)):
        x = writer.arange(12.0).reshape(3, 4)
        values = {
            "x": x, "view": x.t()[1:], "half": writer.ones(3, dtype=writer.bfloat16), "n": 1,
            "state": writer.nn.Linear(2, 2).state_dict(), "empty": writer.empty(0),
            "complex": writer.ones(2, dtype=writer.complex64),
        }  # fmt: skip
        file = io.BytesIO()
        writer.save(values, file, _use_new_zipfile_serialization=False)
        file.write(b"more")
        file.seek(0)
        before = host.allocated
        found = reader.load(file, weights_only=weights_only)
        assert file.read() == b"more"
        if reader is skimp and writer is torch:
            assert host.allocated - before == 48 + 6 + 24 + 16
        for name in ("x", "view", "half", "complex"):
            assert found[name].tolist() == values[name].tolist()
        assert found["view"].stride() == (1, 4)
        found["x"][0, 1] = -1
        assert found["view"][0, 0].item() == -1
        if not weights_only:
            layer = through(
                writer.nn.LSTM(2, 2), writer, reader, _use_new_zipfile_serialization=False
            )
            assert type(layer) is reader.nn.LSTM


@pytest.mark.parametrize("protocol", [2, 4])
def test_plain_pickles_of_tensors(protocol: int) -> None:
    data = pickle.dumps({"a": torch.arange(3.0), "p": torch.nn.Parameter(torch.ones(2))}, protocol)
    found = skimp.load(io.BytesIO(data))
    assert found["a"].tolist() == [0, 1, 2]
    assert isinstance(found["p"], skimp.nn.Parameter)
    layer = skimp.load(
        io.BytesIO(pickle.dumps(torch.nn.Linear(2, 2), protocol)), weights_only=False
    )
    assert layer(skimp.ones(1, 2)).shape == (1, 2)


@pytest.mark.parametrize("how", ["record", "setting", "stream"])
def test_files_of_the_other_byte_order(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        name: torch.arange(4).to(getattr(torch, name))
        for name in ("int16", "int64", "float32", "float64", "bfloat16", "uint8", "complex64")
    }
    other = "big" if sys.byteorder == "little" else "little"
    turned = {name: (t if t.element_size() == 1 else _turned(t)) for name, t in values.items()}
    file = io.BytesIO()
    if how == "stream":
        monkeypatch.setattr(sys, "byteorder", other)
        torch.save(turned, file, _use_new_zipfile_serialization=False)
        monkeypatch.undo()
    else:
        torch.save(turned, file)
        if how == "record":
            file = rewritten(file, {"byteorder": other.encode()})
        else:
            file = rewritten(file, {"byteorder": None})
            option = skimp.serialization.LoadEndianness
            skimp.serialization.set_default_load_endianness(
                option.BIG if other == "big" else option.LITTLE
            )
    file.seek(0)
    try:
        found = skimp.load(file)
    finally:
        skimp.serialization.set_default_load_endianness(None)
    for name, t in values.items():
        assert found[name].tolist() == t.tolist(), name


def _turned(t: Any) -> Any:
    width = t.element_size() // (2 if t.is_complex() else 1)
    raw = t.view(torch.uint8).numpy().view(f"u{width}").byteswap().view(np.uint8)
    return torch.from_numpy(raw.copy()).view(t.dtype)
