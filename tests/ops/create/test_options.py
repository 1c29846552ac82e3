"""The options that every maker of tensors takes: refused, applied and shown as PyTorch does."""

import inspect

import numpy as np
import pytest
import torch

import skimp

MAKERS = {
    "zeros": (2,), "ones": (2,), "empty": (2,), "rand": (2,), "randn": (2,),
    "full": ((2,), 1.0), "arange": (3.0,), "linspace": (0, 1, 3), "logspace": (0, 1, 3),
    "eye": (2,), "randint": (5, (2,)), "randperm": (3,), "normal": (0.0, 1.0, (2,)),
    "empty_strided": ((2,), (1,)), "empty_permuted": ((2,), (0,)), "scalar_tensor": (1.0,),
    "hann_window": (3,), "hamming_window": (3,), "bartlett_window": (3,),
    "blackman_window": (3,), "kaiser_window": (3,), "fft.fftfreq": (3,), "fft.rfftfreq": (3,),
    "signal.windows.hann": (3,), "signal.windows.kaiser": (3,), "signal.windows.cosine": (3,),
}  # fmt: skip
LIKES = {
    "zeros_like": (), "ones_like": (), "empty_like": (), "rand_like": (), "randn_like": (),
    "full_like": (1.0,), "randint_like": (3,),
}  # fmt: skip
CALLS = [*MAKERS, *LIKES]


def _of(library, name):
    for part in name.split("."):
        library = getattr(library, part)
    return library


def _args(library, name):
    return (library.ones(2), *LIKES[name]) if name in LIKES else MAKERS[name]


def _call(library, name, **words):
    return _of(library, name)(*_args(library, name), **words)


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_option_is_refused_by_name(name):
    for library in (torch, skimp):
        with pytest.raises(TypeError, match=rf"{name.split('.')[-1]}\(\).*"):
            _call(library, name, pinned=True)


@pytest.mark.parametrize("name", CALLS)
def test_options_do_what_they_say(name):
    dtypes = {library: library.float64 for library in (torch, skimp)}
    for words in ({}, {"requires_grad": True}, {"device": "cpu", "requires_grad": False}):
        mine = _call(skimp, name, dtype=dtypes[skimp], layout=skimp.strided, **words)
        theirs = _call(torch, name, dtype=dtypes[torch], layout=torch.strided, **words)
        assert (mine.dtype, mine.requires_grad) == (skimp.float64, theirs.requires_grad)
        assert tuple(mine.shape) == tuple(theirs.shape)
        assert mine.is_leaf == theirs.is_leaf


@pytest.mark.parametrize("name", [n for n in CALLS if "signal" not in n])
def test_requires_grad_may_be_none(name):
    for library in (torch, skimp):
        assert not _call(library, name, requires_grad=None).requires_grad


@pytest.mark.parametrize(
    "number", [np.bool_(True), np.int32(2), np.float16(1), np.float32(2), np.complex128(1j)]
)
def test_full_of_a_number_of_numpy(number):
    mine, theirs = (library.full((2,), number) for library in (skimp, torch))
    assert str(mine.dtype) == str(theirs.dtype)
    assert mine.tolist() == theirs.tolist()


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_device_is_refused(name):
    for library in (torch, skimp):
        with pytest.raises(RuntimeError, match="nowhere"):
            _call(library, name, device="nowhere")


@pytest.mark.parametrize("name", CALLS)
def test_integers_do_not_require_grad(name):
    def refusal(library):
        try:
            _call(library, name, dtype=library.int64, requires_grad=True)
        except (RuntimeError, ValueError) as e:
            return type(e)
        return None

    assert refusal(skimp) is refusal(torch) is not None


@pytest.mark.parametrize("name", CALLS)
def test_signatures_name_every_option(name):
    found = inspect.signature(_of(skimp, name)).parameters
    assert {"dtype", "layout", "device", "requires_grad"} <= set(found)


@pytest.mark.parametrize("name", ["zeros", "empty"])
def test_sizes_that_only_a_zero_makes_few(name):
    """NumPy counts such a zero as a one."""
    for library in (torch, skimp):
        made = getattr(library, name)(2**62, 0, 4)
        assert (tuple(made.shape), made.stride()) == ((2**62, 0, 4), (4, 4, 1))
        with pytest.raises(RuntimeError, match="Storage size calculation overflowed with sizes"):
            getattr(library, name)(2**40, 2**40, 0)
