"""Embeddings: rows of a table, by number."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.checks import require_ndim
from skimp._engine.tensor.options import InitVar, options
from skimp._engine.tensor.tensor import Tensor
from skimp.nn import functional as F, init, ops
from skimp.nn.modules.calling import calling
from skimp.nn.modules.module import Module
from skimp.nn.parameter import Parameter

NOT_A_TABLE = "Embeddings parameter is expected to be 2-dimensional"


def _padding_index(index: int | None, count: int, name: str) -> int | None:
    if index is None:
        return None
    if not -count <= index < count:
        raise AssertionError(f"{name} must be within num_embeddings")
    return index % count


class _Table(Module):
    """The weights of an embedding."""

    weight: Any
    padding_idx: int | None
    num_embeddings: int
    embedding_dim: int

    def _skimp_set_weight(
        self, given: Tensor | None, frozen: bool, device: Any, dtype: Any
    ) -> None:
        shape = (self.num_embeddings, self.embedding_dim)
        if given is None:
            self.weight = Parameter(
                ops.empty(shape, device=device, dtype=dtype), requires_grad=not frozen
            )
            self.reset_parameters()
            return
        if tuple(given.shape) != shape:
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        self.weight = Parameter(given, requires_grad=not frozen)

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)


@options
class Embedding(_Table):
    """The rows of a table that the input names.

    The row of `padding_idx` is 0 at first and gets no gradient. `max_norm` renormalizes looked-up
    rows of the table itself, in place, before they are read.

    Shape: any of indices, to (*, embedding_dim); weight (num_embeddings, embedding_dim).
    Dtypes: indices int32 or int64; the result's is the weight's.
    Raises: AssertionError for a padding_idx or a table that doesn't fit; IndexError in forward
    for an index outside the table.
    Memory: a new tensor; with `sparse` the weight's gradient is a sparse tensor of the rows.
    """

    _skimp_shows = (
        "num_embeddings, embedding_dim, padding_idx?, max_norm?, norm_type?, scale_grad_by_freq?, "
        "sparse?"
    )
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None = None
    max_norm: float | None = None
    norm_type: float = 2.0
    scale_grad_by_freq: bool = False
    sparse: bool = False
    _weight: InitVar[Tensor | None] = None
    _freeze: InitVar[bool] = False
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def _skimp_set_up(self, weight: Tensor | None, freeze: bool, device: Any, dtype: Any) -> None:
        self.padding_idx = _padding_index(self.padding_idx, self.num_embeddings, "Padding_idx")
        self._skimp_set_weight(weight, freeze, device, dtype)

    forward = calling(
        "embedding", "input", "weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse"
    )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Any:
        """An embedding on a given table, which learns only if `freeze` is False."""
        require_ndim(embeddings, 2, says=NOT_A_TABLE, error=AssertionError)
        rows, cols = embeddings.shape
        return cls(
            num_embeddings=rows,
            embedding_dim=cols,
            _weight=embeddings,
            _freeze=freeze,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )


@options
class EmbeddingBag(_Table):
    """Sums, means or maxima of bags of rows.

    Shape: (N, L) gives (N, embedding_dim), one bag a row; (L,) with offsets (N,) gives the same,
    bag i from offset i to the next. per_sample_weights as the input, for "sum".
    Dtypes: indices and offsets int32 or int64, alike.
    Raises: AssertionError for a padding_idx or a table that doesn't fit; in forward, ValueError
    for offsets that don't fit the rank.
    Memory: a new tensor; rows are never gathered in full.
    """

    _skimp_shows = (
        "num_embeddings, embedding_dim, max_norm?, norm_type?, scale_grad_by_freq?, mode!r=, "
        "padding_idx?"
    )
    num_embeddings: int
    embedding_dim: int
    max_norm: float | None = None
    norm_type: float = 2.0
    scale_grad_by_freq: bool = False
    mode: str = "mean"
    sparse: bool = False
    _weight: InitVar[Tensor | None] = None
    include_last_offset: bool = False
    padding_idx: int | None = None
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def _skimp_set_up(self, weight: Tensor | None, device: Any, dtype: Any) -> None:
        self.padding_idx = _padding_index(self.padding_idx, self.num_embeddings, "padding_idx")
        self._skimp_set_weight(weight, False, device, dtype)

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return F.embedding_bag(  # type: ignore[no-any-return]
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Any:
        """An embedding bag on a given table, which learns only if `freeze` is False."""
        require_ndim(embeddings, 2, says=NOT_A_TABLE, error=AssertionError)
        rows, cols = embeddings.shape
        made = cls(
            num_embeddings=rows,
            embedding_dim=cols,
            _weight=embeddings,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        made.weight.requires_grad = not freeze
        return made
