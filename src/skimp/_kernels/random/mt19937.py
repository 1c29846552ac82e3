"""PyTorch's CPU generator: mt19937 under a 64-bit seed, drawn by NumPy, saved as PyTorch does."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels import bare, compiled, sharing
from skimp._kernels.locks import free_in_children, reentrant

DEFAULT_SEED: Final = 67280421310721  # what torch.Generator() starts from
STATE_BYTES: Final = 5056
KEY_WORDS: Final = 624
_TWO32: Final = 1 << 32
_LAST_PAIR: Final = (1 << 64) - 1
_FEW: Final = 1 << 16  # up to this many words random_raw is faster, for twice the memory
_FEW_PAIRS: Final = 1 << 11
_AHEAD: Final = 16 * KEY_WORDS
_ALONE: Final = 5 * KEY_WORDS  # more words than these are made for whoever asks
_NONE: Final = np.empty(0, np.uint32)
_UNKNOWN: Final = -1
_LAST_WORD: Final = (1 << 32) - 1
_SHARED: Final = 1 << 17  # pairs that threads share, of whose work a half each has to do alone
_PAIR: Final = 0.4e-9  # seconds for each

# CPUGeneratorImplState of PyTorch, field by field (native alignment).
_STATE: Final = np.dtype(
    [
        ("seed", np.uint64),
        ("left", np.int32),
        ("seeded", np.int32),
        ("next", np.uint64),
        ("key", np.uint64, KEY_WORDS),
        ("normal_x", np.float64),
        ("normal_y", np.float64),
        ("normal_rho", np.float64),
        ("has_double", np.int32),
        ("_gap", np.int32),
        ("next_float", np.float32),
        ("has_float", np.uint8),
        ("_end", np.uint8, 3),
    ]
)


def _unsigned(seed: int) -> int:
    if not -(1 << 63) <= seed < 1 << 64:
        raise ValueError("Overflow when unpacking long long")
    return seed % (1 << 64)


def _pairs(numpy: np.random.Generator, n: int) -> NDArray[np.uint64]:
    return numpy.integers(0, _LAST_PAIR, n, dtype=np.uint64, endpoint=True)


@cache
def _draws_pairs() -> bool:
    """Whether NumPy's own numbers have the first word as their upper half, which is up to its
    compiler: they take half the time of words that are joined here."""
    words = np.random.Generator(np.random.MT19937(0)).integers(0, _TWO32, 16, dtype=np.uint64)
    firsts, seconds = words.reshape(8, 2).T
    pairs = _pairs(np.random.Generator(np.random.MT19937(0)), 8)
    return bool((firsts * np.uint64(_TWO32) + seconds == pairs).all())


def _memory(bits: np.random.MT19937) -> NDArray[np.uint32] | None:
    """Its 624 words and how many are drawn, where they lie; None where NumPy has them otherwise."""
    told: Any = bits.ctypes
    words: Any = (ctypes.c_uint32 * (KEY_WORDS + 1)).from_address(told.state_address)
    found, kept = np.frombuffer(words, np.uint32), bits.state["state"]
    return found if [*kept["key"].tolist(), kept["pos"]] == found.tolist() else None


class Engine:
    """The state of one CPU generator; hold `lock` from the first to the last word of a draw.

    `next_double` and `next_float` are the halves of a Box-Muller pair that PyTorch keeps for later.

    Few words at a time come out of `words`, up to the end of the 624 that mt19937 makes at once, or
    of several times as many: those from `at` on are the next ones. `uniforms`, `normals` and
    `doubles` were computed from many of them at once (`few.py`, `normal.py`), and go with them.

    An exception that a signal handler raises comes after a call, never between statements without
    one: so what belongs together changes there, and mt19937 hands its words to the list `_next` in
    the call that makes them. Wherever it comes, the state is one that the draw passes.
    """

    __slots__ = (
        "_bits", "_fresh", "_legacy", "_next", "_numpy", "_pos", "_seed", "_state", "at", "doubles",
        "lock", "next_double", "next_float", "normals", "uniforms", "words",
    )  # fmt: skip

    _bits: np.random.MT19937
    _numpy: np.random.Generator
    _legacy: np.random.RandomState
    _state: NDArray[np.uint32] | None

    def __init__(self, seed: int = DEFAULT_SEED) -> None:
        self.lock = reentrant()
        self._begin(KEY_WORDS)
        self.next_double: float | None = None
        self.next_float: float | None = None
        self._seed = _unsigned(seed)
        self._fresh = True

    def __getattr__(self, name: str) -> Any:
        """NumPy's generators, made when they are first asked for: loading `numpy.random` takes
        20 ms and 7 MiB, which an import and a program that draws nothing go without.
        """
        if name == "_state":
            self._state = _memory(self._bits)
            return self._state
        if name not in ("_bits", "_numpy", "_legacy"):
            raise AttributeError(name)
        with self.lock:
            bits = np.random.MT19937(0)
            numpy, legacy = np.random.Generator(bits), np.random.RandomState(bits)
            # RandomState seeds as the reference mt19937 does, from 32 bits, like PyTorch.
            legacy.seed(self._seed % _TWO32)
            free_in_children(bits.lock)  # which another thread's draw holds
            self._bits, self._numpy, self._legacy = bits, numpy, legacy
        return object.__getattribute__(self, name)

    def load(self) -> None:
        """Make NumPy's generators on this thread: a helper would wait for the lock that who waits
        for the helper has.
        """
        self._bits = self._bits

    def manual_seed(self, seed: int) -> None:
        """Start again from `seed`, a signed or unsigned 64-bit number; -1 is 2**64 - 1."""
        seed = _unsigned(seed)
        with self.lock:
            legacy = self._legacy  # loaded before anything changes
            self._begin(_UNKNOWN)
            self.next_double = None
            self.next_float = None
            legacy.seed(seed % _TWO32)
            self._seed = seed
            self._pos = KEY_WORDS
            self._fresh = True

    def seed(self) -> int:
        """Start again from 53 bits of the system's entropy, and return them."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little") >> 11)
        return self._seed

    def initial_seed(self) -> int:
        """The seed this sequence started from, unsigned."""
        return self._seed

    def _begin(self, pos: int) -> None:
        """NumPy's state is another, with `pos` of its 624 words drawn; none of them lies here."""
        self._pos = pos
        self._fresh = False
        self._next: list[NDArray[Any]] = []
        self.words = _NONE
        self.at = 0
        self.uniforms: NDArray[np.float32] | None = None
        self.normals: Any = None
        self.doubles: list[NDArray[np.float64] | None] = [None, None]

    def random32(self, n: int) -> NDArray[np.uint32]:
        """The next `n` words."""
        start, left = self.at, self.words.size - self.at
        if n <= left:
            self.at = start + n
            return self.words[start : start + n].copy()
        if n - left > (KEY_WORDS if self.words is _NONE else _ALONE) and not self._next:
            return self._many(n)
        if self._next and n - left > self._next[0].size:  # since a draw that did not end
            first = self.random32(left + self._next[0].size)
            return bare.concatenate((first, self.random32(n - first.size)))
        if self._drawn() < KEY_WORDS:  # of a block that has begun, and of which none lies here
            self._have(self._ahead(KEY_WORDS - self._pos), 0)
            return self.random32(n)
        few = KEY_WORDS if self.words is _NONE else _ALONE
        made = self._ahead(few if self.words.size < _ALONE else _AHEAD)
        more = made[: n - left]
        result = bare.concatenate((self.words[start:], more)) if left else more.copy()
        self._have(made, n - left)
        return result

    def _drawn(self) -> int:
        """How many of its 624 words mt19937 has given."""
        if self._pos == _UNKNOWN:
            self._pos = int(self._bits.state["state"]["pos"])
        return self._pos

    def _ahead(self, count: int) -> NDArray[np.uint32]:
        """The next `count` words that mt19937 makes, or those that it has made already; they stay
        the next ones until `_have`.
        """
        if not self._next:
            loops = compiled.loops()
            if loops is None or (state := self._state) is None:
                self._next.extend(map(self._bits.random_raw, (count,)))
            else:
                made = np.empty(count, np.uint32)
                self._next.extend(map(loops.words, (state,), (made,)))
        return self._next[0].astype(np.uint32, copy=False)

    def _have(self, made: NDArray[np.uint32], at: int) -> None:
        """The words of `_ahead` are those that lie here, the first `at` of them drawn."""
        self._fresh = False
        self._next = []
        self._pos = KEY_WORDS
        self.words = made
        self.at = at
        self.uniforms = self.normals = None
        self.doubles = [None, None]

    def _many(self, n: int) -> NDArray[np.uint32]:
        """More words than are kept: what lies here, and the others right from mt19937."""
        rest, loops = self.words[self.at :], compiled.loops()
        if loops is None and n > _FEW and not rest.size:
            return self._straight(n, lambda: self._numpy.integers(0, _TWO32, n, dtype=np.uint32))
        state = None if loops is None else self._state

        def drawn() -> NDArray[np.uint32]:
            result = np.empty(n, np.uint32)
            result[: rest.size] = rest
            if state is not None:
                loops.words(state, result[rest.size :])
                return result
            for start in range(rest.size, n, _FEW):
                part = result[start : start + _FEW]
                part[...] = self._bits.random_raw(part.size)
            return result

        return self._straight(n - rest.size, drawn)

    def _straight(self, words: int, draw: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """What `draw` makes of so many words right from mt19937; none lies here then."""
        pos = (self._drawn() + words - 1) % KEY_WORDS + 1
        self._begin(_UNKNOWN)
        result = draw()
        self._pos = pos
        return result

    def place32(self, n: int) -> tuple[NDArray[np.uint32], int]:
        """`random32`, to be read alone: where they lie, if they do, as words and where among them
        these begin.
        """
        start = self.at
        end = start + n
        if end > self.words.size:
            return self.random32(n), 0
        self.at = end
        return self.words, start

    def random64(self, n: int) -> NDArray[np.uint64]:
        """The next `n` pairs of words, the first of each pair in the upper half."""
        straight = n > _FEW_PAIRS and self.at == self.words.size and not self._next
        if straight and compiled.loops() is None and _draws_pairs():
            return self._straight(2 * n, lambda: _pairs(self._numpy, n))
        return paired(self.random32(2 * n))

    def pairs(self, n: int, step: int) -> Iterator[NDArray[np.uint64]]:
        """The same, so many at a time; take all of them."""
        starts = range(0, n, step)
        straight = n > _FEW_PAIRS and self.at == self.words.size and not self._next
        if not straight or compiled.loops() is not None or not _draws_pairs():
            for start in starts:
                yield self.random64(min(step, n - start))
            return
        pos = (self._drawn() + 2 * n - 1) % KEY_WORDS + 1
        draw = self._numpy.integers
        self._begin(_UNKNOWN)
        for start in starts:
            yield draw(0, _LAST_PAIR, min(step, n - start), np.uint64, True)
        self._pos = pos

    def stay(self, out: NDArray[np.bool_], bound: int) -> bool:
        """out = which of the next pairs, 53 bits of each, are below; whether compiled loops did it,
        as they do where all words that lie here are among those, and of mt19937's last 623: of
        its 624 one at least is drawn in every state."""
        loops, left = compiled.loops(), self.words.size - self.at
        if loops is None or self._next or not out.flags.c_contiguous:
            return False
        state = self._state
        if state is None or left > min(2 * out.size, KEY_WORDS - 1):
            return False
        if left:  # they are drawn again
            pos = self._drawn() - left
            self._begin(_UNKNOWN)
            state[KEY_WORDS] = self._pos = pos
        given = state, out.reshape(-1).view(np.uint8), bound >> 32, bound & _LAST_WORD
        if out.size < _SHARED:
            self._straight(2 * out.size, lambda: loops.stays(*given, 1))
        else:
            drawn = partial(sharing.call, loops.stays, out.size, _PAIR, *given)
            self._straight(2 * out.size, drawn)
        return True

    def at_hand64(self, most: int) -> NDArray[np.uint64]:
        """The same of up to `most` pairs of those words that lie here; they stay the next ones."""
        n = min(most, (self.words.size - self.at) // 2)
        return paired(self.words[self.at : self.at + 2 * n])

    def skip(self, words: int) -> None:
        """Advance as if `words` words had been drawn."""
        while words > 0:
            step = min(words, 1 << 16)
            self.random32(step)
            words -= step

    def get_state(self) -> NDArray[np.uint8]:
        """The state as the 5056 bytes of torch.get_rng_state()."""
        with self.lock:
            record: Any = np.zeros(1, _STATE)
            pos, key = self._place()
            record["seed"] = self._seed
            record["left"] = KEY_WORDS + 1 - pos
            record["seeded"] = 1
            record["next"] = 0 if self._fresh else pos
            record["key"] = key
            if self.next_double is not None:
                record["normal_y"] = self.next_double
                record["has_double"] = 1
            if self.next_float is not None:
                record["next_float"] = self.next_float
                record["has_float"] = 1
        return record.view(np.uint8)  # type: ignore[no-any-return]

    def _place(self) -> tuple[int, NDArray[np.uint32]]:
        """How many of 624 words are drawn, and the numbers that mt19937 made them of."""
        if self._next:  # a draw that did not end needed one of them at least
            self._have(self._ahead(0), 1 if self._drawn() == KEY_WORDS else 0)
        left = self.words.size - self.at
        if left < KEY_WORDS:
            return self._drawn() - left, self._bits.state["state"]["key"]
        pos = (self.at - 1) % KEY_WORDS + 1
        start = self.at - pos
        return pos, untempered(self.words[start : start + KEY_WORDS])

    def set_state(self, state: NDArray[np.uint8]) -> None:
        """Go on from the bytes that get_state or torch.get_rng_state returned."""
        if state.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if state.size != STATE_BYTES:
            raise RuntimeError(
                f"Expected a CPUGeneratorImplState of size {STATE_BYTES} but found the input "
                f"RNG state size to be {state.size}"
            )
        record: Any = np.ascontiguousarray(state).reshape(-1).view(_STATE)[0]
        left, next_ = int(record["left"]), int(record["next"])
        # Each draw moves a word from left to next; only a seed leaves left = 1 with next = 0.
        fresh = left == 1 and next_ == 0
        coherent = fresh or (1 <= left <= KEY_WORDS and left + next_ == KEY_WORDS + 1)
        if not (record["seeded"] and coherent):
            raise RuntimeError("Invalid mt19937 state")
        inner: Any = {"key": record["key"].astype(np.uint32), "pos": KEY_WORDS + 1 - left}
        seed = int(record["seed"])
        double = float(record["normal_y"]) if record["has_double"] else None
        single = float(record["next_float"]) if record["has_float"] else None
        with self.lock:
            self._begin(_UNKNOWN)
            self._bits.state = {"bit_generator": "MT19937", "state": inner}
            self._seed, self._pos, self._fresh = seed, inner["pos"], fresh
            self.next_double, self.next_float = double, single

    def clone(self) -> Engine:
        """An engine that goes on with the same numbers on its own."""
        twin = Engine()
        twin.set_state(self.get_state())
        return twin


def paired(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Pairs of words as numbers of their own, the first of each pair in the upper half; without an
    odd last one.
    """
    words = words[: words.size & ~1]
    if sys.byteorder == "big":
        return words.copy().view(np.uint64)
    turned = np.empty(words.size, np.uint32)
    turned[::2], turned[1::2] = words[1::2], words[::2]
    return turned.view(np.uint64)


def untempered(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What mt19937 made these words of (Matsumoto and Nishimura's tempering, undone)."""
    y = words ^ (words >> np.uint32(18))
    y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
    x: NDArray[np.uint32] = y
    for _ in range(4):  # seven more bits are right each time
        x = y ^ ((x << np.uint32(7)) & np.uint32(0x9D2C5680))
    y = x ^ (x >> np.uint32(11))
    x ^= y >> np.uint32(11)
    return x
