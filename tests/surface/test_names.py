"""Small names of the package and of tensors that few programs use, beside PyTorch's."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from skimp._compat import refusals, table
from skimp._compat.modules import Made

HASHED = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
          "float64"]  # fmt: skip


@pytest.mark.parametrize("dtype", HASHED)
@pytest.mark.parametrize("shape", [(), (3,), (4, 5), (2, 3, 4), (300, 250)])
def test_hash_tensor(dtype: str, shape: tuple[int, ...]) -> None:
    theirs = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 9).to(
        getattr(torch, dtype)
    )
    wide = theirs.double().numpy()
    ours = skimp.from_numpy(np.asarray(wide)).to(getattr(skimp, dtype))
    for dim in [(), *range(len(shape)), tuple(range(len(shape)))]:
        for keepdim in (False, True):
            mine = ours.hash_tensor(dim, keepdim=keepdim)
            other = theirs.hash_tensor(dim, keepdim=keepdim)
            assert mine.dtype is skimp.uint64
            assert mine.tolist() == other.tolist()
    assert skimp.hash_tensor(ours).item() == torch.hash_tensor(theirs).item()


def test_hash_tensor_refuses() -> None:
    for lib in (skimp, torch):
        with pytest.raises(RuntimeError, match="Unknown hash_tensor mode: 1"):
            lib.hash_tensor(lib.ones(2), mode=1)
        with pytest.raises(NotImplementedError, match="xor_sum_cpu"):
            lib.hash_tensor(lib.ones(2, dtype=lib.complex64))
        with pytest.raises(IndexError, match="non-zero size"):
            lib.hash_tensor(lib.ones(2, 0), 1)


CALLS = (
    """
T.ones(2, 3, 4).dim_order()|T.ones(2, 3).t().dim_order()
T.ones(2, 3, 4, 5).permute(0, 2, 3, 1).dim_order()
T.sym_max(1, 2.0)|T.sym_min(1, 2)|T.sym_int(-3.7)|T.sym_float(3)|T.sym_not(0)|T.sym_sqrt(4)
T.sym_sum([1, 2])
T.sym_ite(True, 1, 2)|T.sym_fresh_size(2)|isinstance(3, T.SymInt)|isinstance(3.0, T.SymFloat)
T.is_inference(T.ones(2))|T.is_distributed(T.ones(2))|T.is_vulkan_available()|T.has_lapack|T.has_mkl
T.compiled_with_cxx11_abi()|T.init_num_threads()|T.thread_safe_generator()|T.ones(2).name
T.ones(2).volatile|T.ones(2).grad_dtype|T.ones(2).is_xla|T.ones(2).is_mkldnn|T.ones(2).is_vulkan
T.ones(2).new([1, 2])|T.ones(2, dtype=T.int64).new([1, 2])|T.ones(2).new(3, 4).shape
T.ones(2).new().shape
T.ones(2).new(T.arange(3)).dtype|T.ones(3).map2_(T.ones(3), T.arange(3.), lambda a, b, c: a + b * c)
T.gcd_(T.tensor([4]), T.tensor([6]))|T.lcm_(T.tensor([4]), T.tensor([6]))
T.ldexp_(T.ones(1), T.tensor([2]))|T.xlogy_(T.ones(2), T.tensor([1., 2.]))
T.dsmm(T.ones(2, 3), T.ones(3, 2))
T.ones(2, 3).module_load(T.zeros(2, 3))|T.arange(6.).slice_inverse(T.ones(3), 0, 0, 3, 1)
T.ones(1, 1).dim_order(ambiguity_check=True)|T.ones(2).as_subclass(int)|T.ones(2).eig()
T.ones(2).symeig()
T.ones(2).solve(T.ones(2))|T.ones(2).reinforce(1)|issubclass(T.AcceleratorError, RuntimeError)
T.arange(12.)[3:6].slice_inverse(T.ones(12), 0, 3, 6, 1)
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


@pytest.mark.filterwarnings("ignore:volatile was removed")
@pytest.mark.parametrize("text", CALLS)
def test_calls(text: str) -> None:
    found = []
    for lib in (torch, skimp):
        try:
            found.append(repr(eval(text, {"T": lib})).replace("skimp", "torch"))
        except (RuntimeError, TypeError) as error:
            found.append(type(error).__name__)
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_const_data_ptr_and_storage_type() -> None:
    t = skimp.ones(2, dtype=skimp.int64)
    assert t.const_data_ptr() == t.data_ptr()
    assert t.storage_type() is skimp.LongStorage
    assert t.storage_type().__name__ == torch.ones(2).long().storage_type().__name__


def test_as_subclass_shares_bytes_and_lets_gradients_through() -> None:
    for lib in (skimp, torch):

        class Mine(lib.Tensor):  # type: ignore[misc, name-defined]
            pass

        x = lib.ones(2, requires_grad=True)
        y = x.as_subclass(Mine)
        assert type(y) is Mine
        assert y.requires_grad
        assert y.data_ptr() == x.data_ptr()
        (y * 3).sum().backward()
        assert x.grad.tolist() == [3.0, 3.0]
        plain = lib.zeros(2)
        plain.as_subclass(Mine).fill_(4)
        assert plain.tolist() == [4.0, 4.0]


def test_deprecated_resizes() -> None:
    for lib in (skimp, torch):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert lib.arange(6).resize(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
            assert lib.arange(6).resize_as(lib.ones(3, 2)).tolist() == [[0, 1], [2, 3], [4, 5]]
        assert [str(w.message) for w in told] == [
            "non-inplace resize is deprecated",
            "non-inplace resize_as is deprecated",
        ]


def test_from_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    np.arange(6, dtype=np.float32).tofile(path)
    for lib in (skimp, torch):
        assert lib.from_file(str(path), size=4).tolist() == [0.0, 1.0, 2.0, 3.0]
        assert lib.from_file(str(path), size=2, dtype=lib.int32).dtype is lib.int32
        shared = lib.from_file(str(path), shared=True, size=6)
        shared[0] = 7
        assert np.fromfile(path, np.float32)[0] == 7
        shared[0] = 0


def test_anomaly_mode_as_a_switch() -> None:
    for lib in (skimp, torch):
        lib.set_anomaly_enabled(True)
        on: Any = lib.is_anomaly_enabled()
        lib.set_anomaly_enabled(False)
        assert (on, lib.is_anomaly_enabled()) == (True, False)


def test_fork_waits() -> None:
    assert skimp.wait(skimp.fork(lambda a: a + 1, 2)) == 3


# -- what is left out -----------------------------------------------------------------------------


# What PyTorch lacks: a module of ours, and one that 2.13 has dropped.
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


SMALL = (
    """
T.utils.benchmark.ordered_unique([3, 1, 3])
T.nn.factory_kwargs({"device": 1, "factory_kwargs": {"dtype": 2}})
T.nn.factory_kwargs({"foo": 1})|T.nn.factory_kwargs(None)
T.nn.factory_kwargs({"device": 1, "factory_kwargs": {"device": 2}})
T.nn.functional.assert_int_or_pair([1, 2, 3], "x", "{}")
T.nn.functional.assert_int_or_pair((1, 2), "x", "{}")
T.distributed.get_node_local_rank(3)|T.distributed.get_node_local_rank()
T.distributed.get_debug_level().name
T.serialization.get_crc32_options()|T.serialization.get_default_mmap_options()
T.serialization.set_default_mmap_options(77)
T.serialization.set_default_load_endianness(3)|T.compiler.get_default_backend()|T.cuda.has_half
T.cuda.has_magma
T.utils.checkpoint.get_device_states(T.ones(2))|T.utils.checkpoint.detach_variable([T.ones(2)])
T.utils.checkpoint.detach_variable((T.ones(2, requires_grad=True), 3))
[p.name for p in T.utils.checkpoint.CheckpointPolicy]
T.profiler.DeviceType.PrivateUse1.value|T.profiler.DeviceType.Meta.value
T.nn.attention.WARN_FOR_UNFUSED_KERNELS
T.dequantize(T.ones(2, dtype=T.float64)).dtype|T.fft.Tensor is T.Tensor
T.nn.functional.has_torch_function((1,))
issubclass(T.distributed.DistBackendError, RuntimeError)
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


@pytest.mark.parametrize("text", SMALL)
def test_small_helpers(text: str) -> None:
    import torch.utils.benchmark
    import torch.utils.checkpoint

    import skimp.utils.benchmark

    found = []
    for lib in (torch, skimp):
        try:
            found.append(repr(eval(text, {"T": lib})).replace("skimp", "torch"))
        except (RuntimeError, TypeError, ValueError, AssertionError) as error:
            found.append(type(error).__name__)
    assert found[0] == found[1]


def test_settings_that_change_nothing() -> None:
    for lib in (skimp, torch):
        lib.autograd.set_multithreading_enabled(True)
        with lib.backends.mkl.verbose(lib.backends.mkl.VERBOSE_OFF):
            assert lib.autograd.grad_mode is not None
        with pytest.warns(FutureWarning, match="nn.Container` is deprecated"):
            assert len(list(lib.nn.Container(a=lib.nn.ReLU()).children())) == 1
        with pytest.warns(UserWarning, match="Gradients will be None"):
            lib.utils.checkpoint.check_backward_validity([lib.ones(2)])
