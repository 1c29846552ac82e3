"""What a tensor answers about itself, and its numbers as Python has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.samples import alike

QUERIES = """
T.ones(2, 3, 4).dim_order()
T.ones(2, 3).t().dim_order()
T.ones(2, 3, 4, 5).permute(0, 2, 3, 1).dim_order()
T.ones(1, 2, 3, 4).dim_order(ambiguity_check=[T.contiguous_format, T.channels_last])
T.ones(2, 1).dim_order(ambiguity_check=[T.contiguous_format])
T.ones(2, 3, 4, 5).dim_order(ambiguity_check=True)
T.ones(2, 3, 4, 5).to(memory_format=T.channels_last).dim_order(ambiguity_check=[T.channels_last])
T.is_inference(T.ones(2))
T.is_distributed(T.ones(2))
T.ones(2).name
T.ones(2).volatile
T.ones(2).grad_dtype
T.ones(2).is_xla
T.ones(2).is_mkldnn
T.ones(2).is_vulkan
T.ones(2, 3).module_load(T.zeros(2, 3))
T.dequantize(T.ones(2, dtype=T.float64)).dtype
""".strip().splitlines()


QUERIES_REFUSED = [
    (RuntimeError, "T.ones(1, 1).dim_order(ambiguity_check=True)"),
    (RuntimeError, "T.ones(1, 1, 1, 1).dim_order(ambiguity_check=[T.contiguous_format])"),
    (RuntimeError, "T.ones(1, 2, 3, 4).dim_order(ambiguity_check=[T.channels_last])"),
    (TypeError, "T.ones(2, 3).dim_order(ambiguity_check='one')"),
    (TypeError, "T.ones(2).as_subclass(int)"),
]


@pytest.mark.filterwarnings("ignore:volatile was removed")
@pytest.mark.parametrize("text", QUERIES)
def test_queries(text: str) -> None:
    alike(lambda lib: eval(text, {"T": lib}))


@pytest.mark.parametrize(("error", "text"), QUERIES_REFUSED)
def test_queries_refused(error: type[Exception], text: str) -> None:
    alike(lambda lib: eval(text, {"T": lib}), refused=error)


def test_a_number_of_a_tensor_with_gradients_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from skimp._ops.create import access

    monkeypatch.setattr(access, "_told", False)
    x = skimp.ones(1, requires_grad=True)
    with skimp.no_grad():
        assert float(x) == 1.0
    with pytest.warns(UserWarning, match="Converting a tensor with requires_grad=True"):
        float(x)
    assert int(x) == 1


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


def _told(library: Any, of: Callable[[Any], Any], **how: bool) -> Any:
    x = library.ones(2, requires_grad=True)
    try:
        with getattr(library, "no_grad" if how.get("off") else "enable_grad")():
            return of(x).tolist()
    except RuntimeError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("off", [True, False])
@pytest.mark.parametrize(
    "of",
    [
        lambda x: x.numpy(),
        lambda x: (x * 2).numpy(),
        lambda x: x[:1].numpy(),
        lambda x: x.cpu().numpy(),
        np.asarray,
        np.array,
    ],
)
def test_arrays_of_what_requires_grad(of: Callable[[Any], Any], off: bool) -> None:
    """Refused while gradients are recorded, for what is written through the array is not."""
    theirs = _told(torch, of, off=off)
    assert _told(skimp, of, off=off) == theirs
    assert isinstance(theirs, list) is off


def test_arrays_of_results_in_inference_mode() -> None:
    for library in (torch, skimp):
        x = library.ones(2, requires_grad=True) * 3
        with library.inference_mode():
            assert x.numpy().tolist() == [3.0, 3.0]
