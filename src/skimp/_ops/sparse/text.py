"""Sparse tensors as text, character for character PyTorch's."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor import printing, promotion
from skimp._engine.tensor.tensor import Array

_INDENT = len("tensor(")


def _part(name: str, array: Array) -> str:
    head = f"{name}=tensor("
    body = printing.contents(array, _INDENT + len(head))
    size = "" if array.size else f", size={array.shape}"
    return f"{head}{body}{size})"


def compressed_text(t: Any) -> str:
    """PyTorch's `repr` of a tensor compressed by rows or columns."""
    names = ("ccol_indices", "row_indices") if t._along else ("crow_indices", "col_indices")
    parts = {names[0]: t._starts, names[1]: t._places, "values": t._held}
    gap = ",\n" + " " * _INDENT
    whole = gap.join([_part(name, part.detach()._skimp_array()) for name, part in parts.items()])
    suffixes = [f"size={tuple(t.shape)}", *_suffixes(t)]
    return _told(t, printing.add_suffixes(f"tensor({whole}", suffixes, _INDENT))


def text(t: Any) -> str:
    """PyTorch's `repr` of a sparse tensor."""
    parts = [
        _part("indices", t._at.detach()._skimp_array()),
        _part("values", t._held.detach()._skimp_array()),
    ]
    gap = ",\n" + " " * _INDENT
    suffixes = [f"size={tuple(t.shape)}", *_suffixes(t)]
    whole = printing.add_suffixes("tensor(" + gap.join(parts), suffixes, _INDENT, True)
    return _told(t, whole)


def _told(t: Any, text: str) -> str:
    if getattr(t, "_is_param", False):
        return printing.parameter_str(text, plain=True, derived=False)
    return text


def _suffixes(t: Any) -> list[str]:
    suffixes = [f"nnz={t._nnz()}"]
    if t._dtype is not promotion.get_default_dtype():
        complex_default = promotion.default_complex_dtype()
        if t._dtype.name not in (complex_default.name, "int64", "bool"):
            suffixes.append(f"dtype={t._dtype!r}")
    suffixes.append(f"layout={t.layout!r}")
    if t.grad_fn is not None:
        suffixes.append(f"grad_fn=<{t.grad_fn._skimp_label}>")
    elif t.requires_grad:
        suffixes.append("requires_grad=True")
    return suffixes
