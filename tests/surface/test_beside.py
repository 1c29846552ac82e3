"""What programs import beside the mathematics: accepted, answered as PyTorch does, or refused."""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.attention
import torch.utils.benchmark
import torch.utils.collect_env as collect_env
import torch.utils.model_zoo

import skimp

REFUSING = [
    "ao.quantization",
    "export",
    "fx",
    "monitor",
    "onnx",
    "package",
    "quantization",
    "utils.bottleneck",
    "utils.cpp_extension",
    "utils.mobile_optimizer",
]


@pytest.mark.parametrize("name", REFUSING)
def test_refused_names_can_be_imported_and_say_so_when_used(name: str) -> None:
    module = importlib.import_module(f"skimp.{name}")
    for word in module.__all__:
        found = getattr(module, word)
        if isinstance(found, type):
            with pytest.raises(RuntimeError, match=rf"^torch\.{name}\.{word}: "):
                found()
            assert not isinstance(3, found)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = module.no_such_name


@pytest.mark.parametrize("name", [n for n in REFUSING if n != "utils.bottleneck"])
def test_refused_names_are_pytorchs(name: str) -> None:
    ours = importlib.import_module(f"skimp.{name}")
    theirs = importlib.import_module(f"torch.{name}")
    assert [word for word in ours.__all__ if not hasattr(theirs, word)] == []


def test_a_class_may_derive_from_a_refused_one() -> None:
    class Mine(skimp.fx.Tracer):  # type: ignore[misc]
        def is_leaf_module(self) -> bool:
            return True

    assert Mine.is_leaf_module
    with pytest.raises(RuntimeError, match=r"torch\.fx\.Tracer: skimp traces no programs"):
        Mine()
    with pytest.raises(AttributeError, match="traces no programs"):
        _ = Mine.trace


MODULES = [
    "_dynamo.config", "_inductor.config", "accelerator", "amp", "autograd.functional",
    "autograd.graph", "backends.cpu", "backends.cuda", "backends.cudnn", "backends.mha",
    "backends.mkl", "backends.mkldnn", "backends.mps", "backends.nnpack", "backends.openmp",
    "backends.opt_einsum", "backends.quantized", "compiler", "cpu", "cuda.amp", "cuda.memory",
    "cuda.nvtx", "cuda.random", "distributed", "fft", "func", "futures", "hub", "jit", "linalg",
    "mps", "mtia", "multiprocessing", "nn.attention", "nn.init", "nn.parallel", "nn.utils.rnn",
    "optim.lr_scheduler", "overrides", "random", "return_types", "special", "testing", "types",
    "utils.benchmark", "utils.checkpoint", "utils.collect_env", "utils.data",
    "utils.deterministic", "utils.dlpack", "utils.hooks", "utils.model_zoo", "utils._pytree",
    "version", "xpu",
]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_their_names(name: str) -> None:
    module = importlib.import_module(f"skimp.{name}")
    for word in getattr(module, "__all__", ()):
        getattr(module, word)
    found: Any = skimp
    for part in name.split("."):
        found = getattr(found, part)
    assert found is module


def outcome(f: Callable[[Any], Any], lib: Any) -> tuple[str, str]:
    """What a call gives: its value, or the kind of error and its first sentence."""
    try:
        return "value", repr(f(lib))
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        return type(error).__name__, str(error).split(":")[0].split(". (")[0].rstrip(".")


SAME: dict[str, Callable[[Any], Any]] = {
    "cuda.init": lambda t: t.cuda.init(),
    "cuda.get_device_name": lambda t: t.cuda.get_device_name(0),
    "cuda.get_device_properties": lambda t: t.cuda.get_device_properties(0),
    "cuda.get_device_capability": lambda t: t.cuda.get_device_capability(),
    "cuda.get_rng_state": lambda t: t.cuda.get_rng_state(),
    "cuda.get_rng_state_all": lambda t: t.cuda.get_rng_state_all(),
    "cuda.set_rng_state_all": lambda t: t.cuda.set_rng_state_all([]),
    "cuda.initial_seed": lambda t: t.cuda.initial_seed(),
    "cuda.seed": lambda t: t.cuda.seed(),
    "cuda.manual_seed": lambda t: t.cuda.manual_seed_all(3),
    "cuda.bf16": lambda t: t.cuda.is_bf16_supported(),
    "cuda.archs": lambda t: t.cuda.get_arch_list(),
    "cuda.nvtx": lambda t: t.cuda.nvtx.range_push("a"),
    "cuda.current_device": lambda t: t.cuda.current_device(),
    "cuda.is_initialized": lambda t: t.cuda.is_initialized(),
    "mps": lambda t: t.mps.is_available() if hasattr(t.mps, "is_available") else False,
    "xpu": lambda t: (t.xpu.is_available(), t.xpu.device_count(), t.xpu.is_initialized()),
    "xpu.init": lambda t: t.xpu.init(),
    "accelerator": lambda t: (t.accelerator.is_available(), t.accelerator.current_accelerator()),
    "accelerator.memory": lambda t: t.accelerator.memory_allocated(),
    "distributed": lambda t: t.distributed.is_initialized(),
    "distributed.rank": lambda t: t.distributed.get_rank(),
    "distributed.world": lambda t: t.distributed.get_world_size(),
    "distributed.barrier": lambda t: t.distributed.barrier(),
    "mkldnn flags": lambda t: [t.backends.mkldnn.enabled for _ in [0]],
    "cudnn flags": lambda t: (t.backends.cudnn.benchmark, t.backends.cudnn.deterministic),
    "cuda flags": lambda t: (t.backends.cuda.is_built(), t.backends.cuda.matmul.allow_tf32),
    "cuda sdp": lambda t: (t.backends.cuda.flash_sdp_enabled(), t.backends.cuda.math_sdp_enabled()),
    "mha": lambda t: t.backends.mha.get_fastpath_enabled(),
    "opt_einsum": lambda t: t.backends.cusparselt.is_available(),
    "has_torch_function": lambda t: t.overrides.has_torch_function((t.ones(1), 3)),
    "is_tensor_like": lambda t: [t.overrides.is_tensor_like(x) for x in (t.ones(1), 3)],
    "annotate": lambda t: t.jit.annotate(int, 3),
    "fork": lambda t: t.jit.wait(t.jit.fork(lambda a, b: a + b, 1, b=2)),
    "is_scripting": lambda t: (t.jit.is_scripting(), t.jit.is_tracing()),
    "is_compiling": lambda t: t.compiler.is_compiling(),
    "threads": lambda t: t.get_num_interop_threads() > 0,
    "return_types": lambda t: isinstance(t.ones(2).max(0), t.return_types.max),
    "swap": lambda t: _swapped(t),
    "sdpa": lambda t: _attended(t),
    "sdpa of strings": lambda t: t.nn.attention.sdpa_kernel("math").__enter__(),
    "DataParallel": lambda t: _parallel(t),
    "future": lambda t: _future(t),
    "default tensor type": lambda t: _default_type(t),
    "default dtype": lambda t: _default_dtype(t),
    "default device": lambda t: _default_device(t),
}


_NO_CUDA = ["init", "get_device_name", "get_device_properties", "get_device_capability"]
_NO_CUDA += ["get_rng_state", "initial_seed", "current_device"]
REFUSED = {
    **dict.fromkeys(("cuda.nvtx", "accelerator.memory"), "RuntimeError"),
    **dict.fromkeys(("distributed.rank", "distributed.world", "distributed.barrier"), "ValueError"),
    **dict.fromkeys(("xpu.init", "sdpa of strings"), "AssertionError"),
    **dict.fromkeys([f"cuda.{name}" for name in _NO_CUDA], "AssertionError"),
}


def _swapped(t: Any) -> Any:
    a, b = t.ones(2), t.nn.Parameter(t.zeros(3))
    t.utils.swap_tensors(a, b)
    return a, b


def _attended(t: Any) -> Any:
    t.manual_seed(0)
    q = t.rand(1, 2, 3, 4)
    kinds = [t.nn.attention.SDPBackend.MATH, t.nn.attention.SDPBackend.FLASH_ATTENTION]
    with t.nn.attention.sdpa_kernel(kinds):
        return t.nn.functional.scaled_dot_product_attention(q, q, q).sum() > 0


def _parallel(t: Any) -> Any:
    t.manual_seed(0)
    net = t.nn.DataParallel(t.nn.Linear(2, 1))
    return list(net.state_dict()), net.device_ids, net(t.ones(3, 2)), net.module


def _future(t: Any) -> Any:
    f = t.futures.Future()
    then = f.then(lambda done: done.wait() + 1)
    f.set_result(3)
    everything = t.futures.collect_all([f, then]).wait()
    return f.done(), then.wait(), [x.value() for x in everything], t.futures.wait_all([f, then])


def _default_type(t: Any) -> Any:
    t.set_default_tensor_type(t.DoubleTensor)
    try:
        return t.zeros(2).dtype, t.tensor([1.5])
    finally:
        t.set_default_tensor_type("torch.FloatTensor")


def _default_dtype(t: Any) -> Any:
    t.set_default_dtype(t.float64)
    try:
        return t.get_default_dtype(), t.tensor([1.5]), t.nn.Linear(1, 1).weight.dtype
    finally:
        t.set_default_dtype(t.float32)


def _default_device(t: Any) -> Any:
    t.set_default_device("cpu")
    try:
        with t.device("cpu"):
            return t.zeros(2).device, t.get_default_device()
    finally:
        t.set_default_device(None)


@pytest.mark.filterwarnings("ignore:.*set_default_tensor_type.*:UserWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.(fork|wait).*:DeprecationWarning")
@pytest.mark.parametrize("name", SAME)
def test_answers_are_pytorchs(name: str) -> None:
    want, got = outcome(SAME[name], torch), outcome(SAME[name], skimp)
    assert want[0] == REFUSED.get(name, "value")
    assert got[0] == want[0]
    assert got[1].startswith(want[1]) or want[0] == "value"
    if want[0] == "value":
        assert got[1] == want[1]


def test_flags_can_be_set_and_read() -> None:
    before = skimp.backends.cudnn.benchmark
    with skimp.backends.cudnn.flags(benchmark=True):
        assert skimp.backends.cudnn.benchmark is True
    assert skimp.backends.cudnn.benchmark is before
    skimp.backends.cuda.matmul.allow_tf32 = True
    assert skimp.backends.cuda.matmul.allow_tf32 is True
    skimp.backends.cuda.matmul.allow_tf32 = False
    skimp._dynamo.config.suppress_errors = True
    assert skimp._dynamo.config.suppress_errors
    skimp._dynamo.config.suppress_errors = False


def test_events_measure_the_hosts_time() -> None:
    start, end = (skimp.cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    total = skimp.rand(300, 300).exp().sum()
    assert isinstance(skimp.cuda.stream(None), skimp.cuda.StreamContext)
    with skimp.cuda.stream(skimp.cuda.current_stream()), skimp.cuda.device(0):
        end.record()
    skimp.cuda.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000
    assert total > 0


# -- files from the net ---------------------------------------------------------------------------


def test_state_dicts_come_from_the_folder_and_never_from_the_net(tmp_path: Path) -> None:
    url = "https://example.org/models/net-1234.pth"
    with pytest.raises(RuntimeError, match=rf"downloads nothing; fetch {url} and put it at"):
        skimp.hub.load_state_dict_from_url(url, model_dir=str(tmp_path))
    skimp.save({"w": skimp.arange(3)}, tmp_path / "net-1234.pth")
    found = skimp.utils.model_zoo.load_url(url, str(tmp_path))
    assert found["w"].tolist() == [0, 1, 2]
    before = skimp.hub.get_dir()
    skimp.hub.set_dir(tmp_path / "hub")
    assert skimp.hub.get_dir() == str(tmp_path / "hub")
    skimp.hub.set_dir(before)
    for f in (skimp.hub.load, skimp.hub.list, skimp.hub.download_url_to_file):
        with pytest.raises(RuntimeError, match="downloads nothing and runs no downloaded code"):
            f("pytorch/vision", "resnet18")


def test_the_hubs_folder_is_pytorchs() -> None:
    assert skimp.hub.get_dir() == torch.hub.get_dir()


# -- the environment ------------------------------------------------------------------------------


def test_collect_env_names_versions() -> None:
    text = skimp.utils.collect_env.get_pretty_env_info()
    assert f"numpy: {np.__version__}" in text
    assert f"skimp: {skimp.version.VERSION}" in text
    command = [sys.executable, "-m", "skimp", "run", "--quiet", "-m", "torch.utils.collect_env"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=True)
    assert "threads that skimp uses" in done.stdout


ASKED = [
    "get_gcc_version", "get_clang_version", "get_cmake_version", "get_nvidia_driver_version",
    "get_gpu_info", "get_running_cuda_version", "get_lsb_version", "check_release_file", "get_os",
    "get_cpu_info",
]  # fmt: skip
ANSWERS = {  # of a machine that has everything
    "gcc --version": "gcc (Debian 12.2.0-14) 12.2.0\nCopyright",
    "clang --version": "Debian clang version 14.0.6\nTarget: x86",
    "cmake --version": "cmake version 3.25.1\n\nmaintained",
    "nvcc --version": "Cuda compilation tools, release 12.4, V12.4.131\nBuild",
    "lsb_release -a": "Description:\tDebian GNU/Linux 12",
    "cat /etc/*-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"',
    "lscpu": "Architecture: x86_64",
    "nvidia-smi": "| NVIDIA-SMI 550.54.15  Driver Version: 550.54.15  CUDA Version: 12.4 |",
    "nvidia-smi -L": "GPU 0: NVIDIA H100 (UUID: GPU-1)\nGPU 1: NVIDIA H100 (UUID: GPU-2)",
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("there", [True, False])
def test_collect_env_asks_and_reads_as_pytorch(name: str, there: bool) -> None:
    def run(command: Any) -> tuple[int, str, str]:
        out = ANSWERS.get(command if isinstance(command, str) else " ".join(command))
        return (0, out, "") if there and out is not None else (127, "", "no such program")

    ours, theirs = getattr(skimp.utils.collect_env, name), getattr(collect_env, name)
    if name == "get_cpu_info" and not there:
        assert ours(run) is None  # PyTorch answers with what the shell says
    else:
        assert ours(run) == theirs(run)


def test_collect_env_runs_commands_and_knows_the_machine() -> None:
    ours = skimp.utils.collect_env
    for command in ("echo hi; echo no >&2", "exit 3", ["false"], "printf 'a\nb12\n'"):
        assert ours.run(command) == collect_env.run(command)
        for f in ("run_and_read_all", "run_and_return_first_line"):
            assert getattr(ours, f)(ours.run, command) == getattr(collect_env, f)(
                collect_env.run, command
            )
    for name in ("get_platform", "get_python_platform", "get_libc_version", "get_nvidia_smi"):
        assert getattr(ours, name)() == getattr(collect_env, name)()
    assert ours.SystemEnv._fields == collect_env.SystemEnv._fields
    info = ours.get_env_info()
    assert (info.os, info.cpu_info is None) == (collect_env.get_os(collect_env.run), False)
    assert f"numpy=={np.__version__}" in info.pip_packages.splitlines()


# -- torch.testing --------------------------------------------------------------------------------

KINDS = ["bool", "uint8", "int32", "int64", "float32", "float64", "complex64", "bfloat16"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"low": -2, "high": 5},
        {"exclude_zero": True},
        {"noncontiguous": True},
        {"low": -1000, "high": 1000},
    ],
    ids=str,
)
def test_make_tensor_draws_pytorchs(kind: str, options: dict[str, Any]) -> None:
    found = []
    for t in (torch, skimp):
        t.manual_seed(7)
        found.append(t.testing.make_tensor(4, 5, dtype=getattr(t, kind), device="cpu", **options))
    want, got = found
    assert got.stride() == want.stride()
    assert str(got.dtype) == str(want.dtype)
    assert str(got.tolist()) == str(want.tolist())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("int64", {"requires_grad": True}),
        ("float32", {"low": 3, "high": 2}),
        ("float32", {"low": math.nan}),
        ("float32", {"noncontiguous": True, "memory_format": "contiguous_format"}),
    ],
)
def test_make_tensor_refuses(kind: str, options: dict[str, Any]) -> None:
    for t in (torch, skimp):
        words = dict(options)
        if "memory_format" in words:
            words["memory_format"] = t.contiguous_format
        with pytest.raises(ValueError, match=r"low|requires_grad|noncontiguous"):
            t.testing.make_tensor(3, dtype=getattr(t, kind), device="cpu", **words)


CLOSE: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "equal": lambda t: (t.ones(3), t.ones(3)),
    "values": lambda t: (t.tensor([1.0, 2, 3]), t.tensor([1.0, 2.5, 3])),
    "scalar tensors": lambda t: (t.tensor(1.0), t.tensor(2.0)),
    "numbers": lambda t: (1.0, 1.1),
    "dtype": lambda t: (t.ones(3), t.ones(3, dtype=t.float64)),
    "shape": lambda t: (t.ones(3), t.ones(2)),
    "lists": lambda t: ([t.ones(3), t.ones(2)], [t.ones(3), t.zeros(2)]),
    "lengths": lambda t: ([t.ones(3)], [t.ones(3), t.zeros(2)]),
    "dicts": lambda t: ({"a": t.ones(3)}, {"b": t.ones(3)}),
    "nan": lambda t: (t.tensor([math.nan]), t.tensor([math.nan])),
    "int": lambda t: (t.tensor([1, 2]), t.tensor([1, 3])),
    "bool": lambda t: (t.tensor([True, False]), t.tensor([True, True])),
    "None": lambda t: (None, t.ones(1)),
    "strings": lambda t: ("a", "b"),
    "two dims": lambda t: (t.zeros(2, 3), t.arange(6.0).reshape(2, 3)),
}


@pytest.mark.parametrize("case", CLOSE.values(), ids=CLOSE)
def test_assert_close_says_what_pytorchs_does(case: Callable[[Any], Any]) -> None:
    said = []
    for t in (torch, skimp):
        try:
            t.testing.assert_close(*case(t))
            said.append(("", ""))
        except (AssertionError, TypeError) as error:
            said.append(
                (type(error).__name__, str(error).replace("skimp._engine.tensor.tensor.", "torch."))
            )
    assert said[1] == said[0]


# -- torch.utils.benchmark ------------------------------------------------------------------------


def test_timers_measure() -> None:
    timer = skimp.utils.benchmark.Timer(
        "x + y", setup="y = torch.ones(3)", globals={"x": skimp.ones(3)}, label="adding"
    )
    m = timer.timeit(10)
    assert (m.number_per_run, len(m.times)) == (10, 1)
    assert 0 < m.median < 1
    several = timer.blocked_autorange(min_run_time=0.01)
    assert sum(several.raw_times) >= 0.01
    assert timer.adaptive_autorange(min_run_time=0.001, max_run_time=0.1).mean > 0
    with pytest.raises(RuntimeError, match="counts no instructions"):
        timer.collect_callgrind()
    with pytest.raises(ValueError, match="must be Python"):
        skimp.utils.benchmark.Timer("x;", language="c++")


def test_timers_wait_for_deferred_work() -> None:
    done = []
    clock = iter(range(100))

    def tick() -> float:
        from skimp._engine.memory.ledger import materialize_pending

        materialize_pending()
        done.append(True)
        return float(next(clock))

    timer = skimp.utils.benchmark.Timer("x.exp()", timer=tick, globals={"x": skimp.ones(300_000)})
    assert timer.timeit(3).raw_times == [1.0]
    assert len(done) == 4


@pytest.mark.parametrize(
    "times", [[2.0], [2e-6, 4e-6], [1.0, 2, 3, 4], [1e-3] * 5, [1e-5, 1.01e-5, 0.99e-5, 1e-5]]
)
def test_measurements_say_what_pytorchs_do(times: list[float]) -> None:
    ours, theirs = skimp.utils.benchmark, torch.utils.benchmark
    got = ours.Measurement(1, times, ours.TaskSpec("f(x)", "pass", label="L", sub_label="s"))
    want = theirs.Measurement(1, times, theirs.TaskSpec("f(x)", "pass", label="L", sub_label="s"))
    for name in ("mean", "median", "iqr", "significant_figures", "has_warnings", "title"):
        assert getattr(got, name) == pytest.approx(getattr(want, name)), name
    assert repr(got).splitlines()[1:] == repr(want).splitlines()[1:]


def test_tables_of_measurements_are_pytorchs() -> None:
    def table(b: Any) -> str:
        made = []
        for i, description in enumerate(("small", "large one")):
            for j, sub in enumerate(("add", "multiply")):
                spec = b.TaskSpec("f", "pass", "", "ops", sub, description, None, 1)
                made.append(b.Measurement(10, [1e-5 * (i + 1) * (j + 1.5)] * 4, spec))
        return str(b.Compare(made))

    assert table(skimp.utils.benchmark) == table(torch.utils.benchmark)


@pytest.mark.parametrize(
    "times", [[2.5e-3], [1e-6, 2e-6], [3.0, 3.1, 3.2, 3.3], [1.0, 2.0, 9.0, 1.1]]
)
@pytest.mark.parametrize("stmt", ["f(x)", "x = 1\nf(x)"])
@pytest.mark.parametrize("setup", ["pass", "import f", "import f\nx = 2"])
@pytest.mark.parametrize("labels", [(None, None, None), ("l", "s", "d"), (None, "s", None)])
@pytest.mark.parametrize("threads", [1, 2])
def test_measurements_are_printed_as_pytorchs(
    times: list[float], stmt: str, setup: str, labels: Any, threads: int
) -> None:
    def text(bench: Any) -> str:
        spec = bench.TaskSpec(stmt, setup, "", *labels, None, threads)
        return repr(bench.Measurement(10, times, spec))

    mine, theirs = text(skimp.utils.benchmark), text(torch.utils.benchmark.utils.common)
    assert mine.split("\n")[1:] == theirs.split("\n")[1:]
    assert "Measurement object at 0x" in mine.split("\n")[0]
