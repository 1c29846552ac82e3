"""The modules and switches that training scripts touch, and the names that are left out."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.benchmark  # an attribute only then

import skimp
from skimp._compat import modules, refusals, table
from skimp._compat.modules import Made
from skimp._kernels import onednn
from tests.support.samples import alike, seeded as both

MODULES = [
    "amp",
    "amp.autocast_mode",
    "amp.grad_scaler",
    "accelerator",
    "backends",
    "backends.cuda",
    "backends.cudnn",
    "backends.mkl",
    "backends.mkldnn",
    "backends.mps",
    "backends.openmp",
    "backends.opt_einsum",
    "compiler",
    "cpu",
    "cpu.amp",
    "cuda",
    "cuda.amp",
    "distributed",
    "distributed.nn",
    "distributed.nn.functional",
    "hub",
    "jit",
    "mps",
    "multiprocessing",
    "random",
    "serialization",
    "testing",
    "types",
    "utils.checkpoint",
    "utils.data",
    "utils.data.dataloader",
    "utils.data.dataset",
    "utils.data.distributed",
    "utils.data.sampler",
    "version",
    "xpu",
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, importing its own
@pytest.mark.parametrize("name", MODULES)
def test_modules_have_torchs_names(name: str) -> None:
    ours = importlib.import_module(f"skimp.{name}")
    theirs = importlib.import_module(f"torch.{name}")
    unknown = [n for n in getattr(ours, "__all__", ()) if not hasattr(theirs, n)]
    for n in [n for n in unknown if n != "safetensors"]:
        importlib.import_module(f"torch.{name}.{n}")


def test_compile_gives_the_function(capsys: pytest.CaptureFixture[str]) -> None:
    from skimp._compat import notices

    notices._said.clear()

    ran = []

    def f(x: skimp.Tensor) -> skimp.Tensor:
        ran.append(x)
        return x + 1

    assert skimp.compile(f) is f
    assert skimp.compile(mode="reduce-overhead")(f) is f
    assert skimp.compiler.disable(f) is f
    with pytest.raises(RuntimeError, match="Either mode or options"):
        skimp.compile(f, mode="default", options={})
    assert skimp.jit.script(f) is f
    assert ran == []
    one, lazy = skimp.ones(1), skimp.nn.LazyLinear(2)
    assert skimp.jit.trace(f, (one,)) is skimp.jit.trace(f, example_kwarg_inputs={"x": one}) is f
    assert [x is one for x in ran] == [True, True]  # once each, as tracing does
    assert skimp.jit.trace_module(lazy, {"forward": one}) is lazy
    assert lazy.weight.shape == (2, 1)
    assert skimp.jit.ignore(f) is skimp.jit.ignore()(f) is skimp.jit.unused(f) is f
    assert skimp.jit.script_method(f) is f
    assert not skimp.jit.is_scripting()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all(line.startswith("skimp: torch.") for line in said)


@pytest.mark.parametrize("name", ["backends.cudnn", "backends.mkldnn"])
def test_flags_are_kept(name: str) -> None:
    module = importlib.import_module(f"skimp.{name}")
    before = module.deterministic
    with module.flags(deterministic=not before):
        assert module.deterministic is not before
    assert module.deterministic is before
    assert module.is_available() == (name == "backends.mkldnn" and onednn.library() is not None)


def test_backends() -> None:
    skimp.backends.cuda.matmul.allow_tf32 = True
    assert skimp.backends.cuda.matmul.allow_tf32
    skimp.backends.cuda.matmul.allow_tf32 = False
    with skimp.backends.cuda.sdp_kernel(enable_flash=False):
        assert not skimp.backends.cuda.flash_sdp_enabled()
    assert skimp.backends.cuda.flash_sdp_enabled()
    assert not skimp.backends.mps.is_available()
    assert not skimp.backends.cuda.is_built()
    assert skimp.backends.cudnn.version() is None


def test_switches() -> None:
    def run(lib: Any, functional: Any) -> Any:
        seen = []
        for call in (
            lambda: lib.use_deterministic_algorithms(True, warn_only=True),
            lambda: lib.use_deterministic_algorithms(True),
            lambda: lib.set_deterministic_debug_mode("warn"),
            lambda: lib.set_deterministic_debug_mode(0),
            lambda: lib.set_float32_matmul_precision("high"),
            lambda: lib.set_float32_matmul_precision("highest"),
        ):
            call()
            seen.append(
                (
                    lib.are_deterministic_algorithms_enabled(),
                    lib.is_deterministic_algorithms_warn_only_enabled(),
                    lib.get_deterministic_debug_mode(),
                    lib.get_float32_matmul_precision(),
                    lib.is_warn_always_enabled(),
                )
            )
        return seen

    ours, theirs = both(run)
    assert ours == theirs
    with pytest.raises(RuntimeError):
        skimp.set_float32_matmul_precision("low")
    assert skimp.get_num_interop_threads() >= 1
    assert skimp.set_flush_denormal(True) is False


def test_the_version_is_compared_as_torchs() -> None:
    for v in (skimp.__version__, torch.__version__):
        assert v >= "2.0"
        assert v >= (2, 13)
        assert v < "2.100.1"
        assert v > "1.13.1"
        assert str(v).startswith("2.13.0")
        assert [int(n) for n in v.split(".")[:2]] == [2, 13]
    assert skimp.version.__version__ == skimp.__version__
    assert skimp.version.cuda is None


def test_places_that_are_not_there() -> None:
    for module in (skimp.mps, skimp.xpu, skimp.accelerator):
        assert not module.is_available()
    assert skimp.cpu.is_available()
    assert skimp.get_device_module("cpu") is skimp.cpu
    assert skimp.get_device_module("cuda") is skimp.cuda
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        skimp.ones(1).cuda()
    with pytest.raises(RuntimeError, match="downloads nothing"):
        skimp.hub.load("a", "b")
    with pytest.raises(RuntimeError, match="state_dict"):
        skimp.jit.load("x")


def test_what_this_was_built_with() -> None:
    assert "NumPy" in skimp.__config__.show()
    assert "get_num_threads" in skimp.__config__.parallel_info()


def test_a_script_that_touches_everything_at_import() -> None:
    script = """
import skimp._compat
skimp._compat.install()
import torch
import torch.backends.cudnn as cudnn
import torch.multiprocessing as mp
from torch.cuda.amp import GradScaler, autocast
from torch.library import Library, triton_op
from torch.nn.modules.utils import _ntuple, _reverse_repeat_tuple
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")
torch.use_deterministic_algorithms(True)
mp.set_sharing_strategy("file_system")
mps = torch.backends.mps.is_available()
device = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 0)
assert torch.__version__ != "parrots" and torch.__version__ < "parrots"
assert torch.distributed.is_available()
assert _ntuple(2, "_two").__name__ == "_two"
assert _reverse_repeat_tuple((1, 2), 3) == (2, 2, 2, 1, 1, 1)
print(device, torch.utils.data.DataLoader is DataLoader)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout == "cpu True\n"


def test_fork_waits() -> None:
    assert skimp.wait(skimp.fork(lambda a: a + 1, 2)) == 3


OWN = {("skimp", "array_api")}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, importing its own
@pytest.mark.parametrize("module", sorted(table.MODULES.keys() - {"skimp.utils.bottleneck"}))
def test_every_row_is_a_name_of_torchs_and_is_what_the_file_says(module: str) -> None:
    ours, theirs = importlib.import_module(module), importlib.import_module(table.theirs(module))
    for name, row in table.MODULES[module].rows.items():
        if row.verb == "module" and (module, name) not in OWN:
            importlib.import_module(f"{table.theirs(module)}.{name}")
        assert hasattr(theirs, name) or (module, name) in OWN, (module, name)
        if row.verb == "own" and not isinstance(ours, Made):
            continue  # added while skimp stands for torch: see test_compat
        found = getattr(ours, name)
        if row.verb not in ("own", "from"):
            assert refusals.is_refused(found) == (row.verb in ("refuse", "raise")), (module, name)
        if row.verb == "refuse":
            with pytest.raises(RuntimeError) as told:
                found()
            assert str(told.value) == f"{table.theirs(module)}.{name}: {row.what}"


def test_every_method_that_is_left_out_is_torchs_and_says_why() -> None:
    for name in table.METHODS:
        assert hasattr(torch.Tensor, name), name
        assert refusals.is_refused(getattr(skimp.Tensor, name)), name


def test_left_out_names_can_be_tested_against() -> None:
    assert not isinstance(skimp.ones(2), skimp.Stream)
    assert skimp.quint8 is skimp.quint8
    with pytest.raises(AttributeError, match="no attribute 'quint7'"):
        _ = skimp.quint7
    with pytest.raises(RuntimeError, match="quantised"):
        skimp.ones(2).q_scale()


def test_settings_that_change_nothing() -> None:
    for lib in (skimp, torch):
        lib.autograd.set_multithreading_enabled(True)
        with lib.backends.mkl.verbose(lib.backends.mkl.VERBOSE_OFF):
            assert lib.autograd.grad_mode is not None
        with pytest.warns(FutureWarning, match="nn.Container` is deprecated"):
            assert len(list(lib.nn.Container(a=lib.nn.ReLU()).children())) == 1
        with pytest.warns(UserWarning, match="Gradients will be None"):
            lib.utils.checkpoint.check_backward_validity([lib.ones(2)])


ANSWERS = """
T.is_vulkan_available()
T.has_lapack
T.has_mkl
T.compiled_with_cxx11_abi()
T.init_num_threads()
T.thread_safe_generator()
T.compiler.get_default_backend()
T.cuda.has_half
T.cuda.has_magma
T.fft.Tensor is T.Tensor
T.nn.attention.WARN_FOR_UNFUSED_KERNELS
T.nn.functional.has_torch_function((1,))
issubclass(T.AcceleratorError, RuntimeError)
issubclass(T.distributed.DistBackendError, RuntimeError)
T.distributed.get_node_local_rank(3)
T.distributed.get_debug_level().name
T.serialization.get_crc32_options()
T.serialization.get_default_mmap_options()
T.profiler.DeviceType.PrivateUse1.value
T.profiler.DeviceType.Meta.value
[p.name for p in T.utils.checkpoint.CheckpointPolicy]
T.utils.checkpoint.get_device_states(T.ones(2))
T.utils.checkpoint.detach_variable((T.ones(2, requires_grad=True), 3))
T.utils.benchmark.ordered_unique([3, 1, 3])
T.nn.factory_kwargs({"device": 1, "factory_kwargs": {"dtype": 2}})
T.nn.factory_kwargs(None)
T.nn.functional.assert_int_or_pair((1, 2), "x", "{}")
T._C._nn._parse_to("cpu", T.float64, True, memory_format=T.channels_last)
T._C._nn._parse_to(T.ones(2, dtype=T.float16), non_blocking=True)
T._C._nn._parse_to(T.float64)
""".strip().splitlines()


ANSWERS_REFUSED = [
    (TypeError, 'T.nn.factory_kwargs({"foo": 1})'),
    (TypeError, 'T.nn.factory_kwargs({"device": 1, "factory_kwargs": {"device": 2}})'),
    (TypeError, "T.serialization.set_default_load_endianness(3)"),
    (AssertionError, 'T.nn.functional.assert_int_or_pair([1, 2, 3], "x", "{}")'),
    (RuntimeError, "T.distributed.get_node_local_rank()"),
    (RuntimeError, "T.utils.checkpoint.detach_variable([T.ones(2)])"),
    (ValueError, "T.serialization.set_default_mmap_options(77)"),
    *[
        (RuntimeError, f"T.{name}(T.ones(1, 1), T.ones(1, 1))")
        for name in ("eig", "lstsq", "matrix_rank", "solve")
    ],
    (RuntimeError, "T.symeig(T.ones(1, 1))"),
    (RuntimeError, 'T._C._nn._parse_to("cpu", T.float64, False, True)'),
]


@pytest.mark.parametrize("text", ANSWERS)
def test_answers(text: str) -> None:
    alike(lambda lib: eval(text, {"T": lib}))


@pytest.mark.parametrize(("error", "text"), ANSWERS_REFUSED)
def test_answers_refused(error: type[Exception], text: str) -> None:
    alike(lambda lib: eval(text, {"T": lib}), refused=error)


# of torch.distributed: what starts processes again, of other services, and logs that nobody reads
ABSENT = re.compile(
    r"elastic\.(control_plane|agent\.server\.health|events\.handlers|multiprocessing\.subprocess)"
    r"|elastic\.(rendezvous\.etcd|timer\.debug|utils\.(data\.|log_level|process_state))"
    r"|(flight_recorder\.components|logg|checkpoint\.(logg|resharding)|nn\.jit|rpc\.(rref|server))"
)


def has_module(name: str) -> bool:
    """Whether skimp has a module of PyTorch's, by code or by rows."""
    whole = name.replace("torch", "skimp", 1)
    return whole in table.MODULES or modules.has_file(whole)


def test_every_public_module_of_distributed_can_be_imported_or_is_listed() -> None:
    folder = Path(torch.distributed.__path__[0])
    missing = []
    for place in sorted(folder.rglob("*.py")):
        words = [*place.relative_to(folder).with_suffix("").parts]
        name = ".".join(words[:-1] if words[-1] == "__init__" else words)
        if re.search(r"(^|\.)_", name) or has_module(f"torch.distributed.{name}".rstrip(".")):
            assert not ABSENT.match(name), f"{name} is there"
        elif not ABSENT.match(name):
            missing.append(name)
    assert not missing


WALK = """
import types
import torch
def walk(module, path):
    for name, value in sorted(vars(module).items()):
        inner = f"{path}.{name}"
        if isinstance(value, types.ModuleType) and value.__name__ == inner:
            yield inner
            yield from walk(value, inner)
print(*walk(torch, "torch"))
"""


def test_modules_below_are_attributes_where_they_are_in_torch() -> None:
    """Programs write `torch.distributed.device_mesh` without importing it."""
    theirs = subprocess.run(
        [sys.executable, "-c", WALK], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "torch.distributed.device_mesh" in theirs
    public = [n for n in theirs if not re.search(r"\._", n)]
    ours = [n for n in public if has_module(n)]
    assert len(ours) > 150
    for name in ours:
        found: Any = skimp
        for part in name.split(".")[1:]:
            found = getattr(found, part)
