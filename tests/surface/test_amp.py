"""Mixed precision: autocast regions and GradScaler, against torch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as TF

import skimp
import skimp.nn.functional as F
from skimp._engine.dispatch.transforms import active
from skimp.amp import casting
from tests.support.samples import alike, seeded as both

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
    "einsum lists": lambda lib, f, x: lib.einsum(x, [0, 1], x, [1, 2], [0, 2]),
    "einsum three": lambda lib, f, x: lib.einsum("ij,jk,ik->i", x, x, x),
    "einsum mixed": lambda lib, f, x: lib.einsum(
        "ij,jk->ik", x, x.bfloat16() if x.dtype is lib.float32 else x
    ),
    "einsum nothing summed": lambda lib, f, x: lib.einsum("ij,ij->ij", x, x),
    "einsum turned": lambda lib, f, x: lib.einsum("ij->ji", x),
    "einsum summed": lambda lib, f, x: lib.einsum("ij->i", x),
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


# what takes floating types only, once autocast has left integers as they are
FLOATING = {
    "attention": RuntimeError, "mse_loss": NotImplementedError,
    "cross_entropy": NotImplementedError, "softmax": NotImplementedError,
    "layer_norm": NotImplementedError,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64"])
@pytest.mark.parametrize("name", OPS)
def test_autocast_casts_as_torchs(name: str, dtype: str) -> None:
    def run(lib: Any, functional: Any) -> Any:
        x = lib.arange(16).reshape(4, 4).to(getattr(lib, dtype))
        with lib.autocast("cpu"):
            return OPS[name](lib, functional, x)

    if dtype == "int64" and name in FLOATING:
        for lib, functional in ((skimp, F), (torch, TF)):
            with pytest.raises(FLOATING[name]):
                run(lib, functional)
        return
    ours, theirs = both(run)
    assert str(ours.dtype) == str(theirs.dtype)
    want = skimp.tensor(theirs.double().tolist(), dtype=skimp.float64)
    assert skimp.allclose(ours.double(), want, rtol=2e-2, atol=1e-2)


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


def test_a_plain_function_that_is_cast_leaves_its_tensors_as_they_are() -> None:
    """What `custom_fwd` notes on a Function's context, it does not note on a tensor."""
    for lib in (skimp, torch):
        x = lib.ones(2)
        kept = lib.amp.custom_fwd(lambda x: x, device_type="cuda", cast_inputs=lib.float64)(x)
        assert kept is x
        assert x.dtype is lib.float32
        assert (x + x).tolist() == [2.0, 2.0]


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


SCALER: list[tuple[type[Exception], Callable[[Any], Any]]] = [
    (AssertionError, lambda lib: lib.amp.GradScaler("cpu").step(None)),
    (AssertionError, lambda lib: lib.amp.GradScaler("cpu").update()),
    (AssertionError, lambda lib: lib.amp.GradScaler("cpu", growth_factor=1.0)),
    (RuntimeError, lambda lib: lib.amp.GradScaler("cpu").load_state_dict({})),
]


@pytest.mark.parametrize(("refused", "call"), SCALER)
def test_grad_scaler_refuses_as_torchs(refused: type[Exception], call: Any) -> None:
    alike(call, refused=refused)


def test_a_grad_scaler_that_is_off() -> None:
    alike(lambda lib: lib.amp.GradScaler("cpu", enabled=False).scale(3))
    alike(lambda lib: lib.amp.GradScaler("cpu", enabled=False).state_dict())
    alike(lambda lib: lib.amp.GradScaler("cpu", enabled=False).get_scale())
    with pytest.warns(UserWarning, match="CUDA is not available"):
        scaler = skimp.amp.GradScaler()
    x = skimp.ones(1)
    assert scaler.scale(x) is x


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_run_again_as_they_were_cast(reentrant: bool) -> None:
    def run(torch: Any, _: Any) -> Any:
        x = torch.ones(2, 2, requires_grad=True)
        seen = []

        def piece(x: Any) -> Any:
            y = torch.mm(x, x)
            seen.append(str(y.dtype))
            return y.exp()

        with torch.autocast("cpu", torch.bfloat16):
            y = torch.utils.checkpoint.checkpoint(piece, x, use_reentrant=reentrant)
        with torch.autocast("cpu", enabled=False):
            y.sum().backward()
        assert not torch.is_autocast_enabled("cpu")
        return seen, x.grad.tolist()

    ours, theirs = both(run)
    assert ours == theirs
    assert ours[0] == ["torch.bfloat16"] * 2
