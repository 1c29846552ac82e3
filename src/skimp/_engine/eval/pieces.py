"""Where the blocks of a domain are: each dim is cut into pieces, and a box is one of each."""

from __future__ import annotations

from skimp._engine.eval.expr import Shape

Cut = tuple[slice, int]
Box = tuple[tuple[slice, ...], Shape]  # a place, and its shape


def cuts(size: int, part: int) -> list[Cut]:
    """The pieces of one dim: slices and their lengths."""
    return [(slice(start, start + part), min(part, size - start)) for start in range(0, size, part)]


def box_of(number: int, sides: list[list[Cut]]) -> Box:
    """Where the block with this number is, blocks counted in C order, and its shape."""
    if len(sides) == 1:
        cut, length = sides[0][number]
        return (cut,), (length,)
    found: list[Cut] = []
    for side in reversed(sides):
        number, index = divmod(number, len(side))
        found.append(side[index])
    found.reverse()
    return tuple([cut for cut, _ in found]), tuple([length for _, length in found])
