"""A program's own classes in files, where it names them."""

from __future__ import annotations

import importlib
import io
import operator
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.pickles import PROTO, Call, archived, call, name, text
from tests.surface.serialization.test_rules import (
    Net,
    no_globals,  # noqa: F401  (a fixture of every test)
)


def through(obj: Any, writer: Any = skimp, **words: Any) -> Any:
    file = io.BytesIO()
    writer.save(obj, file)
    file.seek(0)
    return skimp.load(file, **words)


# -- a program's own classes, where it names them -------------------------------------------------

LIBRARY = """
    import collections, dataclasses, enum
    class Plain:
        def __init__(self, n): self.n = n
        def __eq__(self, other): return vars(self) == vars(other)
        class Inner(int): pass
    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        a: int
        b: str = "b"
    class Mode(enum.Enum):
        ON = 1
        OFF = "off"
    Pair = collections.namedtuple("Pair", "x y")
    class Words(dict): pass
    class Items(list): pass
    class Members(set): pass
    class With:
        def __init__(self, *, n): self.n = n
        def __getnewargs_ex__(self): return (), {"n": self.n}
        def __new__(cls, *, n):
            self = object.__new__(cls); self.n = n; return self
        def __eq__(self, other): return self.n == other.n
    class State:
        def __getstate__(self): return [1]
        def __setstate__(self, state): self.got = state
        def __eq__(self, other): return True
    def function(x): return x
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "site-packages" / "some_library").mkdir(parents=True)
    (tmp_path / "site-packages" / "some_library" / "__init__.py").write_text(
        "from some_library.inner import *"
    )
    (tmp_path / "site-packages" / "some_library" / "inner.py").write_text(dedent(LIBRARY))
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    yield importlib.import_module("some_library.inner")
    for one in ("some_library", "some_library.inner"):
        sys.modules.pop(one, None)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_classes_of_an_imported_library_load_when_they_are_named(
    library: Any, weights_only: bool, protocol: int
) -> None:
    values = {
        "Plain": library.Plain(3), "Frozen": library.Frozen(1), "Mode": library.Mode.ON,
        "Pair": library.Pair(1, 2), "Words": library.Words(a=1), "Items": library.Items([1, 2]),
        "Members": library.Members([1, 2]), "With": library.With(n=3), "State": library.State(),
        "function": library.function,
    }  # fmt: skip
    if protocol == 2:
        del values["With"]  # which protocol 2 writes as a partial call of its `__new__`
    for title, value in values.items():
        file = io.BytesIO()
        torch.save({title: value}, file, pickle_protocol=protocol)
        file.seek(0)
        with pytest.raises(pickle.UnpicklingError, match="some_library"):
            skimp.load(file, weights_only=weights_only)
        file.seek(0)
        with skimp.serialization.safe_globals([getattr(library, title)]):
            found = skimp.load(file, weights_only=weights_only)[title]
        assert type(found) is type(value)
        assert found == value
        if title == "State":
            assert found.got == [1]


def test_the_error_says_the_lines_to_write(library: Any) -> None:
    made = [library.Plain(1), library.Pair(1, 2), library.Mode.OFF, Net()]
    file = io.BytesIO()
    skimp.save(made, file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError) as refusal:
        skimp.load(file, weights_only=False)
    lines = str(refusal.value).partition("load:\n")[2]
    assert [line.strip() for line in lines.splitlines()] == [
        "from some_library.inner import Mode, Pair, Plain",
        f"from {Net.__module__} import Net",
        "torch.serialization.add_safe_globals([Plain, Pair, Mode, Net])",
    ]
    exec(dedent(lines), {"torch": skimp})  # as a program would write them
    file.seek(0)
    found = skimp.load(file, weights_only=False)
    assert found[:3] == made[:3]
    assert type(found[3]) is Net


def test_a_name_on_the_longer_list_says_so() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"longer list of `torch.load\(..., weights_"):
        through(skimp.nn.ReLU())


@pytest.mark.parametrize(
    "full",
    ["nn.functional.relu", "nn.functional.gelu", "relu", "linalg.norm", "fft.fft", "special.erf",
     "nn.functional.triplet_margin_with_distance_loss", "nn.init.zeros_", "manual_seed"],
)  # fmt: skip
def test_functions_of_any_torch_module_can_be_named(full: str) -> None:
    f = operator.attrgetter(full)(skimp)
    for weights_only in (True, False):
        with skimp.serialization.safe_globals([f]):
            assert through([f], weights_only=weights_only) == [f]
    theirs = operator.attrgetter(full)(torch)
    home = sys.modules.get(theirs.__module__ or "")
    found = getattr(home, theirs.__name__, None)  # PyTorch's compiler, once imported, wraps a few
    if isinstance(theirs, types.FunctionType) and found is theirs:
        with skimp.serialization.safe_globals([f]):
            assert through([theirs], torch) == [f]


def test_a_named_class_of_pytorchs_is_built_as_the_list_says() -> None:
    linear = skimp.nn.Linear(2, 3)
    constructed = call(name("torch.nn.modules.linear", "Linear"), b"K\x01K\x01") + b"."
    with skimp.serialization.safe_globals([skimp.nn.Linear]):
        assert through(linear).weight.tolist() == linear.weight.tolist()
        with pytest.raises(pickle.UnpicklingError, match="bare instances"):
            skimp.load(archived(PROTO + constructed))


def test_what_lies_beside_the_program_is_not_its_own(tmp_path: Path) -> None:
    """A folder with the standard library in it, as with Python installed there, names nothing."""
    (tmp_path / "helper.py").write_text("class Helper: pass\ndef danger(x): raise SystemExit(3)\n")
    (tmp_path / "main.py").write_text(
        dedent("""
        import helper, io, pickle, shutil, torch
        class Evil:
            def __init__(self, *call): self.call = call
            def __reduce__(self): return self.call
        for bad in (Evil(helper.danger, (1,)), helper.Helper(), Evil(shutil.rmtree, ("x",))):
            f = io.BytesIO()
            torch.save(bad, f)
            f.seek(0)
            try:
                torch.load(f, weights_only=False)
            except pickle.UnpicklingError:
                continue
            raise SystemExit("loaded")
        print("refused")
        """)
    )
    run = subprocess.run(
        [sys.executable, "-m", "skimp", "run", str(tmp_path / "main.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.stdout.startswith("refused"), run.stderr


def test_user_modules_take_plain_states_only() -> None:
    with skimp.serialization.safe_globals([Net]):
        bad = name(__name__, "Net") + b")\x81}" + text("_parameters") + b"]sb."
        with pytest.raises(pickle.UnpicklingError):
            skimp.load(archived(PROTO + bad), weights_only=False)
        assert type(through(Net(), weights_only=False)) is Net


def test_blocked_modules_stay_blocked_when_they_are_named() -> None:
    with skimp.serialization.safe_globals([os.system, (os.system, "posix.system")]):
        for whole in (True, False):
            with pytest.raises(pickle.UnpicklingError, match="blocked"):
                through(Call(os.system, ("true",)), weights_only=whole)


def test_text_in_names_is_not_offered_as_code() -> None:
    file = archived(b"\x80\x04" + b"\x8c\x03a\nb" + b"\x8c\x09x;import os"[:11] + b"\x93.")
    with pytest.raises(pickle.UnpicklingError) as refusal:
        skimp.load(file, weights_only=False)
    assert "import x" not in str(refusal.value)
    assert "from a\nb" not in str(refusal.value)


@pytest.mark.parametrize("library", [skimp, torch])
def test_arrays_are_read_where_the_program_has_named_their_classes(library: Any) -> None:
    arrays = {"a": np.arange(3, dtype=np.int32), "b": np.array(["a", "bc"]), "c": np.dtype("f4")}
    file = io.BytesIO()
    library.save(arrays, file)
    named = [np._core.multiarray._reconstruct, np.ndarray, np.dtype]
    for kinds in ([np.dtypes.Int32DType, np.dtypes.StrDType, np.dtypes.Float32DType], []):
        file.seek(0)
        with library.serialization.safe_globals([*named, *kinds]):
            if kinds:
                found = library.load(file)
                assert all(np.array_equal(found[k], v) for k, v in arrays.items())
                assert found["a"].dtype == np.int32
            else:
                with pytest.raises(pickle.UnpicklingError):
                    library.load(file)
