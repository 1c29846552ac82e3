"""Files that ask for more than they are: by hand, and made at random from good ones.

Whatever a file is, loading ends soon, takes memory in proportion to the file, raises one of
PyTorch's exception types with a short text, and nothing of it runs. `SKIMP_FUZZ=60` tries for a
minute instead of a second; `SKIMP_FUZZ_SEED` repeats a run.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import random
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine.memory.ledger import host
from skimp.serialization import limits, listed, machine, names
from tests.support.pickles import PROTO, STORAGE, TENSOR, archived, call, name, text, watched

ALLOWED = (pickle.UnpicklingError, EOFError, RuntimeError, ValueError)
SECONDS = float(os.environ.get("SKIMP_FUZZ", "1"))
SEED = int(os.environ.get("SKIMP_FUZZ_SEED", "0"))


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


DEEP = 100_000
PAIRS = b"2\x86" * 60  # DUP TUPLE2
SHARED = (b"q\x00h\x00\x86") * 60  # the same with the memo
BOMBS = {
    "bytearray of a size": call(name("__builtin__", "bytearray"), b"J\xff\xff\xff\x7f"),
    "BYTEARRAY8": b"\x96" + u64(3 << 30),
    "BINBYTES8": b"\x8e" + u64(3 << 30),
    "BINUNICODE8": b"\x8d" + u64(3 << 30),
    "BINUNICODE": b"X\xff\xff\xff\x7f",
    "BINBYTES": b"B\xff\xff\xff\x7f",
    "LONG4": b"\x8b\xff\xff\xff\x7f",
    "LONG4 below zero": b"\x8b\xff\xff\xff\xff",
    "FRAME": b"\x95" + u64(1 << 62),
    "tensor of sizes": call(name("torch", "Tensor"), b"J\xff\xff\xff\x7f"),
    "storage of a size": call(name("torch", "FloatStorage"), b"J\xff\xff\xff\x7f"),
    "untyped storage": call(name("torch.storage", "UntypedStorage"), b"J\xff\xff\xff\x7f"),
    "list of a range": call(
        name("__builtin__", "list"), call(name("__builtin__", "xrange"), b"J\xff\xff\xff\x7f")
    ),
    "set of a range": call(
        name("__builtin__", "set"), call(name("__builtin__", "xrange"), b"J\xff\xff\xff\x7f")
    ),
    "fraction": call(name("fractions", "Fraction"), text("1e999999999")),
    "decimal": call(name("decimal", "Decimal"), text("1" * 5000)),
    "array": call(
        name("numpy", "dtype"), text("V999999999999")
    ),
    "type by commas": call(name("numpy", "dtype"), text("i4," * 1000)),
    "storage key": b"(" + text("storage") + name("torch", "FloatStorage") + b"K\x01" + PAIRS
    + text("cpu") + b"K\x04tQ",
    "storage key shared": b"(" + text("storage") + name("torch", "FloatStorage") + b"K\x01"
    + SHARED + text("cpu") + b"K\x04tQ",
    "storage size": b"(" + text("storage") + name("torch", "FloatStorage") + text("0") + text("cpu")
    + b"K\x01" + SHARED + b"tQ",
    "storage place": b"(" + text("storage") + name("torch", "FloatStorage") + text("0") + b"K\x01"
    + SHARED + b"K\x04tQ",
    "persistent id": b"K\x01" + SHARED + b"Q",
    "huge storage": b"(" + text("storage") + name("torch", "FloatStorage") + text("0") + text("cpu")
    + b"\x8a\x0f" + b"\x7f" * 15 + b"tQ",
    "key": b"}K\x01" + SHARED + b"Ns",
    "member": b"(K\x01" + SHARED + b"\x91",
    "member of a set": b"\x8f(K\x01" + SHARED + b"\x90",
    "list of keys": call(name("__builtin__", "set"), b"](K\x01" + SHARED + b"e"),
    "deep key": b"}" + b"K\x01" + b"\x85" * DEEP + b"Ns",
    "deep member": b"\x8f(K\x01" + b"\x85" * DEEP + b"\x90",
    "deep frozen": b"(" * 900 + b"K\x01" + b"\x91" * 900,
    "deep value": b"K\x01" + b"\x85" * DEEP,
    "marks": b"(" * DEEP,
    "sizes": call(
        name("torch._utils", "_rebuild_tensor_v2"), STORAGE, b"K\x00", b"K\x01" + SHARED,
        b"K\x01\x85", b"\x89", name("collections", "OrderedDict") + b")R",
    ),
    "dimensions": call(
        name("torch._utils", "_rebuild_tensor_v2"), STORAGE, b"K\x00",
        b"(" + b"K\x01" * 1000 + b"t",
        b"(" + b"K\x01" * 1000 + b"t", b"\x89", name("collections", "OrderedDict") + b")R",
    ),
    "size of two numbers": call(name("torch", "Size"), b"(K\x01" + SHARED + b"t"),
    "long key": b"}\x8b\x10\x27\x00\x00" + b"\x7f" * 10_000 + b"Ns",
    "size of a text": call(name("torch", "device"), text("x" * 100_000)),
    "encoding": call(name("_codecs", "encode"), text("a"), b"K\x01" + SHARED),
    "layout": call(name("torch.serialization", "_get_layout"), b"K\x01" + SHARED),
    "attributes": call(
        name("torch._tensor", "_rebuild_from_type_v2"), name("torch._utils", "_rebuild_tensor_v2"),
        name("torch", "Tensor"), b")", b"}K\x01" + SHARED[:15] + b"Ns",
    ),
    "text a million times": b"]" + text("x" * 10_000) + b"q\x01" + b"(" + b"".join(
        [name("_codecs", "encode") + b"q\x02"] + [b"h\x02h\x01" + text("latin1") + b"q\x03\x86R"]
        + [b"h\x02h\x01h\x03\x86R"] * 5000) + b"e",
    "name": b"c" + b"a" * 100_000 + b"\nb\n",
    "call of a chain": b"K\x01" + SHARED + b")R",
    "state of a chain": b"K\x01" + SHARED + b"}b",
    "items for a chain": b"K\x01" + SHARED + b"K\x01a",
    "nothing to pop": b"0",
    "no mark": b"t",
    "no memo": b"h\x07",
    "negative memo": b"p-1\n",
}  # fmt: skip


@pytest.mark.parametrize("weights_only", [None, False])
@pytest.mark.parametrize("what", BOMBS)
def test_small_files_take_little(what: str, weights_only: Any) -> None:
    data = PROTO + BOMBS[what] + b"."
    file = archived(data)
    before = host.allocated
    gauge = host.open_gauge()
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(ALLOWED) as refusal:
        skimp.load(file, weights_only=weights_only)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    host.close_gauge(gauge)
    assert len(str(refusal.value)) < limits.MESSAGE + 1000
    context = refusal.value.__context__
    assert context is None or len(repr(context)) < 5000
    assert time.process_time() - start < 5
    assert peak < 100 * len(data) + (1 << 22)
    assert gauge.peak - before <= 64


def test_deep_values_that_load_are_freed() -> None:
    """Nested lists, dicts and instances: in a process of their own, for a crash ends it."""
    program = """
        import io, skimp
        from tests.support.pickles import PROTO, archived, call, name, text
        n = 200_000
        lists = b"]" * n + b"a" * (n - 1)
        dicts = (b"}" + text("a")) * n + b"N" + b"s" * n
        layers = (name("torch.nn.modules.activation", "ReLU") + b")\\x81}(" + text("_parameters")
                  + b"}" + text("_buffers") + b"}" + text("_modules") + b"}" + text("x"))
        layers = layers * 20_000 + b"N" + b"ub" * 20_000
        spaces = (call(name("types", "SimpleNamespace")) + b"}" + text("a")) * n + b"N" + b"sb" * n
        queues = (call(name("collections", "deque"), b")") ) * 20_000 + b"a" * 19_999
        for data in (lists, dicts, layers, spaces, queues):
            try:
                found = skimp.load(archived(PROTO + data + b"."), weights_only=False)
                assert found is not None
                del found
            except skimp.serialization.loading.pickle.UnpicklingError as error:
                print(error)
        print("alive")
    """
    run = subprocess.run(
        [sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False
    )
    assert run.stdout.endswith("alive\n"), run.stderr[-2000:]


def test_object_arrays_cannot_be_nested_deep() -> None:
    """Freeing them recurses in C; and one that is filled later would not be counted."""
    code = call(name("_codecs", "encode"), text("b"), text("latin1"))
    blank = call(name("numpy._core.multiarray", "_reconstruct"), name("numpy", "ndarray"),
                 b"K\x00\x85", code)  # fmt: skip
    kind = call(name("numpy", "dtype"), text("O8"), b"\x89", b"\x88") + (
        b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb"
    )

    def around(inner: bytes) -> bytes:
        return blank + b"(K\x01K\x01\x85" + kind + b"\x89]" + inner + b"atb"

    good = around(around(b"N"))
    found = skimp.load(archived(PROTO + good + b"."), weights_only=False)
    assert found[0][0] is None
    deep = b"N"
    for _ in range(limits.DEPTH + 1):
        deep = around(deep)
    later = blank + b"q\x00" + b"0" + around(b"h\x00") + b"0h\x00"
    for bad in (deep, later, around(b"N") + b"(K\x01K\x01\x85" + kind + b"\x89]Natb"):
        with pytest.raises(pickle.UnpicklingError):
            skimp.load(archived(PROTO + bad + b"."), weights_only=False)


def test_what_is_just_within_the_bounds_loads() -> None:
    deep: Any = 1
    for _ in range(limits.DEPTH - 1):
        deep = (deep,)
    key = tuple(range(limits.PARTS - 1))
    for value in (
        deep,
        {key: 1},
        {frozenset(key)},
        {1 << (limits.BITS - 1): 2},
        {(1, ("a", 2.0)): 3},
    ):
        for library in (torch, skimp):
            file = io.BytesIO()
            library.save(value, file)
            file.seek(0)
            assert skimp.load(file, weights_only=False) == value


# -- archives -------------------------------------------------------------------------------------


def saved() -> bytes:
    file = io.BytesIO()
    skimp.save({"x": skimp.arange(20.0), "y": [skimp.ones(3), "text"]}, file)
    return file.getvalue()


def zipped(*records: tuple[str, bytes], how: int = zipfile.ZIP_STORED) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for title, data in records:
            archive.writestr(f"archive/{title}", data)
    file.seek(0)
    return file


def test_deflated_bombs_are_refused() -> None:
    bomb = zipped(("data.pkl", bytes(50_000_000)), ("version", b"3"), how=zipfile.ZIP_DEFLATED)
    with pytest.raises(RuntimeError, match="more than 100 times"):
        skimp.load(bomb)
    good = zipped(
        ("data.pkl", PROTO + TENSOR + b"."), ("data/0", bytes(16)), how=zipfile.ZIP_DEFLATED
    )
    assert skimp.load(good).tolist() == [0.0] * 4
    for how in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with pytest.raises(RuntimeError, match="PytorchStreamReader failed"):
            skimp.load(zipped(("data.pkl", PROTO + b"N."), how=how))


def test_records_on_one_another_are_refused() -> None:
    """Each would be another storage: one record could stand for a thousand."""
    data = bytearray(zipped(("data.pkl", b"x" * 100), ("data/0", b"y" * 100)).getvalue())
    second = data.rfind(b"PK\x01\x02")
    data[second + 42 : second + 46] = bytes(4)
    with pytest.raises(RuntimeError, match="PytorchStreamReader failed"):
        skimp.load(io.BytesIO(bytes(data)))


FIELDS = {6: 2, 8: 2, 10: 2, 12: 2, 14: 2, 16: 4, 20: 4, 24: 4, 28: 2, 30: 2, 32: 2, 34: 2, 36: 2,
          38: 4, 42: 4}  # fmt: skip
VALUES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF)


def ends_well(data: bytes, weights_only: Any = None) -> str:
    """'loaded', or the name of one of the errors that PyTorch raises for bad files."""
    before = host.allocated
    gauge = host.open_gauge()
    result, said = "loaded", ""
    with watched() as seen:
        try:
            skimp.load(io.BytesIO(data), weights_only=weights_only)
        except ALLOWED as error:
            result, said = type(error).__name__, str(error)
        finally:
            host.close_gauge(gauge)
    assert seen == []
    assert len(said) < limits.MESSAGE + 1000
    assert gauge.peak - before <= 101 * len(data) + 64
    return result


def test_every_field_of_the_directory_may_lie() -> None:
    data = saved()
    places = [i for i in range(len(data)) if data[i : i + 4] == b"PK\x01\x02"]
    ends = data.rfind(b"PK\x05\x06")
    tried = 0
    for start, fields in [(p, FIELDS) for p in places] + [(ends, {4: 2, 6: 2, 8: 2, 10: 2, 12: 4,
                                                                  16: 4, 20: 2})]:  # fmt: skip
        for at, width in fields.items():
            for value in VALUES:
                if value >> (8 * width):
                    continue
                bad = bytearray(data)
                bad[start + at : start + at + width] = value.to_bytes(width, "little")
                ends_well(bytes(bad))
                tried += 1
    assert tried > 500


def test_a_file_that_ends_early_says_so() -> None:
    data = saved()
    for n in range(0, len(data), 7):
        assert ends_well(data[:n]) in ("EOFError", "RuntimeError", "UnpicklingError")


# -- at random, with a seed -----------------------------------------------------------------------


TEXTS = ("", "cpu", "0", "latin1", "<", "i4", "O8", "torch.strided", "_modules", "_parameters",
         "_buffers", "state", "defaults", "__deepcopy__", "param_groups", "x" * 300)  # fmt: skip


class Maker:
    """Writes pickles that mostly make sense: values on a stack, calls with odd arguments."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = [n for n in (*names.DEFAULT, *listed.table()) if n.count(".")]
        self.codes = [
            *sorted(machine.MODERN | machine.OLD),
            pickle.DUP, pickle.INST, pickle.OBJ, pickle.EXT1, pickle.PERSID, pickle.NEXT_BUFFER,
        ]  # fmt: skip

    def number(self) -> int:
        r = self.random
        return r.choice(
            (0, 1, 2, 7, 255, 65535, 1 << 31, (1 << 63) - 1, 1 << 64, -1, r.getrandbits(9))
        )

    def value(self, depth: int = 0) -> bytes:
        r = self.random
        kind = r.randrange(14 if depth < 4 else 6)
        if kind == 0:
            return b"\x8a\x09" + self.number().to_bytes(9, "little", signed=True)
        if kind == 1:
            return text(r.choice(TEXTS))
        if kind == 2:
            return r.choice((b"N", b"\x88", b"\x89", b")", b"]", b"}", b"\x8f", STORAGE, TENSOR))
        if kind == 3:
            return b"G" + struct.pack(
                ">d", r.choice((0.0, 1.5, float("inf"), float("nan"), -1e308))
            )
        if kind == 4:
            return self.named()
        if kind == 5:
            return b"C" + bytes([r.randrange(20)]) + bytes(19) if r.random() < 0.1 else b"C\x04abcd"
        inner = [self.value(depth + 1) for _ in range(r.randrange(5))]
        if kind == 6:
            return b"(" + b"".join(inner) + b"t"
        if kind == 7:
            return b"](" + b"".join(inner) + b"e"
        if kind == 8:
            pairs = [text(r.choice(TEXTS)) + v for v in inner]
            return b"}(" + b"".join(pairs) + b"u"
        if kind == 9:
            return b"(" + b"".join(inner) + b"\x91"
        if kind == 10:
            return self.named() + b")\x81" + self.value(depth + 1) + b"b"
        if kind == 11:
            return (
                self.value(depth + 1)
                + self.value(depth + 1)
                + r.choice((b"b", b"a", b"R", b"\x81"))
            )
        made = call(self.named(), *inner)
        return made if r.random() < 0.5 else made + self.value(depth + 1) + b"b"

    def named(self) -> bytes:
        module, _, last = self.random.choice(self.names).rpartition(".")
        return name(module, last)

    def spoiled(self, data: bytes) -> bytes:
        """With a few bytes, operations, lengths or parts exchanged."""
        r, out = self.random, bytearray(data)
        for _ in range(r.randrange(1, 4)):
            at = r.randrange(len(out))
            how = r.randrange(5)
            if how == 0:
                out[at] = r.randrange(256)
            elif how == 1:
                out[at : at + 1] = r.choice(self.codes)
            elif how == 2:
                out[at:at] = out[r.randrange(len(out)) :][: r.randrange(40)]
            elif how == 3:
                del out[at : at + r.randrange(1, 20)]
            else:
                out[at : at + 4] = struct.pack("<I", self.number() & 0xFFFFFFFF)
            out = out or bytearray(b".")
        return bytes(out)


def good_pickles() -> list[bytes]:
    """Pickles of real values, which the fuzzer spoils."""
    layer = torch.nn.utils.spectral_norm(torch.nn.Linear(2, 2))
    optimizer = torch.optim.Adam(layer.parameters())
    values = [
        {"x": torch.ones(4), "n": [1, 2.5, "a", None, (1, (2,)), {3}, frozenset([4])]},
        layer, optimizer, torch.nn.LazyLinear(2), torch.eye(2).to_sparse(),
        torch.eye(2).to_sparse_csr(),
        np.random.RandomState(0).get_state()[2:], np.array([{}, (1,)], dtype=object),
        np.zeros(2, [("a", "i4"), ("b", ">f8", (2,))]), torch.Generator(),
        torch.optim.lr_scheduler.CyclicLR(torch.optim.SGD(layer.parameters(), 0.1), 0.1, 0.2),
        torch.distributions.Normal(torch.zeros(1), 1.0), torch.max(torch.ones(2, 2), 0),
    ] if SECONDS > 0 else []  # fmt: skip
    found = []
    for value in values:
        file = io.BytesIO()
        torch.save(value, file)
        with zipfile.ZipFile(file) as archive:
            found += [archive.read(n) for n in archive.namelist() if n.endswith("data.pkl")]
    return found


@pytest.mark.parametrize("way", ["made", "spoiled", "archives", "streams"])
def test_files_at_random_end_well(way: str) -> None:
    seed = SEED
    deadline = time.monotonic() + SECONDS
    kept = good_pickles()
    whole_file, stream = saved(), io.BytesIO()
    torch.save({"x": torch.ones(4), "l": torch.nn.Linear(2, 2)}, stream,
               _use_new_zipfile_serialization=False)  # fmt: skip
    results: dict[str, int] = {}
    while time.monotonic() < deadline or sum(results.values()) < 50:
        seed += 1
        maker = Maker(seed)
        if way == "made":
            data = archived(PROTO + maker.value() + b".").getvalue()
        elif way == "spoiled":
            data = archived(maker.spoiled(maker.random.choice(kept))).getvalue()
        else:
            data = maker.spoiled(whole_file if way == "archives" else stream.getvalue())
        try:
            result = ends_well(data, maker.random.choice((None, False)))
        except BaseException as error:
            raise AssertionError(f"SKIMP_FUZZ_SEED={seed - 1}, {way}: {data[:3000]!r}") from error
        results[result] = results.get(result, 0) + 1
    gc.collect()
    assert sum(results.values()) >= 50
    assert len(results) > 1
