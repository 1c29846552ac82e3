"""Files of PyTorch load here and files of skimp load there; nothing of a file's is run; a save is
whole or not at all.
"""

from __future__ import annotations

import argparse
import gzip
import io
import pickle
import warnings
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine.memory.ledger import host
from skimp.nn.parameter import Parameter
from skimp.serialization import safetensors as ours_safetensors
from skimp.serialization.archive import ArchiveWriter
from tests.support import samples

DTYPES = [d.name for d in skimp._engine.tensor.dtypes.ALL]
SHAPES: list[tuple[int, ...]] = [(), (0,), (3,), (2, 3, 4)]


@pytest.fixture(autouse=True)
def no_globals() -> Iterator[None]:
    yield
    skimp.serialization.clear_safe_globals()


def through(obj: Any, write: Any, read: Any, **words: Any) -> Any:
    buffer = io.BytesIO()
    write(obj, buffer)
    buffer.seek(0)
    return read(buffer, **words)


def to_torch(obj: Any, **words: Any) -> Any:
    return through(obj, skimp.save, torch.load, **words)


def to_skimp(obj: Any, **words: Any) -> Any:
    return through(obj, torch.save, skimp.load, **words)


def same(ours: Any, theirs: Any) -> None:
    """Their layouts too: what is saved lies as it lay."""
    samples.same(ours, theirs)
    assert ours.stride() == theirs.stride() or theirs.numel() == 0
    assert ours.storage_offset() == theirs.storage_offset()


def twins(name: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    values = (np.arange(int(np.prod(shape))) % 5).reshape(shape)
    theirs = torch.tensor(values, dtype=getattr(torch, name))
    return skimp.tensor(values.tolist(), dtype=getattr(skimp, name)).reshape(shape), theirs


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", DTYPES)
def test_both_ways(name: str, shape: tuple[int, ...]) -> None:
    ours, theirs = twins(name, shape)
    same(to_skimp(theirs), theirs)
    same(ours, to_torch(ours))


def test_views_share_and_keep_their_strides() -> None:
    x = torch.arange(24.0).reshape(4, 6)
    a, b, c = to_skimp([x, x.t()[1:], x[2]])
    same(b, x.t()[1:])
    assert skimp.shares_memory(a, b)
    c.fill_(-1)
    assert a[2, 0].item() == -1
    y = skimp.arange(24.0).reshape(4, 6)
    d, e = to_torch([y, y.t()[1:]])
    same(y.t()[1:], e)
    assert d.untyped_storage().data_ptr() == e.untyped_storage().data_ptr()
    f, g = through([y, y.t()[1:]], skimp.save, skimp.load)
    assert skimp.shares_memory(f, g)
    assert host.allocated


def test_plain_values() -> None:
    plain = {
        "a": [1, 2.5, None, True, "text", b"bytes", (1, ()), 1 << 70],
        3: {4: {5}},
        "c": 1 + 2j,
        "o": OrderedDict(x=1),
        "n": Counter("aab"),
        "b": bytearray(b"xy"),
    }
    assert to_torch(plain) == to_skimp(plain) == through(plain, skimp.save, skimp.load) == plain


def test_our_types() -> None:
    ours = {
        "dtype": skimp.bfloat16,
        "size": skimp.Size([1, 2]),
        "device": skimp.device("cpu"),
        "layout": skimp.strided,
    }
    theirs = {
        "dtype": torch.bfloat16,
        "size": torch.Size([1, 2]),
        "device": torch.device("cpu"),
        "layout": torch.strided,
    }
    assert to_torch(ours) == theirs
    found = to_skimp(theirs)
    assert found == ours
    assert found["dtype"] is skimp.bfloat16
    assert type(found["size"]) is skimp.Size


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(protocol: int) -> None:
    x = skimp.tensor([1.0, 2.0], requires_grad=True)
    obj = {"x": x, "set": {1}, "p": Parameter(skimp.ones(2)), "b": b"ab"}
    buffer = io.BytesIO()
    skimp.save(obj, buffer, pickle_protocol=protocol)
    for load in (skimp.load, torch.load) if protocol == 2 else (skimp.load,):
        buffer.seek(0)
        found = load(buffer)
        assert found["x"].requires_grad
        assert found["x"].tolist() == [1.0, 2.0]
        assert found["b"] == b"ab"
        assert type(found["p"]).__name__ == "Parameter"
    theirs = io.BytesIO()
    torch.save(
        {"x": torch.ones(2), "b": bytearray(b"q"), "f": frozenset()}
        if protocol > 3
        else torch.ones(2),
        theirs,
        pickle_protocol=protocol,
    )
    theirs.seek(0)
    found = skimp.load(theirs)
    assert (found["x"] if protocol > 3 else found).tolist() == [1.0, 1.0]


def test_parameters_and_attributes() -> None:
    p = Parameter(skimp.ones(2), requires_grad=False)
    p.tag = "mine"
    t = skimp.zeros(2)
    t.tag = [1]
    found = to_torch([p, t])
    assert isinstance(found[0], torch.nn.Parameter)
    assert (found[0].tag, found[1].tag, found[0].requires_grad) == ("mine", [1], False)
    q = torch.nn.Parameter(torch.ones(2))
    q.tag = "theirs"
    again = to_skimp(q)
    assert isinstance(again, Parameter)
    assert again.tag == "theirs"
    assert again.requires_grad


def test_lazy_conjugates() -> None:
    z = torch.tensor([1 + 2j, 3 - 1j])
    assert to_skimp(z.conj()).tolist() == z.conj().tolist()
    assert to_skimp(z.conj().imag).tolist() == z.conj().imag.tolist()
    w = skimp.tensor([1 + 2j, 3 - 1j])
    assert to_torch(w.conj()).tolist() == w.conj().tolist()


def test_storages() -> None:
    x = skimp.arange(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch loads it as a typed one, and warns of those
        assert to_torch(x.untyped_storage()).nbytes() == 24
    assert (
        to_skimp(torch.arange(3).untyped_storage()).tolist()
        == torch.arange(3).untyped_storage().tolist()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own about typed storages
        typed = to_skimp(torch.arange(3).storage())
    assert (typed.dtype, typed.tolist()) == (skimp.int64, [0, 1, 2])


def test_state_dicts_both_ways() -> None:
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
    )
    ours = skimp.nn.Sequential(
        skimp.nn.Linear(3, 4), skimp.nn.BatchNorm1d(4), skimp.nn.Linear(4, 2)
    )
    state = to_skimp(theirs.state_dict())
    assert type(state) is OrderedDict
    assert state._metadata == theirs.state_dict()._metadata
    assert not str(ours.load_state_dict(state)).count("missing")
    back = to_torch(ours.state_dict())
    for name, t in theirs.state_dict().items():
        assert torch.equal(back[name], t)
    assert back._metadata == theirs.state_dict()._metadata


def test_generator_states_continue_elsewhere() -> None:
    skimp.manual_seed(7)
    skimp.rand(5)
    generator = torch.Generator()
    generator.set_state(to_torch(skimp.get_rng_state()))
    assert torch.rand(3, generator=generator).tolist() == skimp.rand(3).tolist()


def test_deferred_results_are_saved() -> None:
    x = skimp.ones(1 << 17)
    assert to_torch(x * 2 + 1)[5].item() == 3


def test_other_types_on_one_storage_are_refused() -> None:
    x = skimp.ones(4)
    with pytest.raises(
        RuntimeError, match="Cannot save multiple tensors or storages that view the same data"
    ):
        skimp.save([x, x.view(skimp.int32)], io.BytesIO())


# -- places ---------------------------------------------------------------------------------------


def test_map_location() -> None:
    seen: list[str] = []

    def place(storage: Any, tag: str) -> Any:
        seen.append(tag)
        return storage if len(seen) == 1 else None

    for where in (place, "cpu", skimp.device("cpu"), {"cpu": "cpu"}, None):
        assert to_skimp([torch.ones(1), torch.zeros(1)], map_location=where)[0].item() == 1
    assert seen == ["cpu", "cpu"]
    with pytest.raises(
        RuntimeError, match=r"Attempting to deserialize object on a CUDA device .* map_location"
    ):
        to_skimp(torch.ones(1), map_location="cuda:0")
    with pytest.raises(RuntimeError, match="don't know how to restore data location"):
        to_skimp(torch.ones(1), map_location={"cpu": "tpu"})


# -- mapped files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", [skimp, torch])
def test_mmap(writer: Any, tmp_path: Path) -> None:
    path = tmp_path / "large.pt"
    x = writer.arange(3 << 20)
    writer.save({"x": x, "v": x[5:].view(-1, 1), "none": x[:0].clone()}, path)
    before = host.allocated
    found = skimp.load(path, mmap=True)
    assert host.allocated == before
    assert found["x"][-1].item() == (3 << 20) - 1
    assert found["v"][0].item() == 5
    found["x"][5] = 7
    assert found["v"][0].item() == 7
    assert (found["x"] + 1)[5].item() == 8
    assert skimp.load(path)["x"][5].item() == 5
    if writer is skimp:
        assert torch.load(path, mmap=True)["x"][-1].item() == (3 << 20) - 1
    with pytest.raises(ValueError, match="f must be a file path"):
        skimp.load(io.BytesIO(), mmap=True)


def test_loading_allocates_the_tensors_and_no_more() -> None:
    buffer = io.BytesIO()
    skimp.save(skimp.ones(1 << 20), buffer)
    buffer.seek(0)
    gauge = host.open_gauge()
    before = host.allocated
    x = skimp.load(buffer)
    assert gauge.peak - before == host.allocated - before == 4 << 20
    host.close_gauge(gauge)
    del x


def pickled(data: bytes) -> io.BytesIO:
    """An archive around a pickle of somebody's own."""

    buffer = io.BytesIO()
    with ArchiveWriter(buffer, "archive") as archive:
        archive.add("data.pkl", data)
        archive.add("data/0", bytes(16))
        archive.add("version", b"3\n")
    buffer.seek(0)
    return buffer


# -- whole modules --------------------------------------------------------------------------------


class Net(skimp.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = skimp.nn.Sequential(skimp.nn.Linear(2, 3), skimp.nn.ReLU())
        self.register_buffer("seen", skimp.zeros(1))

    def forward(self, x: Any) -> Any:
        return self.body(x) + self.seen


def halve(x: Any) -> Any:
    return x / 2


def test_what_the_program_names_loads_without_weights_only() -> None:
    net = Net()
    net.config = argparse.Namespace(lr=0.1, act=halve)
    optimizer = skimp.optim.Adam(net.parameters())
    rng = np.random.RandomState(0).get_state()
    data = {"net": net, "optimizer": optimizer, "rng": rng, "best": np.float64(0.5)}
    with pytest.raises(pickle.UnpicklingError, match=r"add_safe_globals\(\[Net, halve\]\)"):
        through(data, skimp.save, skimp.load, weights_only=False)
    with skimp.serialization.safe_globals([Net, halve]):
        found = through(data, skimp.save, skimp.load, weights_only=False)
    x = skimp.ones(1, 2)
    assert type(found["net"]) is Net
    assert found["net"](x).tolist() == net(x).tolist()
    assert found["net"].config.act is halve
    assert type(found["optimizer"]) is skimp.optim.Adam
    assert found["rng"][1].tolist() == rng[1].tolist()
    assert found["best"] == 0.5


@pytest.mark.parametrize(
    "what",
    [
        f"c{__name__}\nos.system\nX\x01\x00\x00\x00a\x85R.",  # what the program has imported
        f"c{__name__}\nhalve\nK\x01\x85R.",  # a call of the program's function
        "cshutil\nrmtree\nX\x01\x00\x00\x00a\x85R.",
        "cbuiltins\neval\nX\x01\x00\x00\x00a\x85R.",
    ],
)
def test_files_still_call_no_functions(what: str) -> None:
    with pytest.raises(pickle.UnpicklingError):
        skimp.load(pickled(b"\x80\x02" + what.encode("latin-1")), weights_only=False)


def test_whole_modules() -> None:
    net = Net()
    skimp.serialization.add_safe_globals([Net])
    with pytest.raises(pickle.UnpicklingError, match=r"torch.nn.modules.\w+.(Sequential|Linear)"):
        through(net, skimp.save, skimp.load)
    x = skimp.ones(1, 2)
    assert through(net, skimp.save, skimp.load, weights_only=False)(x).tolist() == net(x).tolist()
    skimp.serialization.add_safe_globals([skimp.nn.Linear, skimp.nn.ReLU, skimp.nn.Sequential])
    found = through(net, skimp.save, skimp.load)
    assert found(x).tolist() == net(x).tolist()
    assert isinstance(found.body[0].weight, Parameter)


# -- damaged files --------------------------------------------------------------------------------


def test_damaged_files_say_so(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    skimp.save({"x": skimp.arange(1000)}, buffer)
    data = buffer.getvalue()
    with pytest.raises(RuntimeError, match="failed finding central directory"):
        skimp.load(io.BytesIO(data[: len(data) // 2]))
    bent = bytearray(data)
    bent[len(data) // 2] ^= 1
    with pytest.raises(RuntimeError, match=r"data/0: the record is damaged"):
        skimp.load(io.BytesIO(bytes(bent)))
    with pytest.raises(EOFError, match="Ran out of input"):
        skimp.load(io.BytesIO())
    with pytest.raises(pickle.UnpicklingError, match=r"none that torch.save wrote"):
        skimp.load(io.BytesIO(b"hello, this is text"))
    with pytest.raises(FileNotFoundError):
        skimp.load(tmp_path / "nothing.pt")
    with pytest.raises(RuntimeError, match=r"Parent directory .* does not exist"):
        skimp.save(1, tmp_path / "no" / "file.pt")


def test_torch_reads_what_we_write_aligned(tmp_path: Path) -> None:
    path = tmp_path / "näme.pt"
    skimp.save([skimp.arange(5), skimp.ones(3)], path)
    assert torch.load(path)[0].tolist() == [0, 1, 2, 3, 4]
    import zipfile

    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        for info in file.infolist():
            raw = path.read_bytes()[info.header_offset :]
            start = (
                info.header_offset
                + 30
                + int.from_bytes(raw[26:28], "little")
                + int.from_bytes(raw[28:30], "little")
            )
            assert start % 64 == 0


# -- safetensors ----------------------------------------------------------------------------------


def test_a_gzip_file_is_written_without_going_back() -> None:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        skimp.save({"a": skimp.arange(3)}, file)
    whole = io.BytesIO(gzip.decompress(packed.getvalue()))
    assert torch.load(whole)["a"].tolist() == [0, 1, 2]
    whole.seek(0)
    assert skimp.load(whole)["a"].tolist() == [0, 1, 2]


def test_safetensors_both_ways(tmp_path: Path) -> None:
    import safetensors.torch

    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    names = [n for n in DTYPES if n not in ("complex128",)]
    pairs = {name: twins(name, (2, 3)) for name in names} | {
        "none": twins("float32", (0,)),
        "one": twins("int8", ()),
    }
    ours_safetensors.save_file({n: a for n, (a, _) in pairs.items()}, ours, {"made": "here"})
    for name, t in safetensors.torch.load_file(ours).items():
        same(pairs[name][0], t)
    safetensors.torch.save_file({n: b for n, (_, b) in pairs.items()}, theirs)
    before = host.allocated
    found = ours_safetensors.load_file(theirs)
    assert host.allocated - before < 64
    for path in (ours, theirs):
        for name, t in skimp.load(path).items():
            same(t, pairs[name][1])
        for name, t in ours_safetensors.load(path.read_bytes()).items():
            same(t, pairs[name][1])
    found["float32"].fill_(9)
    same(ours_safetensors.load_file(theirs)["float32"], pairs["float32"][1])
    assert safetensors.torch.load(ours_safetensors.save({"x": skimp.ones(2)}))["x"].tolist() == [
        1,
        1,
    ]


def test_safetensors_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    x, path = skimp.ones(2, 3), tmp_path / "x.safetensors"
    with pytest.raises(ValueError, match="non contiguous tensor"):
        ours_safetensors.save_file({"x": x.t()}, path)
    with pytest.raises(RuntimeError, match="share memory"):
        ours_safetensors.save_file({"x": x, "y": x[0]}, path)
    with pytest.raises(ValueError, match="complex128"):
        ours_safetensors.save_file({"x": x.to(skimp.complex128)}, path)
    assert list(tmp_path.iterdir()) == []
