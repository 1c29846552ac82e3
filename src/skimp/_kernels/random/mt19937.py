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
    """

    __slots__ = (
        "_bits",
        "_fresh",
        "_legacy",
        "_numpy",
        "_seed",
        "lock",
        "next_double",
        "next_float",
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

    def random32(self, n: int) -> NDArray[np.uint32]:
        """The next `n` words."""
        if n:
            self._fresh = False
        if n <= _FEW:
            return self._bits.random_raw(n).astype(np.uint32)
        return self._numpy.integers(0, _TWO32, n, dtype=np.uint32)

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
            inner: Any = self._bits.state["state"]
            pos = int(inner["pos"])
            record["seed"] = self._seed
            record["left"] = _KEY_WORDS + 1 - pos
            record["seeded"] = 1
            record["next"] = 0 if self._fresh else pos
            record["key"] = inner["key"]
            if self.next_double is not None:
                record["normal_y"] = self.next_double
                record["has_double"] = 1
            if self.next_float is not None:
                record["next_float"] = self.next_float
                record["has_float"] = 1
        return record.view(np.uint8)  # type: ignore[no-any-return]

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
            self._fresh = fresh
            self.next_double = float(record["normal_y"]) if record["has_double"] else None
            self.next_float = float(record["next_float"]) if record["has_float"] else None

    def clone(self) -> Engine:
        """An engine that goes on with the same numbers on its own."""
        twin = Engine()
        twin.set_state(self.get_state())
        return twin
