"""Equations of einsum: what is written becomes labels of dimensions.

A label is an int: letters are 0 to 51, the dimensions of the ellipsis are 52 and on, counted from
the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from skimp._engine.tensor.tensor import Tensor

ELLIPSIS: Final = -1
_LETTERS: Final = 52
Labels = list[int]
Ints = tuple[int, ...]
Equation = str | tuple[tuple[Ints, ...], Ints | None]  # as it is written, or lists of labels
Read = tuple[list[Labels], Labels, dict[int, int]]


def require_tensors(operands: Any) -> None:
    for t in operands:
        if not isinstance(t, Tensor):
            raise TypeError(
                f"einsum(): argument 'operands' must be tuple of Tensors, not {type(t).__name__}"
            )


def read(equation: Equation, shapes: Sequence[Ints]) -> Read:
    """The labels of each operand and of the result, and the sizes of all."""
    if not isinstance(equation, str):
        lists, output = equation
        return _placed([*map(list, lists)], None if output is None else [*output], shapes)
    left, arrow, right = equation.partition("->")
    inputs = [_labels(part, f"operand {i}", equation) for i, part in enumerate(left.split(","))]
    if not shapes:
        raise RuntimeError("einsum(): must provide at least one operand")
    if len(shapes) != len(inputs):
        more = "more" if len(shapes) > len(inputs) else "fewer"
        raise RuntimeError(
            f"einsum(): {more} operands were provided than specified in the equation"
        )
    return _placed(inputs, _labels(right, "output", equation) if arrow else None, shapes)


def _placed(inputs: list[Labels], output: Labels | None, shapes: Sequence[Ints]) -> Read:
    width = _ellipsis_width(inputs, shapes)
    labels = [
        _spelled(own, len(shape) - len(own) + 1 if ELLIPSIS in own else 0)
        for own, shape in zip(inputs, shapes, strict=True)
    ]
    sizes = _sizes(labels, shapes)
    return labels, _output(inputs, output, width), sizes


def _labels(text: str, what: str, equation: str) -> Labels:
    found: Labels = []
    i = 0
    while i < len(text):
        c = text[i]
        i += 1
        if c == " ":
            continue
        if c == ".":
            if ELLIPSIS in found:
                rest = (
                    "for which an ellipsis was already found"
                    if what != "output"
                    else "but an ellipsis (...) was already found"
                )
                raise RuntimeError(f"einsum(): found '.' for {what} {rest}")
            if text[i : i + 2] != "..":
                raise RuntimeError(
                    f"einsum(): found '.' for {what} that is not part of any ellipsis"
                )
            found.append(ELLIPSIS)
            i += 2
        elif c.isascii() and c.isalpha():
            found.append(ord(c) - 65 if c.isupper() else ord(c) - 97 + 26)
        else:
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {equation.index(c)} in the equation "
                "string, subscripts must be in [a-zA-Z]"
            )
    return found


def parse(args: tuple[Any, ...]) -> tuple[Equation, Any]:
    """The equation among einsum's arguments, and the operands: in one list, or one by one, or
    between the lists of labels that an equation may be."""
    if isinstance(args[0], str):
        listed = len(args) == 2 and isinstance(args[1], (list, tuple))
        return args[0], args[1] if listed else args[1:]
    output = None
    if len(args) % 2:
        args, output = args[:-1], _listed(args[-1])
    tensors = list(args[::2])
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"einsum(): expected Tensor as operand {i}, but got {type(t).__name__}")
    return (tuple([_listed(labels) for labels in args[1::2]]), output), tensors


def _listed(labels: Any) -> Ints:
    found = []
    for n in labels:
        if n is Ellipsis:
            found.append(ELLIPSIS)
        elif 0 <= n < _LETTERS:
            found.append(int(n))
        else:
            raise ValueError(
                "einsum(): subscript in subscript list is not within the valid range [0, "
                f"{_LETTERS})"
            )
    return tuple(found)


def name(label: int) -> str:
    """The letter of a label, for messages."""
    return chr(label + 65) if label < 26 else chr(label - 26 + 97) if label < _LETTERS else "..."


def _ellipsis_width(inputs: list[Labels], shapes: Sequence[Ints]) -> int:
    """How many dimensions the widest ellipsis covers."""
    widths = [0]
    for i, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        named, ndim = len([n for n in labels if n != ELLIPSIS]), len(shape)
        if ELLIPSIS in labels:
            if named > ndim:
                raise RuntimeError(
                    f"einsum(): the number of subscripts in the equation ({named}) is more than "
                    f"the number of dimensions ({ndim}) for operand {i}"
                )
            widths.append(ndim - named)
        elif named != ndim:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the "
                f"number of dimensions ({ndim}) for operand {i} and no ellipsis was given"
            )
    return max(widths)


def _spelled(labels: Labels, covered: int) -> Labels:
    """With the ellipsis as the labels of the dimensions that it covers."""
    found: Labels = []
    for n in labels:
        found.extend(range(_LETTERS + covered - 1, _LETTERS - 1, -1) if n == ELLIPSIS else [n])
    return found


def _sizes(labels: list[Labels], shapes: Sequence[Ints]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for i, (own, shape) in enumerate(zip(labels, shapes, strict=True)):
        seen: dict[int, int] = {}
        for label, n in zip(own, shape, strict=True):
            if seen.setdefault(label, n) != n:
                raise RuntimeError(
                    f"einsum(): subscript {name(label)} is repeated for operand {i} but the sizes "
                    f"don't match, {n} != {seen[label]}"
                )
        for label, n in seen.items():
            known = sizes.get(label, 1)
            if known != n and known != 1 and n != 1:
                raise RuntimeError(
                    f"einsum(): subscript {name(label)} has size {n} for operand {i} which does "
                    f"not broadcast with previously seen size {known}"
                )
            sizes[label] = n if known == 1 else known
    return sizes


def _output(inputs: list[Labels], output: Labels | None, width: int) -> Labels:
    given = [n for labels in inputs for n in labels]
    if output is None:
        once = sorted([n for n in set(given) if n != ELLIPSIS and given.count(n) == 1])
        return _spelled([ELLIPSIS], width) + once
    for n in output:
        if n != ELLIPSIS and n not in given:
            raise RuntimeError(
                f"einsum(): output subscript {name(n)} does not appear in the equation for any "
                "input operand"
            )
        if output.count(n) > 1:
            raise RuntimeError(
                f"einsum(): output subscript {name(n)} appears more than once in the output"
            )
    return _spelled(output, width)
