"""The name `torch`: what it resolves to, in this process and in those that it starts."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import skimp as torch
from skimp._compat import missing
from skimp._compat.homes import HOMES
from skimp._compat.table import ours
from tests.support.running import skimp, start, write
from tests.support.warm import WITH_PYTORCH, WITH_SKIMP, Done

pytestmark = pytest.mark.skipif(
    os.environ.get("SKIMP_DEFER", "auto") != "auto",
    reason="nothing here depends on what is deferred, and starting processes takes its time",
)


def python(code: str, folder: Path, run: Callable[[list[str], Path], Done] = start) -> str:
    """Run a program of its own (this process may hold the real torch) and return what it prints."""
    done = run([sys.executable, write(folder, code, "program.py")], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_skimp(code: str, folder: Path) -> str:
    """A program that may find skimp imported."""
    return python(code, folder, WITH_SKIMP.run)


def on_both(code: str, folder: Path) -> tuple[str, str]:
    """What a program of `torch` prints with skimp under the name, and with PyTorch."""
    here = on_skimp("import skimp._compat\nskimp.compat.install()\n" + dedent(code), folder)
    return here, python(code, folder, WITH_PYTORCH.run)


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("torch", "skimp"),
        ("torch.nn.functional", "skimp.nn.functional"),
        ("torchvision", "torchvision"),
    ],
)
def test_modules_below_torch_have_their_twin_below_skimp(name: str, real: str) -> None:
    assert ours(name) == real


def test_a_missing_name_is_told_with_the_nearest() -> None:
    error = missing("skimp.nn", "Liner", ["Linear", "LayerNorm", "_Linter"])
    assert isinstance(error, AttributeError)
    assert str(error) == "module 'skimp.nn' has no attribute 'Liner'; the nearest is 'Linear'"
    assert error.name == "Liner"


def test_nothing_near_is_said_of_a_name_like_no_other() -> None:
    assert str(missing("skimp", "qqq", ["add", "mul"])) == "module 'skimp' has no attribute 'qqq'"


# -- install and uninstall ------------------------------------------------------------------------


def test_torch_and_its_submodules_are_the_modules_of_skimp(tmp_path: Path) -> None:
    printed = on_skimp(
        """
        import skimp, skimp._compat
        skimp._compat.install()
        skimp._compat.install()  # once is enough, twice does no harm
        import torch
        import torch.nn as nn
        from torch import nn as again
        print(torch is skimp, nn is skimp.nn, again is nn)
        print(skimp.__spec__.name, nn.__spec__.name, nn.__name__)
        """,
        tmp_path,
    )
    assert printed == "True True True\nskimp skimp.nn torch.nn\n"


def test_a_missing_module_is_told_with_the_nearest(tmp_path: Path) -> None:
    printed = on_skimp(
        """
        import skimp._compat
        skimp._compat.install()
        for name in ("torch.optin", "torch.nn.no_such_module.deeper"):
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                print(error.name, "|", error)
        """,
        tmp_path,
    )
    assert printed == (
        "torch.optin | No module named 'torch.optin' in skimp; the nearest is 'optim'\n"
        "torch.nn.no_such_module | No module named 'torch.nn.no_such_module' in skimp\n"
    )


def test_uninstall_leaves_nothing(tmp_path: Path) -> None:
    printed = python(
        """
        import pathlib, sys, types
        import skimp, skimp._compat
        before = list(sys.path), list(sys.meta_path)
        skimp._compat.install()
        import torch.nn, functorch.experimental
        sys.modules["other"] = types.ModuleType("other")  # of which nothing is asked
        sys.modules["other"].__file__ = pathlib.Path("other.py")
        skimp._compat.uninstall()
        names = "torch", "functorch"
        print([name for name in sys.modules if name.split(".")[0] in names])
        print(before == (sys.path, sys.meta_path))
        skimp._compat.uninstall()
        skimp._compat.install()
        import torch
        print(torch is skimp)
        """,
        tmp_path,
    )
    assert printed == "[]\nTrue\nTrue\n"


def test_a_real_torch_that_is_there_already_is_not_replaced(tmp_path: Path) -> None:
    printed = on_skimp(
        """
        import sys, types
        sys.modules["torch"] = real = types.ModuleType("torch")
        real.__file__ = "/site-packages/torch/__init__.py"
        import skimp._compat
        try:
            skimp._compat.install()
        except RuntimeError as error:
            print(error)
        print(sys.modules["torch"] is real)
        """,
        tmp_path,
    )
    assert "torch is already imported (/site-packages/torch/__init__.py)" in printed
    assert printed.endswith("True\n")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_that_a_program_starts_have_it_too(tmp_path: Path, method: str) -> None:
    printed = python(
        f"""
        import skimp._compat
        skimp._compat.install()
        import multiprocessing
        import torch

        def work(number):
            import torch.nn
            return number, torch.__spec__.name, torch.nn.__spec__.name

        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print(pool.apply_async(work, [7]).get(60))
        """,
        tmp_path,
    )
    assert printed == "(7, 'skimp', 'skimp.nn')\n"


def test_a_process_started_afresh_finds_torch_without_being_told(tmp_path: Path) -> None:
    """Under `skimp run` no line of the script installs anything, so no child does by itself."""
    (tmp_path / "work.py").write_text("import torch\n\ndef name(): return torch.__spec__.name\n")
    printed = python(
        """
        import multiprocessing

        if __name__ == "__main__":
            import skimp._compat
            skimp._compat.install()
            import work
            for method in ("spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.apply(work.name))
        """,
        tmp_path,
    )
    assert printed == "skimp\nskimp\n"


# -- homes ----------------------------------------------------------------------------------------

_DESCRIBE = """
    import importlib, json, sys, warnings
    warnings.simplefilter("ignore")
    import torch
    import torch.utils.tensorboard
    found = {}
    for home, names in json.load(open("homes.json")).items():
        module = importlib.import_module(f"torch.{home}".rstrip("."))
        for name in names:
            value = getattr(module, name)
            cls = isinstance(value, type) and value.__module__.startswith("torch")
            found[f"{home}.{name}"] = [value.__module__, value.__qualname__] if cls else None
    print(json.dumps(found))
"""
# Classes of PyTorch's that are functions or refused here, or the other way round.
_OF_ANOTHER_KIND = (
    "cuda.streams.ExternalStream",
    "_C.Size",
    "_C._TensorMeta",
    "_C.device",
    "_C.dtype",
)


def test_pytorchs_modules_have_their_names_and_classes_say_that_they_are_from_them(
    tmp_path: Path,
) -> None:
    wanted = {home: list(names) for home, names in HOMES.items()}
    (tmp_path / "homes.json").write_text(json.dumps(wanted))
    here, there = map(json.loads, on_both(_DESCRIBE, tmp_path))
    # imported when they are named
    late = ("profiler.", "quasirandom.", "utils.tensorboard.", "_functorch.make_functional.")
    later = {name for name in here if name.startswith(late)}
    assert here.keys() == there.keys()
    for name in here.keys() - later - set(_OF_ANOTHER_KIND):
        assert here[name] == there[name], name


def test_a_home_hides_no_module_of_ours(tmp_path: Path) -> None:
    printed = python(
        """
        import importlib.util, sys
        import skimp, skimp.distributions, skimp.multiprocessing.spawning, skimp.serialization
        import skimp.utils.data
        from skimp._compat.homes import HOMES
        for home in HOMES:
            name = f"skimp.{home}".rstrip(".")
            if name not in sys.modules and importlib.util.find_spec(name.rpartition(".")[0]):
                try:
                    print(name if importlib.util.find_spec(name) else "", end="")
                except ModuleNotFoundError:
                    pass  # below a file
        """,
        tmp_path,
    )
    assert printed == ""


def test_a_whole_module_saved_under_the_name_torch_is_read_by_pytorch(tmp_path: Path) -> None:
    code = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        cell, shuffle, norm = nn.LSTMCell(4, 2), nn.PixelShuffle(2), nn.InstanceNorm2d(3)
        torch.save((nn.Sequential(nn.Flatten(), cell, shuffle, norm), torch.optim.AdamW), "net.pt")
    """
    on_skimp("import skimp._compat\nskimp.compat.install()\n" + dedent(code), tmp_path)
    read = 'import torch\nprint(torch.load("net.pt", weights_only=False))'
    printed = python(read, tmp_path, WITH_PYTORCH.run)
    assert printed == (
        "(Sequential(\n  (0): Flatten(start_dim=1, end_dim=-1)\n  (1): LSTMCell(4, 2)\n"
        "  (2): PixelShuffle(upscale_factor=2)\n  (3): InstanceNorm2d(3, eps=1e-05, momentum=0.1, "
        "affine=False, bias=False, track_running_stats=False)\n), "
        "<class 'torch.optim.adamw.AdamW'>)\n"
    )


def test_what_libraries_use_of_pytorchs_own_modules(tmp_path: Path) -> None:
    code = """
        import torch
        from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype
        x = [torch.ones(1), torch.ones(2, dtype=torch.float64), torch.ones(3)]
        for lists, places in (([x, [None] * 3], True), ([x], False)):
            groups = _group_tensors_by_device_and_dtype(lists, places)
            print(sorted((str(k), str(v)) for k, v in groups.items()))
        from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present as strip
        outer = torch.nn.Module()
        outer.module = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
        outer.other = torch.nn.BatchNorm1d(1)
        state = outer.state_dict()
        strip(state, "module.")
        print(list(state), state._metadata["1"])
        try:
            torch.ops.load_library("/nothing/there.so")
        except OSError as error:
            print("OSError")
        from torch.hub import HASH_REGEX, download_url_to_file, urlparse
        print(HASH_REGEX.search("net-abc0.pth").group(1), urlparse("http://a/b").path)
        print(torch.torch is torch, issubclass(torch.futures.Future, torch.Future))
        import sys
        for n in (1000, 3000):
            x = torch.zeros(n)
            held, empty = x.untyped_storage(), torch.zeros(0).untyped_storage()
            print((sys.getsizeof(held) - sys.getsizeof(empty)) // 4, sys.getsizeof(held))
            print(sys.getsizeof(x.storage()))
        print(torch.fx.wrap(len) is len, torch.futures.Future[int] is not None)

        @torch.jit._overload_method
        def forward(self): ...
        for f, args in ((torch._assert, (torch.tensor(False), "no")), (torch._assert, (1, "no")),
                        (torch._check, (True,)), (torch._check, (False, lambda: "no")),
                        (torch._check, (1,)), (torch._check, (False, "no")),
                        (torch._check_value, (False, lambda: 3)),
                        (torch._check_index, (False, lambda: 3)),
                        (torch._check_type, (False, lambda: 3)),
                        (torch._assert_async, (torch.tensor(0),)),
                        (torch._assert_async, (torch.tensor(0), "no"))):
            try:
                print(f(*args))
            except Exception as error:
                print(type(error).__name__, error)
    """
    here, there = on_both(code, tmp_path)
    assert here == there


def test_functorch_by_its_own_name(tmp_path: Path) -> None:
    """PyTorch brings a package of this name beside `torch`, which older programs import."""
    ours, theirs = on_both(
        """
        import warnings
        import torch
        import functorch
        from functorch import FunctionalModule, make_functional, vmap, jacrev, make_fx
        from functorch.experimental import replace_all_batch_norm_modules_
        warnings.simplefilter("ignore")
        f, weights = make_functional(torch.nn.Linear(2, 1))
        print(isinstance(f, FunctionalModule), len(weights))
        print(functorch.__version__ == torch.__version__)
        print(vmap(torch.sin)(torch.zeros(3)).tolist(), jacrev(torch.exp)(torch.zeros(2)).tolist())
        """,
        tmp_path,
    )
    assert ours == theirs


def test_annotations_of_a_programs_modules(tmp_path: Path) -> None:
    printed = on_skimp(
        """
        import skimp._compat
        skimp._compat.install()
        import typing
        from torch import nn, optim

        class Mine(nn.Linear):
            config: "int"

        print(typing.get_type_hints(Mine)["config"], typing.get_type_hints(nn.Module)["training"])
        print(typing.get_type_hints(optim.Adam) is not None)
        import torch.nn.modules.module as module
        print(module.Module is nn.Module)
        """,
        tmp_path,
    )
    assert printed.splitlines() == ["<class 'int'> <class 'bool'>", "True", "True"]


def test_names_that_trainers_ask_for(tmp_path: Path) -> None:
    code = """
        import torch
        from torch._C import _TensorMeta
        from torch._dynamo import OptimizedModule
        net = torch.nn.Linear(1, 1)
        print(isinstance(net, torch._dynamo.eval_frame.OptimizedModule))
        print(isinstance(torch.Tensor, _TensorMeta))
        print(isinstance(torch.futures.Future(), torch.Future))
        from torch.distributed._tensor.experimental import implicit_replication
        from torch.utils.data.dataloader import _collate_fn_t, _worker_init_fn_t
        print(issubclass(torch.jit.TracerWarning, Warning))
        print(torch._VF.relu(-torch.ones(1)).tolist(),)
        from torch._ops import HigherOrderOperator, OpOverload, ops
        print(ops is torch.ops, isinstance(ops.aten.add.Tensor, OpOverload), OpOverload.__module__)
    """
    here, there = on_both(code, tmp_path)
    said = "False\nTrue\nTrue\nTrue\n[0.0]\nTrue True torch._ops\n"
    assert here == there == said


def test_every_public_name_of_pytorchs_own_module_can_be_imported(tmp_path: Path) -> None:
    import torch

    public = [n for n in dir(torch._C) if not n.startswith("_") and n != "StorageBase"]
    code = f"""
        from torch._C import {", ".join(public)}
        import torch
        print(default_generator is torch.default_generator, isinstance(3, Value))
        Value()
    """
    done = skimp("run", "--quiet", write(tmp_path, code), cwd=tmp_path)
    assert done.stdout == "True False\n"
    assert "torch._C.Value: skimp has no TorchScript" in done.stderr


def test_modules_say_that_they_are_pytorchs(tmp_path: Path) -> None:
    printed = on_skimp(
        """
        import skimp._compat
        skimp._compat.install()
        import torch, torch.nn.functional as F, torch.distributions
        print(torch.__name__, F.__name__, torch.distributions.__name__)
        skimp._compat.uninstall()
        print(torch.__name__, F.__name__)
        """,
        tmp_path,
    )
    assert printed.splitlines() == [
        "torch torch.nn.functional torch.distributions",
        "skimp skimp.nn.functional",
    ]


def test_what_programs_send_and_store_under_the_name_torch(tmp_path: Path) -> None:
    """Pickle finds dtypes and classes by the modules that they say they are from."""
    script = tmp_path / "program.py"
    script.write_text(
        dedent(
            """
            import pickle
            from multiprocessing.reduction import ForkingPickler
            import torch

            for x in (
                torch.float32, torch.bfloat16, torch.device("cpu"), torch.Size([1]), torch.strided,
                torch.channels_last, torch.randn(2, 2), torch.nn.Parameter(torch.randn(3)),
                torch.nn.Linear(1, 1), torch.optim.lr_scheduler.StepLR, torch.nn.LSTM,
            ):
                for dumps in (pickle.dumps, ForkingPickler.dumps):
                    assert type(pickle.loads(dumps(x))) is type(x), x
            print(torch.dtype.__module__, torch.device.__module__, torch.Size.__module__)
            """
        )
    )
    done = skimp("run", "--quiet", str(script), cwd=tmp_path)
    assert done.stdout == "torch torch torch\n", done.stderr


def test_machines_that_ask_for_a_modules_names_are_told_at_once() -> None:
    """`inspect.stack` asks every module for its __file__: no search for names that are near."""
    from skimp._compat.missing import missing

    class Names(list[str]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("looked at")

    with pytest.raises(AssertionError, match="looked at"):
        str(missing("skimp.onnx", "exports", Names()))
    told = str(missing("skimp.onnx", "__file__", Names()))
    assert told == "module 'skimp.onnx' has no attribute '__file__'"


def test_an_error_that_nobody_reads_looks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hasattr` made each of these sentences, for some milliseconds."""
    sought: list[str] = []
    module = sys.modules["skimp._compat.missing"]
    monkeypatch.setattr(module, "nearest", lambda name, _: sought.append(name) or "!")
    assert not hasattr(torch, "zeroes")
    assert not sought
    with pytest.raises(AttributeError, match="no attribute 'zeroes'!") as caught:
        torch.zeroes(3)
    assert set(sought) == {"zeroes"}
    read = pickle.loads(pickle.dumps(caught.value))
    assert str(read).endswith("has no attribute 'zeroes'!")


def test_what_is_loaded_later_says_pytorchs_names(tmp_path: Path) -> None:
    printed = python(
        """
        import skimp._compat
        skimp.compat.install()
        import pickle, sys
        import torch
        late = ("distributions", "serialization", "testing", "multiprocessing.spawning")
        assert not [name for name in late if f"skimp.{name}" in sys.modules]
        words = [torch.distributions.Normal(0.0, 1.0), torch.distributions.constraints.positive]
        words += [torch.multiprocessing.ProcessRaisedException, torch.save]
        print(*[getattr(w, "__module__", None) for w in words])
        print(torch.serialization.__name__, torch.distributions.__name__, torch.testing.__name__)
        print("load" in dir(torch), "spawn" in dir(torch.multiprocessing))
        print(b"torch._utils" in pickle.dumps(torch.ones(2)))
        """,
        tmp_path,
    )
    assert printed == (
        "torch.distributions.normal torch.distributions.constraints torch.multiprocessing.spawn "
        "skimp.serialization.saving\n"
        "torch.serialization torch.distributions torch.testing\nTrue True\nTrue\n"
    )


def test_an_import_loads_no_module_that_training_does_not_need(tmp_path: Path) -> None:
    """Each is half a MiB or more, with what it loads itself."""
    printed = python(
        """
        import sys
        import numpy
        before = set(sys.modules)
        import skimp
        late = "argparse concurrent decimal difflib html json logging pathlib pickletools"
        late += " safetensors subprocess sysconfig tempfile traceback uuid zipfile"
        print(*[name for name in late.split() if name in sys.modules and name not in before])
        """,
        tmp_path,
    )
    assert printed == "\n"
