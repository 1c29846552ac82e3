"""PyTorch's CPU generator: mt19937 under a 64-bit seed, drawn by NumPy, saved as PyTorch does."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

DEFAULT_SEED: Final = 67280421310721  # what torch.Generator() starts from
STATE_BYTES: Final = 5056
_KEY_WORDS: Final = 624
_TWO32: Final = 1 << 32
_FEW: Final = 1 << 16  # up to this many words random_raw is faster, for twice the memory
_AHEAD: Final = 4 * _KEY_WORDS
_NONE: Final = np.empty(0, np.uint32)

# CPUGeneratorImplState of PyTorch, field by field (native alignment).
_STATE: Final = np.dtype(
    [
        ("seed", np.uint64),
        ("left", np.int32),
        ("seeded", np.int32),
        ("next", np.uint64),
        ("key", np.uint64, _KEY_WORDS),
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


class Engine:
    """The state of one CPU generator; hold `lock` from the first to the last word of a draw.

    `next_double` and `next_float` are the halves of a Box-Muller pair that PyTorch keeps for later.

    Few words at a time come out of `words`, up to the end of the 624 that mt19937 makes at once, or
    of several times as many: those from `at` on are the next ones. `uniforms` and `normals` were
    computed from many of them at once (`few.py`), and go with them.
    """

    __slots__ = (
        "_bits",
        "_fresh",
        "_legacy",
        "_numpy",
        "_pos",
        "_seed",
        "at",
        "lock",
        "next_double",
        "next_float",
        "normals",
        "uniforms",
        "words",
    )

    def __init__(self, seed: int = DEFAULT_SEED) -> None:
        self.lock = threading.RLock()
        self._bits = np.random.MT19937(0)
        self._numpy = np.random.Generator(self._bits)
        self._legacy = np.random.RandomState(self._bits)
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> None:
        """Start again from `seed`, a signed or unsigned 64-bit number; -1 is 2**64 - 1."""
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError("Overflow when unpacking long long")
        with self.lock:
            self._seed = seed % (1 << 64)
            # RandomState seeds as the reference mt19937 does, from 32 bits, like PyTorch.
            self._legacy.seed(self._seed % _TWO32)
            self._begin(_KEY_WORDS)
            self._fresh = True
            self.next_double: float | None = None
            self.next_float: float | None = None

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
        self.words = _NONE
        self.at = 0
        self.uniforms: NDArray[np.float32] | None = None
        self.normals: tuple[int, NDArray[np.float32]] | None = None

    def random32(self, n: int) -> NDArray[np.uint32]:
        """The next `n` words."""
        start, left = self.at, self.words.size - self.at
        if n <= left:
            self.at = start + n
            return self.words[start : start + n].copy()
        self._fresh = False
        rest = self.words[start:]
        if n - left > _KEY_WORDS:
            self._begin(self._pos)
            return self._many(n, rest)
        self.refill()
        more = self.random32(n - left)
        return np.concatenate((rest, more)) if left else more

    def _many(self, n: int, rest: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """`rest`, and so many new words that they are `n`."""
        more = n - rest.size
        self._pos = (self._pos + more - 1) % _KEY_WORDS + 1
        if n > _FEW and not rest.size:
            return self._numpy.integers(0, _TWO32, n, dtype=np.uint32)
        result = np.empty(n, np.uint32)
        result[: rest.size] = rest
        for start in range(rest.size, n, _FEW):
            part = result[start : start + _FEW]
            part[...] = self._bits.random_raw(part.size)
        return result

    def refill(self) -> None:
        """Have the next words in `words`: what mt19937 has made, or makes next, and more where a
        stream goes on in small steps; the ones that lay there are gone.
        """
        self._fresh = False
        count = _KEY_WORDS - self._pos or (_KEY_WORDS if self.words is _NONE else _AHEAD)
        self.words = self._bits.random_raw(count).astype(np.uint32)
        self._pos = _KEY_WORDS
        self.at = 0
        self.uniforms = self.normals = None

    def random64(self, n: int) -> NDArray[np.uint64]:
        """The next `n` pairs of words, the first of each pair in the upper half."""
        pairs = self.random32(2 * n).view(np.uint64)
        if sys.byteorder == "big":
            return pairs
        firsts = pairs << np.uint64(32)
        pairs >>= np.uint64(32)
        pairs |= firsts
        return pairs

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
            record["left"] = _KEY_WORDS + 1 - pos
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
        left = self.words.size - self.at
        if left < _KEY_WORDS:
            return self._pos - left, self._bits.state["state"]["key"]
        pos = (self.at - 1) % _KEY_WORDS + 1
        start = self.at - pos
        return pos, _untempered(self.words[start : start + _KEY_WORDS])

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
        coherent = fresh or (1 <= left <= _KEY_WORDS and left + next_ == _KEY_WORDS + 1)
        if not (record["seeded"] and coherent):
            raise RuntimeError("Invalid mt19937 state")
        with self.lock:
            self._seed = int(record["seed"])
            inner: Any = {"key": record["key"].astype(np.uint32), "pos": _KEY_WORDS + 1 - left}
            self._bits.state = {"bit_generator": "MT19937", "state": inner}
            self._begin(inner["pos"])
            self._fresh = fresh
            self.next_double = float(record["normal_y"]) if record["has_double"] else None
            self.next_float = float(record["next_float"]) if record["has_float"] else None

    def clone(self) -> Engine:
        """An engine that goes on with the same numbers on its own."""
        twin = Engine()
        twin.set_state(self.get_state())
        return twin


def _untempered(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What mt19937 made these words of (Matsumoto and Nishimura's tempering, undone)."""
    y = words ^ (words >> np.uint32(18))
    y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
    x: NDArray[np.uint32] = y
    for _ in range(4):  # seven more bits are right each time
        x = y ^ ((x << np.uint32(7)) & np.uint32(0x9D2C5680))
    y = x ^ (x >> np.uint32(11))
    x ^= y >> np.uint32(11)
    return x
