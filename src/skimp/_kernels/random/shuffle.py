"""A shuffle whose swaps are known, at the speed of C.

NumPy's legacy `shuffle`, frozen as its stream is, goes from the last element to the second, and
swaps each with one of those up to it, by a number that mt19937 draws: a word's lower bits, if they
are not too large. So it makes any swaps if the words are chosen: they are written where its
generator reads its state, which is told where that lies.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels import bare, compiled, shaping
from skimp._kernels.random.mt19937 import KEY_WORDS, untempered

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]

# Of the words that are read, one after another: behind the position, which is the last of
# mt19937's state, and of which it is asked only whether it is KEY_WORDS.
_FIRST: Final = KEY_WORDS + 1
_LISTED: Final = 1 << 10  # places whose words are kept, and what depends on their number alone
_ROOM: Final = 1 << 16  # swaps for which there is room in what is kept


class _Dealer:
    """NumPy's `shuffle` on words of ours, by one thread at a time."""

    __slots__ = ("shuffle", "state")

    def __init__(self, swaps: int) -> None:
        self.state = np.zeros(_FIRST + swaps, np.uint32)
        bits = np.random.MT19937(0)
        told: Any = bits.ctypes
        where = ctypes.c_void_p.from_address(told.bit_generator.value)  # `bitgen_t` begins with it
        if where.value != told.state_address:
            raise RuntimeError(f"NumPy {np.__version__} has generators of another layout")
        where.value = shaping.address(self.state)
        self.shuffle = np.random.RandomState(bits).shuffle  # which copies that


_idle: Final[list[_Dealer]] = []


def permutation(words: U32) -> I64:
    """What swapping i with i + words[i] % (n - i), for each i in turn, makes of 0 .. n - 1, where n
    is one more than there are words.
    """
    swaps = len(words)
    loops = compiled.loops() if swaps < _ROOM else None
    if loops is not None:
        found: I64 = loops.shuffled(words)
        return found
    left, last, numbers = _known(swaps + 1) if swaps < _LISTED else _of(swaps + 1)
    places = bare.remainder(words, left)
    bare.subtract(last, places, places)  # from the other end, from which `shuffle` comes
    try:
        dealer = _idle.pop()
    except IndexError:  # there is none yet, or another thread uses it
        dealer = _Dealer(max(swaps, _LISTED))
    if swaps > len(dealer.state) - _FIRST:
        dealer = _Dealer(swaps)
    state = dealer.state
    state[KEY_WORDS] = _FIRST
    if swaps < _LISTED:
        _words().take(places, None, state[_FIRST : _FIRST + swaps], "clip")
        numbers = numbers.copy()
    else:
        state[_FIRST : _FIRST + swaps] = untempered(places)
    dealer.shuffle(numbers[::-1])
    if len(state) <= _FIRST + _ROOM:
        _idle.append(dealer)
    return numbers


def _of(n: int) -> tuple[U32, U32, I64]:
    """How many numbers are left for each place but the last, the last of them, and all numbers."""
    left = np.arange(n, 1, -1, dtype=np.uint32)
    return left, left - np.uint32(1), np.arange(n)


_known: Final = lru_cache(maxsize=16)(_of)


@lru_cache(maxsize=1)
def _words() -> U32:
    """The word of each place."""
    return untempered(np.arange(_LISTED, dtype=np.uint32))
