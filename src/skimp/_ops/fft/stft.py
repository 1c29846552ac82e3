"""Spectra of overlapping frames of a signal, and the signal back from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import general, hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory.call_site import warn_once
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.creation import full
from skimp._ops.fft.spectral import _c2c, _c2r, _r2c
from skimp._ops.nn.padding import constant_pad, pad
from skimp._ops.shape.complex_views import view_as_real

_NO_WINDOW = (
    "A window was not provided. A rectangular window will be applied,which is known to cause "
    "spectral leakage. Other windows such as torch.hann_window or torch.hamming_window are "
    "recommended to reduce spectral leakage.To suppress this warning and use a rectangular window, "
    "explicitly set `window=torch.ones(n_fft, device=<device>)`."
)


def _described(t: Tensor) -> str:
    return f"{promotion.scalar_type_name(t._dtype)}{list(t.shape)}"


class _Call:
    """How a call is named in errors: the function, its tensor and the numbers given."""

    def __init__(self, name: str, input: Tensor, **numbers: Any) -> None:
        given = [f"{k}={v}" for k, v in numbers.items()]
        self.text = f"{name}({', '.join([_described(input), *given])})"

    def refuse(self, why: str) -> RuntimeError:
        return RuntimeError(f"{self.text}: {why}")


def _whole_window(window: Tensor | None, size: int, win_length: int, like: Tensor) -> Tensor:
    """The window with zeros on both sides, as long as a frame."""
    if window is None:
        window = full((win_length,), 1.0, dtype=like._dtype.to_real(), device=like.device)
    left = (size - win_length) // 2
    if win_length < size:
        window = constant_pad(window, [left, size - win_length - left])
    return window


def _check_window(call: _Call, window: Tensor | None, win_length: int) -> None:
    if window is not None and (window.ndim != 1 or window.shape[0] != win_length):
        raise call.refuse(
            f"expected a 1D window tensor of size equal to win_length={win_length}, but got window "
            f"with size {list(window.shape)}"
        )


def _half_wanted(onesided: bool | None, complex_in: bool) -> bool:
    if onesided is None:
        return not complex_in
    if onesided and complex_in:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    return onesided


def _node(input: Any, return_complex: bool | None, **_: Any) -> str | None:
    return "SqueezeBackward4" if input.ndim == 1 and return_complex else None


@general(autocast="float32")
@shown(_node)
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The Fourier transforms of windowed frames, (batch, frequency, frame); `center` pads so that
    frame t is centred at t * hop_length.

    Shape: (time) or (batch, time); the result is (batch, frequencies, frames).
    """
    if center:
        if align_to_window is not None:
            raise RuntimeError("stft align_to_window should only be set when center = false")
        around = n_fft // 2
        batched = input.view((1,) * (3 - input.ndim) + tuple(input.shape))
        padded = pad(batched, [around, around], pad_mode)
        input = padded.view(tuple(padded.shape[padded.ndim - input.ndim :]))
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    call = _Call("stft", input, n_fft=n_fft, hop_length=hop, win_length=length)
    _check_stft(call, input, n_fft, hop, length)
    _check_window(call, window, length)
    complex_in = input._dtype.is_complex or (window is not None and window._dtype.is_complex)
    if return_complex is None and not complex_in:
        raise RuntimeError(
            "stft requires the return_complex parameter be given for real inputs, and will further "
            "require that return_complex=True in a future PyTorch release."
        )
    if window is None:
        warn_once(_NO_WINDOW)
    half = _half_wanted(onesided, complex_in)
    signal = input if input.ndim == 2 else input.unsqueeze(0)
    if align_to_window:
        left = (n_fft - length) // 2
        signal = constant_pad(signal, [left, n_fft - length - left])
    frames = signal.unfold(-1, n_fft, hop)
    if window is not None or length < n_fft:
        frames = frames * _whole_window(window, n_fft, length, input)
    factor = "ortho" if normalized else "none"
    made = _c2c(frames, (2,), factor, True) if complex_in else _r2c(frames, (2,), factor, half)
    made = made.transpose(1, 2)
    if input.ndim == 1:
        made = made.squeeze(0)
    return made if return_complex or return_complex is None else view_as_real(made)


def _check_stft(call: _Call, input: Tensor, n_fft: int, hop: int, length: int) -> None:
    if input._dtype.category < dtypes.FLOAT:
        raise call.refuse("expected a tensor of floating point or complex values")
    if input.ndim not in (1, 2):
        raise call.refuse("expected a 1D or 2D tensor")
    size = input.shape[-1]
    if not 0 < n_fft <= size:
        raise call.refuse(f"expected 0 < n_fft < {size}, but got n_fft={n_fft}")
    if hop <= 0:
        raise call.refuse(f"expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise call.refuse(f"expected 0 < win_length <= n_fft, but got win_length={length}")


# -- back -----------------------------------------------------------------------------------------


@hidden(
    rule=Rule(
        "UnfoldBackwardBackward0",
        input=lambda g, input_shape, hop: g.unfold(-1, input_shape[-1], hop),
    )
)
def _overlap_add(input: Tensor, hop: int) -> Tensor:
    """Frames (batch, frame, n) added at distance `hop`: the adjoint of unfold."""
    batch, count, size = input.shape
    if input._hollow:
        return meta.empty((batch, size + hop * (count - 1)), input._dtype)
    frames = input._skimp_array()
    made, into = blank((batch, size + hop * (count - 1)), input._dtype)
    into[...] = 0
    for start in range(0, size, hop):  # the parts of all frames that touch no other frame's part
        part = frames[:, :, start : start + hop]
        width = part.shape[-1]
        end = start + hop * (count - 1) + width
        whole = np.lib.stride_tricks.sliding_window_view(
            into[:, start:end], width, axis=-1, writeable=True
        )
        whole[:, ::hop] += part
    return made


@general()
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose frames have these spectra: the least squares estimate of Griffin and Lim
    (1984).

    Shape: (frequencies, frames), or with a batch in front; the result is (time) or (batch, time).
    Dtypes: complex numbers.
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    call = _Call("istft", input, n_fft=n_fft, hop_length=hop, win_length=width)
    if not input._dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        )
    if input.numel() == 0:
        raise call.refuse("input tensor cannot be empty.")
    if input.ndim not in (2, 3):
        raise call.refuse(f"expected a tensor with 3 or 4 dimensions, but got {input.ndim + 1}")
    half = _check_istft(call, input, n_fft, hop, width, window, onesided, return_complex)
    count = input.shape[-1]
    batched = input if input.ndim == 3 else input.unsqueeze(0)
    spectra = batched.transpose(1, 2)
    factor = "ortho" if normalized else "all"
    if return_complex:
        frames = _c2c(spectra, (2,), factor, False)
    else:
        frames = _c2r(
            spectra if half else spectra.narrow(2, 0, n_fft // 2 + 1), (2,), factor, n_fft
        )
    weights = _whole_window(window, n_fft, width, input)
    made = _overlap_add(frames * weights.view((1, 1, n_fft)), hop)
    envelope = _overlap_add(weights.pow(2).view((1, 1, n_fft)).expand((1, count, n_fft)), hop)
    have = n_fft + hop * (count - 1)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else have - start
    made, envelope = (t.narrow(1, start, min(end, have) - start) for t in (made, envelope))
    known = envelope.numel() and not envelope._hollow
    lowest = envelope.detach().abs().min().item() if known else 1.0
    if not lowest > 1e-11:
        raise call.refuse(f"window overlap add min: {lowest}; it must be above 1e-11 everywhere")
    made = made / envelope
    if end > have:
        made = constant_pad(made, [0, end - have])
    return made if input.ndim == 3 else made.squeeze(0)


def _check_istft(
    call: _Call,
    input: Tensor,
    n_fft: int,
    hop: int,
    width: int,
    window: Tensor | None,
    onesided: bool | None,
    return_complex: bool,
) -> bool:
    """Whether the spectra are halves."""
    size = input.shape[-2]
    half = size != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if half else n_fft
    if size != wanted:
        what = "n_fft / 2 + 1 when onesided=True" if half else "n_fft when onesided=False"
        raise call.refuse(
            "expected the frequency dimension (3rd to the last) of the input tensor to match "
            f"{what}, but got {size}"
        )
    if not 0 < hop <= width:
        raise call.refuse("expected 0 < hop_length <= win_length")
    if not 0 < width <= n_fft:
        raise call.refuse("expected 0 < win_length <= n_fft")
    if window is not None and (window.ndim != 1 or window.shape[0] != width):
        raise call.refuse("Invalid window shape. window has to be 1D and length of `win_length`")
    if return_complex and half:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if not return_complex and window is not None and window._dtype.is_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    return half


SAYS = """\
Dtypes: floating point and complex numbers.
Raises: RuntimeError for other dtypes, and for windows and lengths that don't fit."""
