"""Mixed precision, and the names that training scripts touch at import: PyTorch's answers, or
accepted and readable.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

import skimp
import skimp.nn.functional as F
from skimp._engine.dispatch.transforms import active
from skimp.amp import casting

LIBS = ((skimp, F), (torch, TF))


def both(f: Any) -> tuple[Any, Any]:
    """f of ours and of theirs: what it gives, or the error's type and first sentence."""
    found = []
    for lib, functional in LIBS:
        lib.manual_seed(0)
        try:
            found.append(f(lib, functional))
        except Exception as error:
            found.append((type(error).__name__, str(error).partition(".")[0]))
    return found[0], found[1]


# -- autocast -------------------------------------------------------------------------------------

OPS: dict[str, Any] = {
    "mm": lambda lib, f, x: lib.mm(x, x),
    "matmul operator": lambda lib, f, x: x @ x,
    "matmul method": lambda lib, f, x: x.matmul(x),
    "linear": lambda lib, f, x: f.linear(x, x, x[0]),
    "bmm": lambda lib, f, x: lib.bmm(x[None], x[None]),
    "addmm": lambda lib, f, x: lib.addmm(x, x, x),
    "baddbmm": lambda lib, f, x: lib.baddbmm(x[None], x[None], x[None]),
    "conv1d": lambda lib, f, x: f.conv1d(x[None], x[:, :, None]),
    "conv2d": lambda lib, f, x: f.conv2d(x[None, None], x[None, None, :2, :2]),
    "attention": lambda lib, f, x: f.scaled_dot_product_attention(x[None], x[None], x[None]),
    "einsum": lambda lib, f, x: lib.einsum("ij,jk->ik", x, x),
    "mse_loss": lambda lib, f, x: f.mse_loss(x, x + 1),
    "cross_entropy": lambda lib, f, x: f.cross_entropy(x, lib.arange(4)),
    "prod": lambda lib, f, x: x.prod(),
    "trace": lambda lib, f, x: lib.trace(x),
    "add": lambda lib, f, x: x + x,
    "softmax": lambda lib, f, x: lib.softmax(x, 0),
    "layer_norm": lambda lib, f, x: f.layer_norm(x, (4,)),
    "relu": lambda lib, f, x: lib.relu(x),
    "sum": lambda lib, f, x: x.sum(),
    "mv": lambda lib, f, x: lib.mv(x, x[0]),
    "cat same": lambda lib, f, x: lib.cat([x, x]),
    "cat mixed": lambda lib, f, x: lib.cat([x, x.bfloat16(), x.float()]),
    "stack lower": lambda lib, f, x: lib.stack([x.bfloat16(), x.bfloat16()]),
    "inside": lambda lib, f, x: f.linear(x, x).relu() @ x,
    "fft": lambda lib, f, x: lib.fft.fft(x).real,
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64"])
@pytest.mark.parametrize("name", OPS)
def test_autocast_casts_as_torchs(name: str, dtype: str) -> None:
    def run(lib: Any, functional: Any) -> Any:
        x = lib.arange(16).reshape(4, 4).to(getattr(lib, dtype))
        with lib.autocast("cpu"):
            found = OPS[name](lib, functional, x)
        return str(found.dtype), found.double()

    ours, theirs = both(run)
    if isinstance(theirs[1], str):
        assert isinstance(ours[1], str)  # both refuse; what the op says is tested with the op
    else:
        assert ours[0] == theirs[0]
        assert skimp.allclose(
            ours[1], skimp.tensor(theirs[1].tolist(), dtype=skimp.float64), rtol=2e-2, atol=1e-2
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_autocast_of_recurrent_layers(name: str, dtype: str) -> None:
    def run(lib: Any, functional: Any) -> Any:
        lib.manual_seed(0)
        layer = getattr(lib.nn, name)(4, 3, 2, bidirectional=True)
        x = lib.linspace(-1, 1, 24).view(3, 2, 4).to(getattr(lib, dtype))
        with lib.autocast("cpu"):
            y, _ = layer(x)
        y.float().sum().backward()
        return str(y.dtype), y.double(), layer.weight_ih_l0.grad.double()

    ours, theirs = both(run)
    assert ours[0] == theirs[0]
    for got, want in zip(ours[1:], theirs[1:], strict=True):
        assert skimp.allclose(
            got, skimp.tensor(want.tolist(), dtype=skimp.float64), rtol=5e-2, atol=3e-2
        )


def test_autocast_gradients_and_half() -> None:
    def run(lib: Any, functional: Any) -> Any:
        w = lib.nn.Parameter(lib.arange(4.0).view(2, 2))
        x = lib.ones(3, 2)
        with lib.autocast("cpu", dtype=lib.float16):
            y = functional.linear(x, w) + functional.linear(x, w)
            loss = functional.mse_loss(y, lib.zeros(3, 2, dtype=lib.float16))
        loss.backward()
        return str(y.dtype), str(loss.dtype), str(w.grad.dtype), w.grad.tolist()

    ours, theirs = both(run)
    assert ours == theirs


def test_regions_nest_and_end() -> None:
    def run(lib: Any, functional: Any) -> Any:
        x, seen = lib.ones(2, 2), []

        def look() -> None:
            seen.append(
                (
                    str((x @ x).dtype),
                    lib.is_autocast_enabled("cpu"),
                    str(lib.get_autocast_dtype("cpu")),
                )
            )

        @lib.autocast("cpu", dtype=lib.float16)
        def decorated(n: int) -> None:
            look()
            if n:
                decorated(n - 1)

        with lib.autocast("cpu"):
            look()
            with lib.autocast("cpu", enabled=False):
                look()
                decorated(1)
            look()
        look()
        thread_seen = threading.Thread(target=look)
        with lib.autocast("cpu"):
            thread_seen.start()
            thread_seen.join()
        return seen

    ours, theirs = both(run)
    assert ours == theirs


def test_outside_no_op_is_asked() -> None:
    assert not active
    with skimp.autocast("cpu"):
        assert active
        with pytest.raises(RuntimeError):
            skimp.mm(skimp.ones(2, 3), skimp.ones(2, 3))
        out = skimp.zeros(2, 2)
        assert skimp.mm(skimp.ones(2, 2), skimp.ones(2, 2), out=out) is out
        assert skimp.mm(skimp.ones(2, 2), skimp.ones(2, 2)).dtype is skimp.bfloat16
    assert not active


def test_weights_are_cast_once() -> None:
    w = skimp.nn.Parameter(skimp.ones(2, 2))
    with skimp.autocast("cpu"):
        one = casting.cached(w, skimp.bfloat16)
        assert casting.cached(w, skimp.bfloat16) is one
        skimp.clear_autocast_cache()
        assert casting.cached(w, skimp.bfloat16) is not one
        del one
    assert skimp.amp.state.state.casts == {}


def test_autocast_refusals_and_old_names() -> None:
    with pytest.raises(
        RuntimeError, match="User specified an unsupported autocast device_type 'tpu'"
    ):
        skimp.autocast("tpu")
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        skimp.autocast(1)  # type: ignore[arg-type]
    with (
        pytest.warns(UserWarning, match="Disabling autocast"),
        skimp.autocast("cpu", dtype=skimp.float32),
    ):
        assert not skimp.is_autocast_enabled("cpu")
    with pytest.warns(UserWarning, match="CUDA is not available"), skimp.autocast("cuda"):
        assert not skimp.is_autocast_enabled("cuda")
    with pytest.warns(FutureWarning, match="`torch.cpu.amp.autocast"), skimp.cpu.amp.autocast():
        assert skimp.is_autocast_enabled("cpu")
    with (
        pytest.warns(UserWarning, match="Disabling"),
        pytest.warns(FutureWarning, match="`torch.cuda.amp.GradScaler"),
    ):
        assert not skimp.cuda.amp.GradScaler().is_enabled()


def test_custom_functions_under_autocast() -> None:
    def run(lib: Any, functional: Any) -> Any:
        seen = []

        class Product(lib.autograd.Function):  # type: ignore[misc]
            @staticmethod
            @lib.amp.custom_fwd(device_type="cpu", cast_inputs=lib.float32)
            def forward(ctx: Any, a: Any) -> Any:
                seen.append((str(a.dtype), lib.is_autocast_enabled("cpu")))
                return a @ a

            @staticmethod
            @lib.amp.custom_bwd(device_type="cpu")
            def backward(ctx: Any, g: Any) -> Any:
                seen.append((str(g.dtype), lib.is_autocast_enabled("cpu")))
                return g

        a = lib.ones(2, 2, dtype=lib.bfloat16, requires_grad=True)
        with lib.autocast("cpu"):
            y = Product.apply(a)
        y.sum().backward()
        return seen, str(y.dtype), str(a.grad.dtype)

    ours, theirs = both(run)
    assert ours == theirs


# -- GradScaler -----------------------------------------------------------------------------------


def test_grad_scaler_steps_as_torchs() -> None:
    def run(lib: Any, functional: Any) -> Any:
        w = lib.nn.Parameter(lib.ones(2))

        class Descent:
            def __init__(self) -> None:
                self.param_groups = [{"params": [w]}]

            def step(self) -> str:
                with lib.no_grad():
                    w.sub_(0.1 * w.grad)
                return "stepped"

        optimizer = Descent()
        scaler = lib.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        seen = []
        for factor in (1.0, 2.0, float("inf"), 3.0):
            w.grad = None
            scaler.scale((w * factor).sum()).backward()
            if factor == 2.0:
                scaler.unscale_(optimizer)
            seen.append((scaler.step(optimizer), scaler.get_scale(), w.grad.tolist(), w.tolist()))
            scaler.update()
        return seen, scaler.state_dict(), scaler.is_enabled()

    ours, theirs = both(run)
    assert ours == theirs


def test_grad_scaler_refuses_as_torchs() -> None:
    for f in (
        lambda lib, functional: lib.amp.GradScaler("cpu").step(None),
        lambda lib, functional: lib.amp.GradScaler("cpu").update(),
        lambda lib, functional: lib.amp.GradScaler("cpu", growth_factor=1.0),
        lambda lib, functional: lib.amp.GradScaler("cpu").load_state_dict({}),
        lambda lib, functional: lib.amp.GradScaler("cpu", enabled=False).scale(3),
        lambda lib, functional: lib.amp.GradScaler("cpu", enabled=False).state_dict(),
        lambda lib, functional: lib.amp.GradScaler("cpu", enabled=False).get_scale(),
    ):
        ours, theirs = both(f)
        assert ours == theirs
    with pytest.warns(UserWarning, match="CUDA is not available"):
        scaler = skimp.amp.GradScaler()
    x = skimp.ones(1)
    assert scaler.scale(x) is x


# -- what scripts touch ---------------------------------------------------------------------------

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


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_torchs_names(name: str) -> None:
    ours = importlib.import_module(f"skimp.{name}")
    theirs = importlib.import_module(f"torch.{name}")
    unknown = [n for n in getattr(ours, "__all__", ()) if not hasattr(theirs, n)]
    assert [n for n in unknown if n not in ("sharing", "safetensors")] == []


def test_compile_gives_the_function(capsys: pytest.CaptureFixture[str]) -> None:
    from skimp._compat import notices

    notices._said.clear()

    def f(x: int) -> int:
        return x + 1

    assert skimp.compile(f) is f
    assert skimp.compile(mode="reduce-overhead")(f) is f
    assert skimp.compiler.disable(f) is f
    with pytest.raises(RuntimeError, match="Either mode or options"):
        skimp.compile(f, mode="default", options={})
    assert skimp.jit.script(f) is f
    assert skimp.jit.trace(f, (1,)) is f
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
    assert not module.is_available()


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


def test_tensor_types() -> None:
    def run(lib: Any, functional: Any) -> Any:
        seen: list[Any] = []
        for kind in (
            "Float",
            "Double",
            "Half",
            "BFloat16",
            "Long",
            "Int",
            "Short",
            "Char",
            "Byte",
            "Bool",
        ):
            made = getattr(lib, f"{kind}Tensor")
            x = made([1, 0])
            seen.append(
                (
                    x.type(),
                    x.tolist(),
                    tuple(made(2, 3).shape),
                    tuple(made().shape),
                    isinstance(x, made),
                )
            )
            seen.append(
                (isinstance(x, lib.LongTensor), str(lib.ones(2).type(made).dtype), lib.typename(x))
            )
        x = lib.ones(2)
        seen += [x.type(f"torch.{k}Tensor").type() for k in ("Float", "Long")]
        seen += [
            x.type(lib.float16).type(),
            x.type_as(lib.arange(2)).type(),
            lib.is_tensor(x),
            lib.is_tensor(1),
        ]
        seen += [
            lib.is_storage(x.untyped_storage()),
            lib.is_storage(x),
            lib.get_device(x),
            x.is_pinned(),
        ]
        seen += [tuple(lib.Tensor(2, 3).shape), lib.Tensor([1, 2]).tolist(), lib.Tensor().tolist()]
        seen += [
            tuple(lib.Tensor(lib.Size([2, 0])).shape),
            str(lib.Tensor([1]).dtype),
            x.cpu() is x,
        ]
        return seen

    ours, theirs = both(run)
    assert ours == theirs


NEW: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda lib, x: x.new(),
    "sizes": lambda lib, x: x.new(2, 3).zero_(),
    "a size": lambda lib, x: x.new(*x.size()).fill_(3),
    "Size": lambda lib, x: x.new(lib.Size([4])).zero_(),
    "size=": lambda lib, x: x.new(size=(2,)).zero_(),
    "data": lambda lib, x: x.new([[1, 2], [3, 4]]),
    "data=": lambda lib, x: x.new(data=[1.0]),
    "a tuple": lambda lib, x: x.new((1, 2, 3)),
    "NumPy's": lambda lib, x: x.new(np.ones(2)),
    "itself": lambda lib, x: lib.tensor(x.new(x).data_ptr() == x.data_ptr()),
    "float": lambda lib, x: x.new(2.5),
    "bool": lambda lib, x: x.new(True),
    "float of a type": lambda lib, x: lib.FloatTensor(2.5),
    "bool of a type": lambda lib, x: lib.LongTensor(True),
}


@pytest.mark.parametrize("case", NEW)
@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_new(case: str, dtype: str) -> None:
    def run(lib: Any) -> Any:
        x = lib.ones(2, 3, dtype=getattr(lib, dtype))
        try:
            found = NEW[case](lib, x)
        except TypeError as error:
            return str(error)
        return found.tolist(), str(found.dtype), tuple(found.shape)

    assert run(skimp) == run(torch)


def test_subclasses_are_made_of_data() -> None:
    class Mine(skimp.Tensor):
        pass

    assert type(Mine([1, 2])) is Mine
    x = skimp.ones(2)
    assert type(Mine(x)) is Mine
    assert type(x) is skimp.Tensor


def test_default_tensor_type() -> None:
    skimp.set_default_tensor_type(skimp.DoubleTensor)
    assert skimp.ones(1).dtype is skimp.float64
    skimp.set_default_tensor_type("torch.FloatTensor")
    assert skimp.ones(1).dtype is skimp.float32
    with pytest.raises(TypeError, match="invalid type object"):
        skimp.set_default_tensor_type("nothing")


def test_places_that_are_not_there() -> None:
    for module in (skimp.mps, skimp.xpu, skimp.accelerator, skimp.distributed):
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


def test_random_module() -> None:
    skimp.random.manual_seed(3)
    with skimp.random.fork_rng():
        skimp.rand(5)
    x = skimp.rand(2)
    skimp.manual_seed(3)
    assert skimp.rand(2).tolist() == x.tolist()


# -- testing --------------------------------------------------------------------------------------

PAIRS: dict[str, Any] = {
    "same": lambda lib, a: (a, a.clone()),
    "near": lambda lib, a: (a, a + 1e-7),
    "far": lambda lib, a: (a, a + 1),
    "dtype": lambda lib, a: (a, a.long()),
    "shape": lambda lib, a: (a, lib.ones(3)),
    "dict": lambda lib, a: ({"x": a}, {"x": a + 1e-3}),
    "keys": lambda lib, a: ({"a": 1}, {"b": 1}),
    "list": lambda lib, a: ([1, [2]], [1, [3]]),
    "length": lambda lib, a: ([a], [a, a]),
    "numbers": lambda lib, a: (1.0, 1.1),
    "scalars": lambda lib, a: (lib.tensor(1.0), lib.tensor(2.0)),
    "integers": lambda lib, a: (a.long(), a.long() + 1),
    "strings": lambda lib, a: ("a", "b"),
    "nan": lambda lib, a: (lib.tensor([float("nan")]), lib.tensor([float("nan")])),
    "none": lambda lib, a: (None, 1),
    "bfloat16": lambda lib, a: (a.bfloat16(), a.bfloat16() * 1.01),
    "bool": lambda lib, a: (a > 1, a > 2),
}


@pytest.mark.parametrize("name", PAIRS)
def test_assert_close_says_what_torchs_says(name: str) -> None:
    found = []
    for lib, _ in LIBS:
        try:
            found.append(lib.testing.assert_close(*PAIRS[name](lib, lib.arange(6.0).view(2, 3))))
        except (AssertionError, TypeError) as error:
            found.append((type(error).__name__, str(error)))
    assert found[0] == found[1]


def test_assert_close_options() -> None:
    x = skimp.ones(2)
    skimp.testing.assert_close(x, x + 1, rtol=0, atol=2)
    skimp.testing.assert_close(x, x.double(), check_dtype=False)
    nan = skimp.tensor([float("nan")])
    skimp.testing.assert_close(nan, nan, equal_nan=True)
    with pytest.raises(AssertionError, match=r"^hey$"):
        skimp.testing.assert_close(x, x + 1, msg="hey")
    with pytest.raises(ValueError, match="rtol and atol must both"):
        skimp.testing.assert_close(x, x, rtol=1)


def test_a_script_that_touches_everything_at_import() -> None:
    script = """
import skimp._compat
skimp._compat.install()
import torch
import torch.backends.cudnn as cudnn
import torch.multiprocessing as mp
from torch.cuda.amp import GradScaler, autocast
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
assert not torch.distributed.is_available()
print(device, torch.utils.data.DataLoader is DataLoader)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout == "cpu True\n"


def test_a_cast_to_its_own_type_is_the_tensor() -> None:
    def run(lib: Any, functional: Any) -> Any:
        x = lib.ones(2, 3)
        kept = [x.float(memory_format=f) for f in (lib.preserve_format, lib.contiguous_format)]
        return [y is x for y in kept], x.double(memory_format=lib.contiguous_format).stride()

    ours, theirs = both(run)
    assert ours == theirs


def test_numbers_of_threads_that_are_none() -> None:
    for bad in (0, -1, 1.5, None):
        with pytest.raises(RuntimeError) as want:
            torch.set_num_threads(bad)
        with pytest.raises(RuntimeError) as got:
            skimp.set_num_threads(bad)
        assert str(got.value) == str(want.value)


def test_what_this_was_built_with() -> None:
    assert "NumPy" in skimp.__config__.show()
    assert "get_num_threads" in skimp.__config__.parallel_info()


@pytest.mark.parametrize("kind", [bool, int, float, complex])
def test_pythons_types_are_dtypes(kind: type) -> None:
    makers: list[Callable[[Any], Any]] = [
        lambda lib: lib.zeros(2, dtype=kind),
        lambda lib: lib.tensor([1, 0], dtype=kind),
        lambda lib: lib.as_tensor([1, 0], dtype=kind),
        lambda lib: lib.ones(2).to(kind),
        lambda lib: lib.ones(2).to(dtype=kind),
        lambda lib: lib.ones_like(lib.ones(2), dtype=kind),
        lambda lib: lib.full((2,), 1, dtype=kind),
        lambda lib: lib.ones(2).sum(dtype=kind),
        lambda lib: lib.ones(2).prod(dtype=kind),
        lambda lib: lib.ones(2).new_zeros(2, dtype=kind),
        lambda lib: lib.eye(2, dtype=kind),
    ]
    for make in makers:
        wanted, given = make(torch), make(skimp)
        assert str(given.dtype) == str(wanted.dtype)
        assert given.tolist() == wanted.tolist()
    assert str(skimp.arange(3, dtype=float).dtype) == str(
        skimp.ones(3).cumsum(0, dtype=float).dtype
    )


def test_gradients_for_any_iterable_of_inputs() -> None:
    inputs = {"a": skimp.ones(2, requires_grad=True), "b": skimp.ones(2, requires_grad=True)}
    y = (inputs["a"] * 2 + inputs["b"]).sum()
    found = skimp.autograd.grad(y, inputs.values(), retain_graph=True)
    assert [g.tolist() for g in found] == [[2.0, 2.0], [1.0, 1.0]]
    y.backward(inputs=iter(inputs.values()))
    assert inputs["a"].grad is not None


def test_variables_are_tensors() -> None:
    for lib in (torch, skimp):
        variable = lib.autograd.Variable
        x = lib.ones(2, requires_grad=True) * 2
        v = variable(x)
        assert type(v) is lib.Tensor
        assert isinstance(x, variable)
        assert v.grad_fn is None
        assert not v.requires_grad
        assert v.data_ptr() == x.data_ptr()
        assert variable(lib.ones(2), requires_grad=True).is_leaf
        assert variable().shape == (0,)
        with pytest.raises(TypeError, match="Variable data has to be a tensor, but got list"):
            variable([1.0])
        with pytest.warns(UserWarning, match="volatile was removed"):
            variable(lib.ones(1), volatile=True)


def test_histogram_has_a_hundred_bins() -> None:
    x = torch.arange(30.0)
    wanted, given = torch.histogram(x), skimp.histogram(skimp.arange(30.0))
    assert given.hist.tolist() == wanted.hist.tolist()
    assert given.bin_edges.tolist() == pytest.approx(wanted.bin_edges.tolist(), rel=1e-6)


def test_a_number_of_a_tensor_with_gradients_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from skimp._ops.create import access

    monkeypatch.setattr(access, "_told", False)
    x = skimp.ones(1, requires_grad=True)
    with skimp.no_grad():
        assert float(x) == 1.0
    with pytest.warns(UserWarning, match="Converting a tensor with requires_grad=True"):
        float(x)
    assert int(x) == 1
