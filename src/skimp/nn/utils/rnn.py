"""Sequences of different lengths: packed for recurrent layers, or padded."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from typing import Any

import numpy as np

from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import ops

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
    "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip

PackedSequence_ = namedtuple(
    "PackedSequence_", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"]
)


class PackedSequence(PackedSequence_):
    """The rows of sequences sorted by length, step by step; `batch_sizes` says how many go on at
    each step.

    Shape: data (rows, ...), batch_sizes (steps,), indices (N,) or None.
    Memory: `to` and its like give a new one, or itself where nothing changes.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:  # a pair in place of the two
            data, batch_sizes = data
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with `data.to(...)`."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self._with(data)

    def _with(self, data: Tensor) -> PackedSequence:
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def pin_memory(self) -> PackedSequence:
        """The same: there is no device that pinned memory would serve."""
        return self

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same: all memory is the host's."""
        return self.to(*args, **kwargs) if args or kwargs else self

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Raises: no CUDA here."""
        return self.to("cuda")

    def double(self) -> PackedSequence:
        return self.to(dtypes.float64)

    def float(self) -> PackedSequence:
        return self.to(dtypes.float32)

    def half(self) -> PackedSequence:
        return self.to(dtypes.float16)

    def long(self) -> PackedSequence:
        return self.to(dtypes.int64)

    def int(self) -> PackedSequence:
        return self.to(dtypes.int32)

    def short(self) -> PackedSequence:
        return self.to(dtypes.int16)

    def char(self) -> PackedSequence:
        return self.to(dtypes.int8)

    def byte(self) -> PackedSequence:
        return self.to(dtypes.uint8)

    @property
    def is_cuda(self) -> bool:
        return False

    def is_pinned(self) -> bool:
        return False


def invert_permutation(permutation: Any) -> Any:
    """The permutation that undoes this one.

    Shape: (n,), int64, and the same for the result; None for None.
    Memory: a new tensor.
    """
    if permutation is None:
        return None
    order = permutation._skimp_array()
    back = np.empty_like(order)
    back[order] = np.arange(order.size, dtype=order.dtype)
    return ops.from_numpy(back)


def _places(lengths: Any) -> tuple[Any, Any]:
    """For lengths from long to short: step and sequence of every packed row."""
    steps = np.arange(lengths[0])
    step, sequence = np.nonzero(steps[:, None] < lengths[None, :])
    return step, sequence


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """The rows of a padded batch that are within their sequence's length.

    Shape: input (T, N, ...), or (N, T, ...) with `batch_first`; lengths (N,), on the CPU.
    Dtypes: any; lengths are integers.
    Raises: RuntimeError for lengths that are not positive, above T, or increase with
    `enforce_sorted`.
    Memory: the rows are a new tensor.
    """
    if not isinstance(input, Tensor):
        raise TypeError(
            "_pack_padded_sequence(): argument 'input' (position 1) must be Tensor, not "
            f"{type(input).__name__}"
        )
    counts = np.asarray(
        lengths._skimp_array() if isinstance(lengths, Tensor) else lengths, np.int64
    ).reshape(-1)
    order = None
    if not enforce_sorted:
        order = np.argsort(-counts, kind="stable")
        counts = counts[order]
    if batch_first:
        input = input.transpose(0, 1)
    ordered = None
    if order is not None:
        ordered = ops.from_numpy(order)
        input = input.index_select(1, ordered)
    _check_lengths(input, counts)
    steps, rows = _places(counts)
    sizes = np.bincount(steps, minlength=int(counts[0]))
    data = input[ops.from_numpy(steps), ops.from_numpy(rows)]
    return PackedSequence(data, ops.from_numpy(sizes), ordered, None)


def _check_lengths(input: Tensor, counts: Any) -> None:
    if not input.numel():
        raise RuntimeError("Cannot pack empty tensors.")
    if len(counts) != input.size(1):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} "
            f"(batch_size={input.size(1)})"
        )
    if counts[-1] <= 0 or (counts <= 0).any():
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if (np.diff(counts) > 0).any():
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if counts[0] > input.size(0):
        raise RuntimeError(
            f"Expected all lengths to be at most {input.size(0)}, but got {counts[0]}"
        )


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: Any = None,
) -> tuple[Tensor, Tensor]:
    """The padded batch behind a packed one, and its lengths.

    Shape: to (T, N, ...), or (N, T, ...) with `batch_first`, and lengths (N,); `total_length` at
    least T.
    Dtypes: any; lengths are int64.
    Raises: ValueError for a `total_length` below the longest.
    Memory: a new tensor.
    """
    data, sizes, _, back = sequence
    steps = sizes.numel()
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, "
                f"but got total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    counts = sizes._skimp_array()
    lengths = (counts[:, None] > np.arange(counts[0])[None, :]).sum(0)
    step, row = _places(lengths)
    shape = (steps, int(counts[0]), *data.shape[1:])
    padded = data.new_full(shape, padding_value)
    padded = padded.index_put((ops.from_numpy(step), ops.from_numpy(row)), data)
    if batch_first:
        padded = padded.transpose(0, 1)
    if back is not None:  # after the transpose, so that a new tensor is row-major
        padded = padded.index_select(0 if batch_first else 1, back)
        lengths = lengths[back._skimp_array()]
    return padded, ops.from_numpy(lengths)


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of different lengths as one batch.

    Shape: sequences (L, ...) to (T, N, ...), or (N, T, ...) with `batch_first`, T the longest.
    Dtypes: any, alike.
    Raises: RuntimeError for an empty list, sequences whose other dims differ, and an unknown side.
    Memory: a new tensor.
    """
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            + str(type(sequences))
        )
    parts = tuple(sequences)
    if not parts:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    for i, p in enumerate(parts):
        if not isinstance(p, Tensor):
            raise TypeError(
                f"expected Tensor as element {i} in argument 0, but got {type(p).__name__}"
            )
    longest = max([p.size(0) for p in parts])
    rows = []
    for p in parts:
        if p.shape[0] == longest:
            rows.append(p)
            continue
        fill = p.new_full((longest - p.shape[0], *p.shape[1:]), padding_value)
        rows.append(ops.cat([p, fill] if padding_side == "right" else [fill, p]))
    return ops.stack(rows, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded batch; without `batch_first` it transposes the batch in place, as
    PyTorch's does.

    Shape: (T, N, ...), or (N, T, ...) with `batch_first`, and lengths (N,); a list of (L, ...).
    Dtypes: any; lengths are integers.
    Raises: AttributeError for lengths that are no tensor.
    Memory: new tensors.
    """
    if not batch_first:
        padded_sequences.transpose_(0, 1)
    return [
        rows[:n].clone(memory_format=formats.contiguous_format)
        for rows, n in zip(padded_sequences.unbind(0), lengths.tolist(), strict=True)
    ]


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences.

    Shape: sequences (L, ...), the longest first unless `enforce_sorted` is False.
    Memory: a new tensor.
    """
    lengths = ops.tensor([v.size(0) for v in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed batch.

    Shape: a list of (L, ...).
    Dtypes: any.
    Raises: TypeError for what is not packed.
    Memory: new tensors, and a padded copy while they are made.
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
