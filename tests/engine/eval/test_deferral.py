"""The nine rules of docs/notes/deferral.md: each holds, and costs the bytes that it may cost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._engine import eval as evaluation
from skimp._engine.memory.ledger import host
from skimp._engine.memory.pending import pending

N = 1 << 20  # elements of a large tensor: 4 MiB of float32
BYTES = 4 * N


@pytest.fixture(autouse=True)
def defer() -> Iterator[None]:
    """These tests are about deferring: they run alike in every mode of the suite."""
    with skimp.config.using(defer="auto"):
        yield


def large(value: float = 1.0) -> skimp.Tensor:
    return skimp.full((N,), value)


def is_deferred(t: Any) -> bool:
    return t._storage.deferred is not None


def test_a_view_as_another_type_shows_the_bits_of_the_deferred_storage() -> None:
    bits = 1073741824  # of 2.0 in float32
    for look in (
        lambda v: v + 0,
        lambda v: v.amax(),
        lambda v: skimp.cat([v, v]),
        lambda v: v.clone(),
        lambda v: v[v == bits],
        lambda v: v.add_(0),
    ):
        deferred = large(1.0) + 1.0
        found = look(deferred.view(skimp.int32))
        assert found.dtype is skimp.int32
        assert bool((found == bits).all())
        assert bool((deferred == 2.0).all())
    deferred = large(1.0) + 1.0
    deferred.view(skimp.int32).copy_(skimp.full((N,), 1065353216, dtype=skimp.int32))
    assert bool((deferred == 1.0).all())
    pairs = skimp.complex(large(1.0), large(2.0)) * 2
    assert bool((skimp.view_as_real(pairs)[:, 1] * 1 == 4.0).all())
    assert bool((pairs.imag + 0 == 4.0).all())


@pytest.mark.parametrize("shape", [(1000,), (1, 1000), (200, 1), (3, 1, 1000), (1,), ()])
def test_an_operand_that_broadcasts_waits_as_others_do(shape: tuple[int, ...]) -> None:
    full, small = torch.randn(3, 200, 1000), torch.randn(shape)
    x, y = skimp.tensor(full.numpy()), skimp.tensor(small.numpy())
    for op in (lambda a, b: a * b - 1, lambda a, b: a.maximum(b), lambda a, b: a / (b * b + 1)):
        host.reset_peak()
        base = host.allocated
        made = op(x, y)
        assert is_deferred(made)
        assert host.peak - base <= 2 * 4 * y.numel() + 512
        expected = op(full, small)
        assert made.stride() == expected.stride()
        assert torch.equal(torch.from_numpy(made.numpy()), expected)
        assert host.peak - base <= x.nbytes + 2 * 4 * y.numel() + 512
    a, b = x.requires_grad_(), y.requires_grad_()
    (a * b).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.shape == full.shape
    assert torch.equal(torch.from_numpy(a.grad.numpy()), small.expand(full.shape))
    assert b.grad.shape == small.shape
    z = skimp.zeros(shape)
    waits = x.detach() + z
    z.fill_(3)  # of which the sum must not know
    assert torch.equal(torch.from_numpy(waits.numpy()), full)


# -- 1: the same bits -----------------------------------------------------------------------------


def chain(x: Any) -> Any:
    return 0.5 * x * (1.0 + skimp.tanh(0.7978845608 * (x + 0.044715 * (x * x * x))))


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("layout", ["plain", "transposed", "every other", "broadcast"])
def test_bits_do_not_depend_on_deferring(mode: str, layout: str) -> None:
    data = np.random.default_rng(0).standard_normal((1000, 300)).astype(np.float32)

    def run() -> Any:
        x = skimp.tensor(data)
        x = {
            "plain": x,
            "transposed": x.t(),
            "every other": x[:, ::2],
            "broadcast": x[:1].expand(1000, 300),
        }[layout]
        y = chain(x)
        return y.sum(), y.sum(0), y.clone()

    expected = [t.numpy().tobytes() for t in run()]
    with skimp.config.using(defer=mode):
        assert [t.numpy().tobytes() for t in run()] == expected
    with skimp.config.using(threads=1, block=1000):
        assert [t.numpy().tobytes() for t in run()] == expected


# -- 2: errors at the call ------------------------------------------------------------------------


def test_errors_are_raised_at_the_call() -> None:
    x = large()
    with pytest.raises(RuntimeError, match="must match the size"):
        x + skimp.ones(3)
    with pytest.raises(RuntimeError, match="can't be cast"):
        skimp.ones(N, dtype=skimp.int64).mul_(x)
    with pytest.raises(RuntimeError, match="bool tensor"):
        (x > 0) - x
    assert pending() == [] or all(s.deferred.kernel.name != "sub" for s in pending())


# -- 3: writes ------------------------------------------------------------------------------------


def test_a_write_materializes_what_reads_the_bytes() -> None:
    x = large(2.0)
    y = x * 3
    assert is_deferred(y)
    x[5] = 100.0
    assert not is_deferred(y)
    assert y[5].item() == 6.0


def test_a_write_through_a_view_materializes_them_too() -> None:
    x = large(2.0)
    y = x * 3
    x[10:].view(-1)[:1].zero_()
    assert not is_deferred(y)
    assert y[10].item() == 6.0


def test_assigning_a_function_of_the_target_holds_no_second_block() -> None:
    x, others = large(0.5), large(2.0)
    reader = x + 1
    named = skimp.exp(x) * others
    doubled = named * 2
    x[:] = named
    assert skimp.equal(reader, large(1.5))  # what else read the old elements is materialized
    assert skimp.equal(doubled, x * 2)
    del reader, doubled
    expected = large(float(np.exp(np.float32(0.5)) * 2))
    assert skimp.allclose(x, expected)
    assert x._version == 1
    x.zero_()  # the name still has the values that it had
    assert skimp.allclose(named, expected)
    del named
    for part in (x, x[N // 2 :], x.view(1024, 1024).t()):
        before = host.allocated
        with skimp.memory.region() as r:
            part[:] = skimp.exp(part)
        assert r.peak == before


def test_a_write_materializes_no_others() -> None:
    x, other = large(2.0), large(3.0)
    y = other * 3
    x.add_(1)
    assert is_deferred(y)


def test_in_place_on_a_whole_deferred_storage_replaces_it() -> None:
    x = large(2.0)
    y = x * 3
    z = y + 1
    before = host.made
    y.add_(1).mul_(2)
    assert is_deferred(y)
    assert is_deferred(z)
    assert host.made == before
    assert (y[0].item(), z[0].item()) == (14.0, 7.0)
    assert y._version == 2


def test_a_write_to_part_of_a_deferred_storage_materializes_it() -> None:
    y = large(2.0) * 3
    view = y[3:]
    view.zero_()
    assert not is_deferred(y)
    assert (y[2].item(), y[3].item()) == (6.0, 0.0)


# -- 4: observation materializes -------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    [
        lambda y: y.data_ptr(),
        lambda y: y.numpy(),
        lambda y: y[3].item(),
        lambda y: repr(y),
        lambda y: y.tolist(),
        lambda y: y[y > 3],
        lambda y: skimp.memory.memory_allocated(),
        lambda y: skimp.cuda.synchronize(),
        lambda y: skimp.memory.synchronize(),
        lambda y: np.asarray(y),
        lambda y: np.from_dlpack(y),
        lambda y: y.untyped_storage().data_ptr(),
    ],
)
def test_looking_materializes(look: Any) -> None:
    y = large(2.0) * 3
    assert is_deferred(y)
    look(y)
    assert not is_deferred(y)
    assert y[0].item() == 6.0


def test_shape_dtype_version_and_sharing_do_not_look() -> None:
    y = large(2.0) * 3
    view = y.view(1024, 1024).t()[2:]
    assert view.shape == (1022, 1024)
    assert view.stride() == (1, 1024)
    assert view.dtype is skimp.float32
    assert y._version == 0
    assert skimp.shares_memory(y, y.detach())
    assert len(skimp.aliases(y)) == 2
    assert is_deferred(y)


# -- 5: donation ----------------------------------------------------------------------------------


def test_the_last_reader_takes_the_block() -> None:
    x = large(0.0)
    with skimp.memory.region() as r:
        x = skimp.exp(x)
        assert x[0].item() == 1.0
    assert r.extra == 0
    assert r.kept == 0


def test_a_block_that_somebody_still_reads_is_not_taken() -> None:
    x = large(0.0)
    view = x[3:]
    y = skimp.exp(x)
    del x
    assert y[5].item() == 1.0
    assert view[2].item() == 0.0


def test_a_block_that_another_deferred_storage_reads_is_not_taken() -> None:
    x = large(1.0)
    y, z = x + 1, x + 2
    del x
    assert y[0].item() == 2.0
    assert z[0].item() == 3.0


def test_a_block_that_an_array_reads_is_not_taken() -> None:
    x = large(1.0)
    array = x.numpy()
    y = x + 1
    del x
    assert y[0].item() == 2.0
    assert array[0] == 1.0


LINEAR = {
    "activation": lambda x, w, b: torch_of(x).nn.functional.leaky_relu(x @ w + b),
    "of another shape": lambda x, w, b: torch_of(x).nn.functional.gelu(
        torch_of(x).nn.functional.linear(x[None], w.t(), b)
    ),
    "two": lambda x, w, b: (x @ w + b).sigmoid() * 2,
    "reduced": lambda x, w, b: torch_of(x).nn.functional.linear(x[None], w.t(), b).sum(1),
}


@pytest.mark.parametrize("rows", [64, 4096])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", LINEAR)
def test_deferring_holds_no_more_than_eager_execution(name: str, grad: bool, rows: int) -> None:
    w, b = skimp.zeros(32, 64, requires_grad=grad), skimp.zeros(64, requires_grad=grad)
    peaks = {}
    for mode in ("never", "auto", "always"):
        with skimp.config.using(defer=mode), skimp.memory.region() as r:
            made = LINEAR[name](skimp.ones(rows, 32), w, b)
        del made
        peaks[mode] = r.extra
    assert peaks["auto"] <= peaks["never"]
    assert peaks["always"] <= peaks["never"]


CONSUMERS = {
    "sum": lambda x: x.sum(1),
    "amax": lambda x: x.amax(1),
    "mean": lambda x: x.mean(1),
    "softmax": lambda x: x.softmax(1),
    "cumsum": lambda x: x.cumsum(1),
    "pool": lambda x: torch_of(x).nn.functional.max_pool1d(x, 2),
    "turned": lambda x: x + x.t().contiguous().t(),
    "beside": lambda x: x * (x.double().view(-1, 64) + 1),
    "masks": lambda x: x[x > 0.5],
}


def torch_of(x: Any) -> Any:
    return torch if isinstance(x, torch.Tensor) else skimp


@pytest.mark.parametrize("consumer", CONSUMERS.values(), ids=list(CONSUMERS))
def test_what_reads_a_deferred_storage_is_not_overtaken_by_its_donation(consumer: Any) -> None:
    """The consumer asks for room for its own result, and that materializes the expression."""
    generator = np.random.default_rng(0)
    arrays = [generator.random((80_000, 64), np.float32) for _ in range(3)]
    want = consumer(torch.from_numpy(arrays[0]) * torch.from_numpy(arrays[1]))
    a, b = (skimp.from_numpy(one).clone() for one in arrays[:2])
    assert (a.sum() + b.sum()).item() > 0  # both are there
    x = a * b
    del a, b
    assert is_deferred(x)
    found = consumer(x)
    assert np.allclose(found.numpy(), want.numpy(), rtol=1e-4)


def test_bias_and_relu_after_a_product_cost_nothing() -> None:
    x, w, b = skimp.ones(1024, 1024), skimp.ones(1024, 1024), skimp.ones(1024)
    (x @ w)[0, 0].item()
    with skimp.memory.region() as r:
        y = skimp.relu(x @ w + b)
        assert y[0, 0].item() == 1025.0
    assert r.extra == BYTES


# -- 6: deferring never costs memory --------------------------------------------------------------


def programs() -> list[Any]:
    def dropped_inputs() -> Any:
        a, b = large(), large()
        c = a + b
        del a, b
        d = large()
        return c, d

    def narrowed() -> Any:
        x = skimp.full((N,), 1.0, dtype=skimp.float64)
        y = x.float()
        del x
        w = large()
        v = large()
        return y, w, v

    def strided() -> Any:
        x = large()
        y = x[::2] + 1
        del x
        return y, large()

    def transposed() -> Any:
        x = skimp.full((1024, 1024), 1.0)
        y = x.t() + x
        del x
        return y, large(), large()

    def shared_source() -> Any:
        x = large()
        y, z = x + 1, x * 2
        del x
        w = large()
        return y, z, w

    def chain_of_many() -> Any:
        x = large()
        for _ in range(50):
            x = x * 1.01 + 1
        return x, large()

    return [dropped_inputs, narrowed, strided, transposed, shared_source, chain_of_many]


def peak_of(program: Any, mode: str) -> int:
    with skimp.config.using(defer=mode), skimp.memory.region() as r:
        kept = program()
        for t in kept:
            t.data_ptr()
    return r.extra


@pytest.mark.parametrize("program", programs(), ids=lambda p: p.__name__)
def test_the_peak_is_never_above_that_of_eager_execution(program: Any) -> None:
    assert peak_of(program, "auto") <= peak_of(program, "never")


def test_a_chain_holds_one_block() -> None:
    x = large(0.5)
    x[0].item()
    with skimp.memory.region() as r:
        y = chain(x)
        y[0].item()
    assert r.extra == r.kept == BYTES
    del y
    with skimp.memory.region() as r:
        assert chain(x).sum().item() > 0
    assert (
        r.extra < 1 << 16
    )  # blocks go from the chain into the sum: nothing of its size is written


# -- 7: bounded -----------------------------------------------------------------------------------


def test_expressions_do_not_grow_without_bound() -> None:
    x = large(0.0)
    for _ in range(1000):
        x = x + 1
        deferred = x._storage.deferred
        assert deferred is None or deferred.size <= skimp.config.max_nodes
    assert x[0].item() == 1000.0


def test_what_is_computed_inside_others_twice_is_kept() -> None:
    x = large(1.0)
    y = x * 2 + 1
    for _ in range(5):
        assert (y + 1).sum().item() == 4.0 * N
    assert not is_deferred(y)


# -- 8: small tensors -----------------------------------------------------------------------------


def test_small_tensors_are_never_deferred() -> None:
    assert not is_deferred(skimp.ones(1000) + 1)
    assert not is_deferred(skimp.ones((1 << 17) - 1) + 1)
    assert is_deferred(skimp.ones(1 << 17) + 1)


# -- 9: random numbers ----------------------------------------------------------------------------


def test_random_numbers_are_drawn_at_the_call() -> None:
    def draw(look: bool) -> list[float]:
        skimp.manual_seed(0)
        y = skimp.rand(N) * 2
        if look:
            y.data_ptr()
        z = skimp.rand(N) + y
        return [*z[:3].tolist(), *y[:3].tolist()]

    assert draw(look=True) == draw(look=False)


# -- plans can be looked at, threads may meet -----------------------------------------------------


def test_a_plan_can_be_shown() -> None:
    text = evaluation.show(chain(large(0.5)))
    assert "tanh" in text
    assert "block" in text


def test_many_threads_share_tensors() -> None:
    x = large(1.0)
    shared = x * 2
    found: list[float] = []
    errors: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for i in range(20):
                y = shared + k
                y.add_(i)
                found.append(y[i].item() - k - i)
                found.append((y.sum() / N).item() - k - i)
        except BaseException as e:  # a thread's failure is the test's
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert set(found) == {2.0}
    assert len(found) == 240


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "bfloat16"])
@pytest.mark.parametrize("value", [0, -0.0, 1])
def test_filling_a_large_tensor_writes_these_elements_only(dtype: str, value: float) -> None:
    views: list[Any] = [
        lambda t: t,
        lambda t: t[3:],
        lambda t: t[:, 1:],
        lambda t: t.t(),
        lambda t: t.view(-1)[::2],
    ]
    for view in views:
        found = []
        for lib in (skimp, torch):
            t = lib.ones(300, 700, dtype=getattr(lib, dtype))
            view(t).fill_(value)
            found.append(t.to(lib.complex64 if dtype == "complex64" else lib.float32).numpy())
        assert found[0].tobytes() == found[1].tobytes()


def test_an_operand_that_is_materialized_takes_no_block_that_another_operand_reads() -> None:
    """Both are made from one product; one was computed inside another before, and one lies the
    other way, so it is materialized when an op reads both.
    """

    def made() -> Any:
        skimp.manual_seed(0)
        a, b, c = (skimp.rand(24, 24) for _ in range(3))
        x = (a @ b) / 24
        y = (once := x * 0.5).t() * c
        once.numpy()
        return skimp.lerp(x, y, 0.3)

    with skimp.config.using(defer="never"):
        wanted = made()
    with skimp.config.using(defer="always"):
        assert skimp.equal(made(), wanted)
