"""torch.nn.attention.flex_attention: attention whose scores and mask are functions of positions.

The functions get tensors of indices that broadcast to all pairs of positions, once; they are
elementwise, so that is what calling them for each pair gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.creation import tensor
from skimp._ops.create.ranges import arange
from skimp.nn.functional import pad

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask",
    "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip

Mod = Callable[..., Any]
_DEFAULT_SPARSE_BLOCK_SIZE = 128


class AuxRequest(NamedTuple):
    """What `flex_attention` is to return besides its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for: the log of the sum of exponentials, the largest score, of each row."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Everybody sees everything.

    Shape: any; the result has `batch`'s.
    Dtypes: integers; the result's is bool.
    Raises: nothing.
    Memory: a new tensor.
    """
    return batch.new_ones((), dtype=dtypes.bool, device=batch.device)


def and_masks(*mask_mods: Mod) -> Mod:
    """The mask that lets through what all of these do."""
    _check_all("and_masks", mask_mods)

    def and_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = noop_mask(b, h, q_idx, kv_idx)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods: Mod) -> Mod:
    """The mask that lets through what one of these does."""
    _check_all("or_masks", mask_mods)

    def or_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = b.new_zeros((), dtype=dtypes.bool)
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def _check_all(name: str, mask_mods: tuple[Mod, ...]) -> None:
    if not all(callable(mask) for mask in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")


def _positions(*sizes: int) -> list[Tensor]:
    """For each dim the numbers from 0, in a tensor that broadcasts along the others."""
    n = len(sizes)
    return [
        arange(size).reshape([-1 if i == at else 1 for i in range(n)])
        for at, size in enumerate(sizes)
    ]


def create_mask(
    mod_fn: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:
    """The mask of all pairs, or where a function of scores does not give -inf: (B, H, Q_LEN,
    KV_LEN).

    Shape: (B, H, Q_LEN, KV_LEN), with 1 for a B or H of None.
    Dtypes: bool.
    Raises: what `mod_fn` raises.
    Memory: a new tensor of all pairs.
    """
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    at = _positions(*sizes)
    scores = mod_fn.__code__.co_argcount == 5 if hasattr(mod_fn, "__code__") else False
    found = mod_fn(tensor(0.0).expand(sizes), *at) != -math.inf if scores else mod_fn(*at)
    return found.expand(sizes).clone()  # type: ignore[no-any-return]


class BlockMask:
    """A mask by blocks: which blocks of keys each block of queries looks at, in part or whole."""

    def __init__(
        self, mask_mod: Mod, seq_lengths: tuple[int, int], BLOCK_SIZE: tuple[int, int], **held: Any
    ) -> None:
        self.mask_mod, self.seq_lengths, self.BLOCK_SIZE = mask_mod, seq_lengths, BLOCK_SIZE
        self.kv_num_blocks: Tensor = held["kv_num_blocks"]
        self.kv_indices: Tensor = held["kv_indices"]
        self.full_kv_num_blocks: Tensor | None = held["full_kv_num_blocks"]
        self.full_kv_indices: Tensor | None = held["full_kv_indices"]

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: Mod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        **_: Any,
    ) -> BlockMask:
        """The mask of given blocks: for each block of queries how many, and which."""
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError(
                "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
            )
        size = _pair(BLOCK_SIZE)
        rows, columns = kv_indices.shape[-2:]
        return cls(
            mask_mod or noop_mask,
            seq_lengths or (rows * size[0], columns * size[1]),
            size,
            kv_num_blocks=kv_num_blocks,
            kv_indices=kv_indices,
            full_kv_num_blocks=full_kv_num_blocks,
            full_kv_indices=full_kv_indices,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """The number of pairs."""
        return math.prod(self.shape)

    def to(self, device: Any) -> BlockMask:
        """The mask: there is one place for it to be."""
        return self

    def to_dense(self) -> Tensor:
        """Which blocks are looked at, in part or whole: 1, and 0 elsewhere."""
        found = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None:
            found = found | _dense(self.full_kv_num_blocks, self.full_kv_indices)
        return found.to(dtypes.int32)

    def sparsity(self) -> float:
        """Which part of the pairs, in percent, is in blocks that nobody looks at."""
        blocks: float = self.to_dense().sum().item()
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def allowed(self) -> Tensor:
        """Which pairs are let through: in whole blocks all, else what the function says."""
        B, H, Q, KV = (*self.kv_indices.shape[:-2], *self.seq_lengths)
        each = self.mask_mod(*_positions(B, H, Q, KV))
        some = self._spread(_dense(self.kv_num_blocks, self.kv_indices)) & each
        if self.full_kv_num_blocks is not None:
            some = some | self._spread(_dense(self.full_kv_num_blocks, self.full_kv_indices))
        return some  # type: ignore[no-any-return]

    def _spread(self, blocks: Tensor) -> Tensor:
        for dim, size, length in zip((-2, -1), self.BLOCK_SIZE, self.seq_lengths, strict=True):
            blocks = blocks.repeat_interleave(size, dim).narrow(dim, 0, length)
        return blocks

    def __repr__(self) -> str:
        return (
            f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, "
            f"BLOCK_SIZE={self.BLOCK_SIZE}, mask_mod={getattr(self.mask_mod, '__name__', '?')})"
        )


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _dense(counts: Any, indices: Any) -> Tensor:
    """The truth table of blocks of which the first `counts` of each row's `indices` are meant."""
    columns = indices.shape[-1]
    meant = arange(columns) < counts.unsqueeze(-1)
    table = meant.new_zeros(indices.shape)
    return table.scatter(-1, indices.long(), meant)  # type: ignore[no-any-return]


def _listed(table: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of each row are meant, and their numbers before all others."""
    counts = table.sum(-1).to(dtypes.int32)
    return counts, (~table).to(dtypes.int32).argsort(-1, stable=True).to(dtypes.int32)


def create_block_mask(
    mask_mod: Mod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    **_: Any,
) -> BlockMask:
    """The blocks that a function of positions lets through, in part or whole."""
    size = _pair(BLOCK_SIZE)
    each = create_mask(mask_mod, B, H, Q_LEN, KV_LEN)
    rows, columns = -(-Q_LEN // size[0]), -(-KV_LEN // size[1])
    padded = pad(each, (0, columns * size[1] - KV_LEN, 0, rows * size[0] - Q_LEN))
    blocks = padded.reshape(*each.shape[:2], rows, size[0], columns, size[1]).sum((3, 5))
    whole = blocks == size[0] * size[1]
    if not separate_full_blocks:
        whole = whole & False
    counts, indices = _listed((blocks > 0) & ~whole)
    full_counts, full_indices = _listed(whole)
    return BlockMask(
        mask_mod,
        (Q_LEN, KV_LEN),
        size,
        kv_num_blocks=counts,
        kv_indices=indices,
        full_kv_num_blocks=full_counts if separate_full_blocks else None,
        full_kv_indices=full_indices if separate_full_blocks else None,
    )


def _check(
    query: Tensor, key: Tensor, value: Tensor, mask: BlockMask | None, enable_gqa: bool
) -> None:
    if any(t.dim() != 4 for t in (query, key, value)):
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension but got "
            f"E={query.shape[-1]} and E={key.shape[-1]}."
        )
    batches, heads = (query.shape[0], key.shape[0]), (query.shape[1], key.shape[1])
    if heads[0] != heads[1] and not enable_gqa:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got "
            f"Hq={heads[0]} and Hkv={heads[1]}. Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and heads[0] % heads[1]:
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={heads[0]} and Hkv={heads[1]}."
        )
    if batches[0] != batches[1] and mask is None:
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, but "
            f"got block_mask=None, Bq={batches[0]}, and Bkv={batches[1]}."
        )


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Mod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(query keyᵀ scale)) value under a mask; of (B, H, length, features).

    The scores of all pairs are in memory at once. Rows that see nothing are 0.

    Shape: query (B, H, L, E), key and value (B, H, S, E); with `enable_gqa` heads that divide.
    Dtypes: floating point.
    Raises: NotImplementedError for other than four dims, ValueError for heads, features and batches
    that don't fit.
    Memory: a new tensor, and the scores of all pairs.
    """
    _check(query, key, value, block_mask, enable_gqa)
    if query.shape[1] != key.shape[1]:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    work = dtypes.float64 if query.dtype is dtypes.float64 else dtypes.float32
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query.to(work) @ key.to(work).transpose(-2, -1)) * scale
    if score_mod is not None:
        scores = score_mod(scores, *_positions(*scores.shape)).to(work)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.allowed(), -math.inf)
    weights = scores.softmax(-1).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0)
    result = (weights @ value.to(work)).to(query.dtype)
    if return_aux is not None:
        lse = scores.logsumexp(-1) if return_aux.lse else None
        return result, AuxOutput(lse, scores.amax(-1) if return_aux.max_scores else None)
    return (result, scores.logsumexp(-1)) if return_lse else result
