"""The rule of loading, and attacks on it: what is listed was reviewed, nothing of a file's runs."""

from __future__ import annotations

import collections
import ctypes
import datetime
import functools
import importlib
import inspect
import io
import logging
import operator
import os
import pickle
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp.serialization import functions, listed, names
from tests.support.pickles import (
    PROTO,
    TENSOR,
    Call,
    archived,
    call,
    name,
    text,
    watched,
    with_call,
)

TABLE = listed.table()
NEW = name("torch.nn.modules.activation", "ReLU") + b")\x81"


@pytest.fixture(autouse=True)
def no_globals() -> Iterator[None]:
    yield
    skimp.serialization.clear_safe_globals()


# -- the list is what the review saw --------------------------------------------------------------

# The only methods that taking a state may call, each read through for what it does with it.
REVIEWED_STATES = {
    "Module.__setstate__", "_Conv.__setstate__", "RNNBase.__setstate__",
    "MultiheadAttention.__setstate__", "TransformerEncoderLayer.__setstate__",
    "TransformerDecoderLayer.__setstate__", "Optimizer.__setstate__", "AdamW.__setstate__",
    "RemovableHandle.__setstate__", "WrappedHook.__setstate__", "UUID.__setstate__",
    "_ConvNd.__setstate__",
}  # fmt: skip


@pytest.mark.parametrize("full", [n for n, one in TABLE.items() if one.bare])
def test_bare_classes_run_nothing_when_they_are_made_filled_and_freed(full: str) -> None:
    cls = TABLE[full].value
    assert TABLE[full].fill is not None
    assert cls.__new__ is object.__new__
    assert not hasattr(cls, "__del__")
    assert cls.__hash__ in (object.__hash__, None) or cls.__module__ == "uuid"
    assert type(cls).__call__ is type.__call__
    state = getattr(cls, "__setstate__", None)
    assert state is None or state.__qualname__ in REVIEWED_STATES
    assert "__setattr__" not in vars(cls) or issubclass(cls, skimp.nn.Module) or state is not None


@pytest.mark.parametrize("full", [n for n, one in TABLE.items() if n.startswith("torch.")])
def test_listed_names_are_pytorchs(full: str) -> None:
    module, _, last = full.rpartition(".")
    if full == "torch._ops.random.random.Generator" or module == "torch._C._nn":
        return  # a name that older files of skimp's have; one for both kinds of functions
    theirs = getattr(importlib.import_module(module), last)
    if isinstance(TABLE[full].value, type) and TABLE[full].bare:
        assert theirs.__name__ == last
        assert names.full_name(TABLE[full].value) == f"{theirs.__module__}.{theirs.__qualname__}"


NO_ARGUMENTS = {"file", "path", "filename", "f", "fn", "func", "function", "callable", "hook",
                "distance_function", "callback", "module", "command"}  # fmt: skip


@pytest.mark.parametrize(
    "full", [n for n, one in TABLE.items() if isinstance(one.value, types.FunctionType)]
)
def test_listed_functions_take_no_files_and_no_functions(full: str) -> None:
    f = TABLE[full].value
    assert f.__module__.startswith("skimp.")
    if TABLE[full].call is None:
        assert not NO_ARGUMENTS & set(inspect.signature(f).parameters)


def test_every_name_of_the_lists_is_there() -> None:
    for one in functions.FUNCTIONAL.split():
        assert f"torch.nn.functional.{one}" in TABLE, one
    for one in functions.OF_TORCH.split():
        assert f"torch.{one}" in TABLE, one


def test_what_can_be_called_is_a_builder_of_ours() -> None:
    """Never the class itself, for a class takes sizes, iterables and whatever else."""
    calls = [one.call for one in TABLE.values() if one.call] + list(names.CALLS.values())
    assert len(calls) > 60
    for function in calls:
        assert isinstance(function, types.FunctionType)
        assert function.__module__.startswith("skimp.serialization.")


def test_nothing_listed_reaches_the_system() -> None:
    homes = {full.partition(".")[0] for full in TABLE}
    assert homes == {"argparse", "builtins", "collections", "datetime", "decimal", "fractions",
                     "functools", "numpy", "pathlib", "torch", "types", "uuid"}  # fmt: skip
    built = {full.partition(".")[2] for full in TABLE if full.startswith("builtins.")}
    assert not built & {"eval", "exec", "open", "compile", "__import__", "input", "breakpoint",
                        "setattr", "delattr", "vars", "globals", "map", "filter", "sorted", "iter",
                        "type", "object", "super", "property"}  # fmt: skip
    assert TABLE["builtins.getattr"].value is not getattr
    assert TABLE["functools.partial"].value is not functools.partial


# -- attacks --------------------------------------------------------------------------------------


class Net(skimp.nn.Module):
    def forward(self, x: Any) -> Any:
        return x


def ours(*_: Any) -> None:
    raise AssertionError("a function of the program's was called")


def attacks(folder: Path) -> dict[str, Any]:
    """Objects whose pickles ask a full unpickler for something that leaves a trace."""
    kept = str(folder / "kept")
    schedules = skimp.optim.lr_scheduler
    optimizer = skimp.optim.SGD([skimp.nn.Parameter(skimp.ones(1))], 0.1)
    return {
        "rmtree": Call(shutil.rmtree, (kept,)),
        "system": Call(os.system, (f"rm -r {kept}",)),
        "popen": Call(subprocess.Popen, (["rm", "-r", kept],)),
        "eval": Call(eval, (f"__import__('shutil').rmtree({kept!r})",)),
        "exec": Call(exec, ("1",)),
        "open": Call(open, (kept + "/f", "w")),
        "import": Call(__import__, ("antigravity",)),
        "import_module": Call(importlib.import_module, ("this",)),
        "schedule": Call(schedules.LambdaLR, (optimizer, functools.partial(shutil.rmtree, kept))),
        "schedule of ours": Call(schedules.LambdaLR, (optimizer, ours)),
        "constructed": Call(schedules.StepLR, (optimizer, 1)),
        "log": Call(logging.FileHandler, (kept + "/f", "w")),
        "library": Call(ctypes.CDLL, ("libc.so.6",)),
        "partial": Call(functools.partial, (shutil.rmtree, kept)),
        "partial state": Call(functools.partial, (len,), (shutil.rmtree, (kept,), {}, None)),
        "getattr": Call(getattr, (Net, "forward")),
        "itemgetter": Call(operator.itemgetter, (0,)),
        "attrgetter": Call(operator.attrgetter, ("__class__",)),
        "methodcaller": Call(operator.methodcaller, ("rmdir",)),
        "map": Call(map, (ours, [1])),
        "sorted key": Call(functools.cmp_to_key, (ours,)),
        "factory": Call(collections.defaultdict, (ours,)),
        "our function": Call(ours, (1,)),
        "our class": Net(),
        "our class called": Call(Net, ()),
        "array of ours": Call(np.array, ([1],)),
        "loads": Call(pickle.loads, (with_call(os.system, ("true",)),)),
        "load": Call(np.load, (kept + "/f",)),
        "memmap": Call(np.memmap, (kept + "/f", "u1", "w+", 0, (3,))),
        "fromfile": Call(np.fromfile, (kept + "/f",)),
        "tofile": Call(np.ndarray.tofile, (np.ones(3), kept + "/f")),
        "our hub": Call(skimp.hub.set_dir, (kept,)),
        "our save": Call(skimp.save, (1, kept + "/f")),
        "our load": Call(skimp.load, (kept + "/f",)),
        "storage of a file": Call(skimp.UntypedStorage, (1 << 20,)),
        "module constructed": Call(skimp.nn.Linear, (3, 4)),
        "loader": Call(skimp.utils.data.DataLoader, ([1],)),
        "writer": Call(Path.write_text, (folder / "kept" / "f", "gone")),
        "unlink": Call(Path.unlink, (folder / "kept" / "f",)),
        "time zone": Call(datetime.datetime, (b"\x07\xe4\x01\x01\x00\x00\x00\x00\x00\x00", Net())),
    }


@pytest.mark.parametrize("weights_only", [None, False])
@pytest.mark.parametrize("what", list(attacks(Path())))
def test_attacks_run_nothing(what: str, weights_only: Any, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").write_text("here")
    file = io.BytesIO()
    skimp.save(attacks(tmp_path)[what], file)
    file.seek(0)
    with watched() as seen, pytest.raises(pickle.UnpicklingError) as refusal:
        skimp.load(file, weights_only=weights_only)
    assert seen == []
    assert len(str(refusal.value)) < 3000
    assert (tmp_path / "kept" / "f").read_text() == "here"


@pytest.mark.parametrize(
    "names_",
    ["numpy f2py.x", "numpy testing.x", "numpy __version__", "torch hub.load", "skimp hub.load",
     "torch._ops.shape.views view", "torch.hub load", "skimp hub", "os.path join", "sys modules",
     "builtins __dict__", "builtins __build_class__", "torch load", "torch.serialization load",
     "torch.nn os", "torch.nn.functional np", "torch.nn.modules.module sys", "antigravity fly",
     "torch.utils.data DataLoader", "torch.utils.cpp_extension load", "torch.jit script",
     "torch from_file", "torch.nn.functional triplet_margin_with_distance_loss", "copyreg "
     "_reconstructor", "copyreg __newobj__", "weakref ref", "types FunctionType", "types CodeType",
     "operator attrgetter", "functools reduce", "numpy.random._pickle __init__", "numpy load",
     "numpy.ctypeslib load_library", "collections namedtuple", "pathlib Path", "builtins type",
     "argparse ArgumentParser", "argparse FileType", "types ModuleType", "datetime sys"],
)  # fmt: skip
@pytest.mark.parametrize("end", [b".", b")R.", b")\x81.", b"}b."])
def test_names_that_are_not_listed_are_not_looked_up(names_: str, end: bytes) -> None:
    module, _, of = names_.partition(" ")
    with watched():
        before = set(sys.modules)
    for whole in (None, False):
        with watched() as seen, pytest.raises(pickle.UnpicklingError):
            skimp.load(archived(PROTO + name(module, of) + end), weights_only=whole)
        assert seen == []
    assert set(sys.modules) == before


ODD = {
    "deepcopy": NEW + b"}" + text("__deepcopy__") + name("builtins", "print") + b"sb.",
    "class": NEW + b"}" + text("__class__") + name("builtins", "print") + b"sb.",
    "reduce": NEW + b"}" + text("__reduce_ex__") + name("builtins", "print") + b"sb.",
    "tables": NEW + b"}(" + text("_parameters") + TENSOR + b"ub.",
    "bare with arguments": name("torch.nn.modules.activation", "ReLU") + b"(I01\nt\x81.",
    "state of a class": name("torch.nn.modules.activation", "ReLU") + b"}b.",
    "state of a function": name("torch.nn.functional", "relu") + b"}b.",
    "call of a function": call(name("torch.nn.functional", "relu"), TENSOR) + b".",
    "call of print": call(name("builtins", "print"), text("no")) + b".",
    "call of what a call gave": call(name("collections", "OrderedDict")) + b")R.",
    "call of a text": text("eval") + b")R.",
    "call of a bare instance": NEW + b")R.",
    "state of a number": b"K\x01}b.",
    "state of a date": call(name("datetime", "timedelta")) + b"}b.",
    "state of a dtype": name("torch", "float32") + b"}b.",
    "instance of a dtype": name("torch", "float32") + b")\x81.",
    "items of a module": NEW + b"K\x01K\x02s.",
    "list of a module": NEW + b"K\x01a.",
    "factory": call(name("collections", "defaultdict"), name("builtins", "print")) + b".",
    "getattr of a module": call(name("builtins", "getattr"), NEW, text("forward")) + b".",
    "getattr of a class": call(
        name("builtins", "getattr"), name("torch", "Tensor"), text("apply_")
    )
    + b".",
    "getattr of functions": call(
        name("builtins", "getattr"), name("torch._C", "_VariableFunctionsClass"), text("from_file")
    )
    + b".",
    "getattr dunder": call(
        name("builtins", "getattr"),
        name("torch._C", "_VariableFunctionsClass"),
        text("__subclasses__"),
    )
    + b".",
    "partial of print": call(name("functools", "partial"), name("builtins", "print")) + b".",
    "INST": b"(ibuiltins\nprint\n.",
    "OBJ": b"(" + name("builtins", "print") + b"o.",
    "EXT1": b"\x82\x01.",
    "EXT2": b"\x83\x01\x00.",
    "EXT4": b"\x84\x01\x00\x00\x00.",
    "PERSID": b"P0\n.",
    "DUP": b"K\x012\x86.",
    "NEXT_BUFFER": b"\x97.",
    "READONLY_BUFFER": b"K\x01\x98.",
    "NEWOBJ_EX": name("torch.nn.modules.activation", "ReLU") + b")}" + text("a") + b"K\x01s\x92.",
    "Mersenne Twister": call(
        name("numpy.random._pickle", "__bit_generator_ctor"),
        name("numpy.random._mt19937", "MT19937"),
    )
    + b"}(" + text("state") + b"}(" + text("pos") + b"J\xff\xff\xff\x7fuub.",
    "Generator": call(name("torch._C", "Generator")) + b"(K\x01N" + TENSOR + b"tb.",
    "a tensor's own attribute": call(
        name("torch._tensor", "_rebuild_from_type_v2"),
        name("torch._utils", "_rebuild_tensor_v2"),
        name("torch", "Tensor"),
        b")", b"}" + text("_storage") + b"Ns",
    )
    + b".",
    "return types": call(name("torch.return_types", "max"), b"K\x01", b"K\x02") + b".",
    "packed": name("torch.nn.utils.rnn", "PackedSequence") + b"(K\x01K\x02NNt\x81.",
    "handle": name("torch.utils.hooks", "RemovableHandle") + b")\x81(K\x01K\x02tb.",
    "optimizer": name("torch.optim.sgd", "SGD") + b")\x81}(" + text("param_groups") + b"K\x01ub.",
    "zone": call(name("datetime", "datetime"), b"C\x0a" + bytes(10), NEW) + b".",
    "path of a tensor": call(name("pathlib", "PosixPath"), TENSOR) + b".",
    "uuid": name("uuid", "UUID") + b")\x81}" + text("int") + b"Nsb.",
}  # fmt: skip


@pytest.mark.parametrize("weights_only", [None, False])
@pytest.mark.parametrize("what", ODD)
def test_listed_names_do_only_what_their_rows_say(what: str, weights_only: Any) -> None:
    with watched() as seen, pytest.raises(pickle.UnpicklingError):
        skimp.load(archived(PROTO + ODD[what]), weights_only=weights_only)
    assert seen == []


def test_what_a_file_puts_into_hooks_and_schedules_is_not_called_by_loading() -> None:
    """Listed functions may stand there; using the module then calls them, loading never does."""
    calls: list[str] = []
    row = TABLE["builtins.print"]
    layer = torch.nn.Linear(1, 1)
    layer.register_forward_hook(print)
    layer.register_load_state_dict_pre_hook(print)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    with pytest.MonkeyPatch.context() as patch:
        spied = listed.Listed(lambda *a, **k: calls.append("called"), row.call, row.fill, row.bare)
        patch.setitem(TABLE, "builtins.print", spied)
        found = skimp.load(file, weights_only=False)
        assert calls == []
        found(skimp.ones(1, 1))
        assert calls == ["called"]
