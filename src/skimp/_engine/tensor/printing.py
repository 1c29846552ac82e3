"""The text of tensors and storages: PyTorch's, character for character.

It works on NumPy arrays. Of a tensor with more than `threshold` elements only those that are shown
are read, so printing a view of a huge file or an expanded tensor costs nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from skimp._engine.interrupts import insist, region
from skimp._engine.tensor import dtypes

# --- options ----------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class PrintOptions:
    """How tensors are printed; `sci_mode` None lets the values of each tensor decide."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PRINT_OPTS: Final = PrintOptions()  # of the process, not of a thread, as in PyTorch
_PROFILES: Final[dict[str | None, dict[str, Any]]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed: a profile ("default", "short", "full"), and options over it.

    What is None stays as it is, except `sci_mode`, which every call sets.
    """
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in {**_PROFILES.get(profile, {}), **chosen}.items():
        setattr(PRINT_OPTS, name, value)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options, as keyword arguments of `set_printoptions`."""
    return dataclasses.asdict(PRINT_OPTS)


@region
def printoptions(**options: Any) -> Iterator[None]:
    """Print with other options inside a `with`; the arguments are those of `set_printoptions`."""
    before = get_printoptions()
    try:
        set_printoptions(**options)
        yield
    finally:
        insist(lambda: set_printoptions(**before))


# --- tensors ----------------------------------------------------------------------------------


def tensor_str(
    array: npt.NDArray[Any],
    dt: dtypes.dtype,
    *,
    requires_grad: bool = False,
    grad_fn: str | None = None,
    default_dtype: dtypes.dtype = dtypes.float32,
    device: str = "cpu",
    class_name: str = "tensor",
) -> str:
    """PyTorch's `repr` of this tensor.

    `grad_fn` is the name of its node, `class_name` that of its class where it is a subclass.
    """
    suffixes = []
    if device != "cpu":
        suffixes.append(f"device='{device}'")
    if _says_size(array):
        suffixes.append(f"size={array.shape}")
    if _says_dtype(array, dt, default_dtype):
        suffixes.append(f"dtype={dt!r}")
    suffixes += _history(requires_grad, grad_fn)
    prefix = class_name + "("
    return add_suffixes(prefix + contents(array, len(prefix)), suffixes, len(prefix))


def str_without_elements(
    shape: tuple[int, ...],
    dt: dtypes.dtype,
    *,
    requires_grad: bool = False,
    grad_fn: str | None = None,
    default_dtype: dtypes.dtype = dtypes.float32,
) -> str:
    """PyTorch's `repr` of a tensor on the device "meta"."""
    suffixes = ["device='meta'", f"size={shape}"]
    if dt is not default_dtype:
        suffixes.append(f"dtype={dt!r}")
    suffixes += _history(requires_grad, grad_fn)
    return add_suffixes("tensor(...", suffixes, len("tensor("))


def parameter_str(text: str, *, plain: bool, derived: bool) -> str:
    """PyTorch's `repr` of a parameter, from that of its tensor: `plain` ones say `tensor(...)`,
    and what is only flagged as a parameter is not `derived` from its class.
    """
    text = text if plain else f"Parameter({text})"
    return f"Parameter containing:\n{text}" if plain or derived else text


def _history(requires_grad: bool, grad_fn: str | None) -> list[str]:
    if grad_fn is not None:
        return [f"grad_fn=<{grad_fn}>"]
    return ["requires_grad=True"] if requires_grad else []


def _says_size(array: npt.NDArray[Any]) -> bool:
    """Whether the elements in brackets leave the shape open."""
    return not PRINT_OPTS.edgeitems if array.size else array.ndim != 1


def _says_dtype(array: npt.NDArray[Any], dt: dtypes.dtype, default: dtypes.dtype) -> bool:
    """Whether the elements leave the type open: no default type, nor one that literals have."""
    if dt is default:
        return False
    if not array.size:
        return True
    complex_default = dtypes.complex128 if default is dtypes.float64 else dtypes.complex64
    return dt not in (complex_default, dtypes.int64, dtypes.bool)


def add_suffixes(text: str, suffixes: list[str], indent: int, force_newline: bool = False) -> str:
    """The text, a comma before each suffix, a new line before those that would not fit, and `)`."""
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or column + len(suffix) + 2 > PRINT_OPTS.linewidth:
            text += ",\n" + " " * indent + suffix
            column, force_newline = indent + len(suffix), False
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def contents(array: npt.NDArray[Any], indent: int) -> str:
    """The elements in brackets, in lines that begin `indent` columns from the left."""
    if not array.size:
        return "[]"
    summarize = array.ndim > 0 and array.size > PRINT_OPTS.threshold
    if summarize and not PRINT_OPTS.edgeitems:
        return "[...]"
    cuts = tuple(summarize and n > 2 * PRINT_OPTS.edgeitems for n in array.shape)
    shown = _edges(array, cuts) if True in cuts else array
    texts, width = _element_texts(shown)
    return _nested(texts, shown.shape, cuts, indent, width)


def _edges(array: npt.NDArray[Any], cuts: tuple[bool, ...]) -> npt.NDArray[Any]:
    """A copy of what is shown: the first and last elements of each dimension that is cut."""
    edge = PRINT_OPTS.edgeitems
    kept = (
        [*range(edge), *range(n - edge, n)] if cut else range(n)
        for n, cut in zip(array.shape, cuts, strict=True)
    )
    edges: npt.NDArray[Any] = array[np.ix_(*kept)]
    return edges


def _nested(
    texts: list[str], shape: tuple[int, ...], cuts: tuple[bool, ...], indent: int, width: int
) -> str:
    """The elements in brackets; dimensions that are cut have an ellipsis in their middle."""
    if not shape:
        return texts[0]
    if len(shape) == 1:
        return _row(texts, cuts[0], indent, width)
    step = len(texts) // shape[0]
    parts = [
        _nested(texts[start : start + step], shape[1:], cuts[1:], indent + 1, width)
        for start in range(0, len(texts), step)
    ]
    if cuts[0]:
        parts.insert(PRINT_OPTS.edgeitems, "...")
    between = "," + "\n" * (len(shape) - 1) + " " * (indent + 1)
    return "[" + between.join(parts) + "]"


def _row(texts: list[str], cut: bool, indent: int, width: int) -> str:
    """The last dimension in brackets, on as many lines as it needs."""
    if cut:
        edge = PRINT_OPTS.edgeitems
        texts = [*texts[:edge], " ...", *texts[edge:]]
    per_line = max(1, math.floor((PRINT_OPTS.linewidth - indent) / (width + 2)))
    if len(texts) <= per_line:
        return "[" + ", ".join(texts) + "]"
    lines = (", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line))
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


# --- elements ---------------------------------------------------------------------------------

# Texts of equal width (mostly: what the width leaves out is longer), and that width.
Texts = tuple[list[str], int]


def _element_texts(array: npt.NDArray[Any]) -> Texts:
    if array.dtype.kind == "c":
        return _complex_texts(array.real.ravel().tolist(), array.imag.ravel().tolist())
    values = array.ravel().tolist()
    return _float_texts(values) if isinstance(values[0], float) else _exact_texts(values)


def _exact_texts(values: list[int]) -> Texts:
    """Integers and bools."""
    texts = [str(value) for value in values]
    return _padded(texts, max(map(len, texts)))


def _complex_texts(real: list[float], imag: list[float]) -> Texts:
    """Real and imaginary parts have formats of their own; only the real ones are padded."""
    real_texts, real_width = _float_texts(real)
    imag_texts, imag_width = _float_texts(imag)
    texts = [
        first + ("" if second.lstrip()[0] in "+-" else "+") + second.lstrip() + "j"
        for first, second in zip(real_texts, imag_texts, strict=True)
    ]
    return texts, real_width + imag_width + 1


def _float_texts(values: list[float]) -> Texts:
    """Finite values other than 0 decide the format and the width; the others follow."""
    decides = [value != 0 and math.isfinite(value) for value in values]
    spec, point = _format([*itertools.compress(values, decides)])
    texts = [format(value, spec) + (point if math.isfinite(value) else "") for value in values]
    width = max(map(len, itertools.compress(texts, decides)), default=1)
    return _padded(texts, width)


def _format(values: list[float]) -> tuple[str, str]:
    """A format for all of these values, and what follows it: the point of whole numbers."""
    if values and _is_scientific([abs(value) for value in values]):
        return f".{PRINT_OPTS.precision}e", ""
    if all(value.is_integer() for value in values):
        return ".0f", "."
    return f".{PRINT_OPTS.precision}f", ""


def _is_scientific(sizes: Sequence[float]) -> bool:
    if PRINT_OPTS.sci_mode is not None:
        return PRINT_OPTS.sci_mode
    smallest, largest = min(sizes), max(sizes)
    return largest / smallest > 1000.0 or largest > 1.0e8 or smallest < 1.0e-4


def _padded(texts: list[str], width: int) -> Texts:
    return [text.rjust(width) for text in texts], width


# --- storages ---------------------------------------------------------------------------------


def storage_str(kind: str, size: int, elements: npt.NDArray[Any] | None) -> str:
    """The `repr` of a storage: all its elements, one per line, as Python's numbers; those of one
    without bytes (None) are left out.
    """
    lines = "..." if elements is None else " " + "\n ".join(map(str, elements.tolist()))
    return f"{lines}\n[torch.storage.{kind} of size {size}]"
