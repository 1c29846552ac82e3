"""Sets that parameters and samples are checked against: `constraint.check(value)` says, for each
event, whether it lies inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from skimp import linalg
from skimp._engine.dispatch.transforms import active
from skimp._engine.tensor.dtypes import bool as boolean_dtype
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels.threads import quietly
from skimp._ops.reduce.small_sums import row_sums
from skimp.nn import ops

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent",
    "dependent_property", "greater_than", "greater_than_eq", "half_open_interval", "independent",
    "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
    "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive",
    "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector",
    "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


_LOOKED_AT: Final = frozenset("fd?bBhilq")  # types whose arrays are looked at as tensors are
_COMPARED: Final = frozenset("fdlq")  # and compared with a number


class Constraint:
    """A set of values; `event_dim` dimensions on the right are one event."""

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each event of `value` is inside: a bool tensor of the batch's shape."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}()"


class _Dependent(Constraint):
    """A set that depends on other parameters, or on the distribution itself."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim
        super().__init__()

    @property
    def is_discrete(self) -> Any:
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self) -> Any:
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(
        self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> Any:
        """The same, knowing more."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, x: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether the set is unknown without the distribution."""
    return isinstance(constraint, _Dependent)


class dependent_property(property, _Dependent):  # noqa: N801 (PyTorch's name)
    """A property of a distribution that is a constraint; of the class, a dependent one."""

    def __init__(
        self,
        fn: Callable[[Any], Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[[Any], Any]) -> Any:  # type: ignore[override]
        return dependent_property(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """A set of events made of events: all must be inside."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> Any:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        if result.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        if self.reinterpreted_batch_ndims != 1 or not result.numel():
            result = result.reshape(
                (*result.shape[: result.dim() - self.reinterpreted_batch_ndims], -1)
            )
        return result.all(-1)

    def __repr__(self) -> str:
        inner, n = repr(self.base_constraint), self.reinterpreted_batch_ndims
        return f"{type(self).__name__[1:]}({inner}, {n})"


class MixtureSameFamilyConstraint(Constraint):
    """What every component of a mixture supports."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> Any:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        inside = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        n = value.dim() - self.event_dim
        while inside.dim() > max(n, 0):
            inside = inside.all(-1)
        return inside

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


class _Formula(Constraint):
    """A set whose formula takes an array as it takes a tensor: of small tensors it sees the
    array.
    """

    def check(self, value: Tensor) -> Tensor:
        a = value._np if type(value) is Tensor and not active else None
        if a is not None and self._skimp_takes(a):
            return fresh(quietly(self._skimp_inside, a), boolean_dtype)
        made: Tensor = self._skimp_inside(value)
        return made

    def _skimp_takes(self, a: Array) -> bool:
        return a.dtype.char in _LOOKED_AT and a.ndim >= self.event_dim

    def _skimp_inside(self, value: Any) -> Any:
        raise NotImplementedError


class _Boolean(_Formula):
    is_discrete = True

    def _skimp_inside(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _OneHot(_Formula):
    is_discrete = True
    event_dim = 1

    def _skimp_inside(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & (_sum(value) == 1)


def _sum(value: Any) -> Any:
    """Over events."""
    if type(value) is np.ndarray and value.dtype.kind == "f":
        return row_sums(value)
    return value.sum(-1)  # flags are counted


class _Bounded(_Formula):
    """A set with bounds, which `repr` shows."""

    def _skimp_takes(self, a: Array) -> bool:
        for bound in vars(self).values():
            if type(bound) is not float and type(bound) is not int:
                return False
        # a bound that is none of a narrow integer's wraps for tensors, and not for arrays
        return a.dtype.char in _COMPARED and super()._skimp_takes(a)

    def __repr__(self) -> str:
        words = ", ".join(f"{name}={bound}" for name, bound in vars(self).items())
        return f"{type(self).__name__[1:]}({words})"


class _From(_Bounded):
    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound
        super().__init__()


class _UpTo(_Bounded):
    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound
        super().__init__()


class _Between(_Bounded):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        super().__init__()


def _if_whole(value: Any, inside: Any) -> Any:
    """`inside`, where the values are whole numbers, as those of an integer type are."""
    array = type(value) is np.ndarray
    floating = value.dtype.kind == "f" if array else value.is_floating_point()
    return (value % 1 == 0) & inside if floating else inside


class _IntegerInterval(_Between):
    """Whole numbers between bounds that count."""

    is_discrete = True

    def _skimp_inside(self, value: Any) -> Any:
        return _if_whole(value, (self.lower_bound <= value) & (value <= self.upper_bound))


class _IntegerLessThan(_UpTo):
    is_discrete = True

    def _skimp_inside(self, value: Any) -> Any:
        return _if_whole(value, value <= self.upper_bound)


class _IntegerGreaterThan(_From):
    is_discrete = True

    def _skimp_inside(self, value: Any) -> Any:
        return _if_whole(value, value >= self.lower_bound)


class _Real(_Formula):
    def _skimp_inside(self, value: Any) -> Any:
        return value == value


class _GreaterThan(_From):
    """Numbers above a bound."""

    def _skimp_inside(self, value: Any) -> Any:
        return self.lower_bound < value


class _GreaterThanEq(_From):
    """Numbers from a bound on."""

    def _skimp_inside(self, value: Any) -> Any:
        return self.lower_bound <= value


class _LessThan(_UpTo):
    """Numbers below a bound."""

    def _skimp_inside(self, value: Any) -> Any:
        return value < self.upper_bound


class _Interval(_Between):
    """Numbers between bounds that count."""

    def _skimp_inside(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    """Numbers between bounds of which the lower one counts."""

    def _skimp_inside(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _Simplex(_Formula):
    event_dim = 1

    def _skimp_inside(self, value: Any) -> Any:
        if type(value) is not np.ndarray and value.requires_grad:
            value = value.detach()  # nobody differentiates a check
        return (value >= 0).all(-1) & (abs(_sum(value) - 1) < 1e-6)


class _Multinomial(Constraint):
    """Counts whose sum is at most a bound."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, x: Tensor) -> Tensor:
        return (x >= 0).all(-1) & (x.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Tensor) -> Tensor:
        tolerance = finfo(value.dtype).eps * value.size(-1) * 10
        lengths = linalg.vector_norm(value.detach(), 2, -1)
        return super().check(value) & (lengths - 1).abs().le(tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        shape = value.shape
        return ops.full(shape[:-2], shape[-2] == shape[-1], dtype=boolean_dtype)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        square = super().check(value)
        if not square.all():
            return square
        return ops.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if not symmetric.all():
            return symmetric
        return linalg.eigvalsh(value).ge(0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if not symmetric.all():
            return symmetric
        return linalg.cholesky_ex(value).info.eq(0)


class _Several(Constraint):
    """Constraints side by side along one dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError("every member of cseq must be a Constraint")
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> Any:
        return any(c.is_discrete for c in self.cseq)

    def _skimp_dim_of(self, value: Tensor) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} is outside of {value.dim()} dimensions")


class _Cat(_Several):
    """Constraints of neighbouring parts of one dimension, of given lengths."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"{len(self.cseq)} constraints but {len(self.lengths)} lengths")

    @property
    def event_dim(self) -> Any:
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        self._skimp_dim_of(value)
        parts = value.split(self.lengths, self.dim)
        return ops.cat([c.check(v) for c, v in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(_Several):
    """A constraint for each position of one dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        super().__init__(cseq, dim)

    @property
    def event_dim(self) -> Any:
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Tensor) -> Tensor:
        self._skimp_dim_of(value)
        parts = value.unbind(self.dim)
        return ops.stack([c.check(v) for c, v in zip(self.cseq, parts, strict=True)], self.dim)


dependent = _Dependent()
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
