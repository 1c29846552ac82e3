"""The base of all transforms, and the transforms that are made of others."""

from __future__ import annotations

import functools
import operator
import weakref
from typing import Any, ClassVar

from skimp._engine.tensor.checks import require
from skimp._engine.tensor.tensor import Tensor
from skimp.distributions import constraints
from skimp.distributions.utils import size_of, sum_rightmost
from skimp.nn import ops

SAYS = """\
Shape: any whose last dims are an event of `domain`; `forward_shape` tells the result's.
Dtypes: floating point; the result's is the input's.
Raises: ValueError for a `cache_size` other than 0 and 1; NotImplementedError for an inverse or a
determinant that there is none of.
Memory: new tensors; with `cache_size=1` the last pair stays alive."""


class Transform:
    """y = t(x), x = t.inv(y), of values in `domain` to values in `codomain`.

    With `cache_size=1` the last pair is remembered, so that the inverse of a value that t gave is
    that value itself; ValueError for other sizes than 0 and 1. A subclass has `_call`,
    `_inverse` and `log_abs_det_jacobian`; values keep their dtype and batch.
    """

    bijective = False
    # The names of what the constructor took before `cache_size`, where it took anything
    _skimp_arguments: ClassVar[tuple[str, ...]] = ()
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        self._cache_size = cache_size
        self._inv: Any = None
        if cache_size == 1:
            self._cached_x_y: tuple[Any, Any] = (None, None)
        elif cache_size != 0:
            raise ValueError("cache_size must be 0 or 1")
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inv": None}  # weak references can't be pickled

    @property
    def event_dim(self) -> int:
        """How many dimensions an event has; ValueError where those of x and y differ."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Any:
        """The inverse; its own inverse is this one."""
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Any:
        """+1 where it rises, -1 where it falls."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same with another cache size.

        NotImplementedError for a subclass with a constructor of its own and no `with_cache`.
        """
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        for cls in type(self).__mro__:
            if "_skimp_arguments" in vars(cls) and cls is not Transform:
                return cls(
                    *[getattr(self, n) for n in self._skimp_arguments], cache_size=cache_size
                )
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._call(x)
        x_old, y_old = self._cached_x_y
        if x is x_old:
            return y_old
        y = self._call(x)
        self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        x_old, y_old = self._cached_x_y
        if y is y_old:
            return x_old
        x = self._inverse(y)
        self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |det dy / dx| of a pair, without the dimensions of an event."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__ + "()"

    def forward_shape(self, shape: Any) -> Any:
        """The shape of y for an x of `shape`; ValueError for one that it can't have."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of x for a y of `shape`."""
        return shape


class _InverseTransform(Transform):
    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv: Any = transform

    @property
    def domain(self) -> Any:
        return self._inv.codomain

    @property
    def codomain(self) -> Any:
        return self._inv.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Any:
        return self._inv

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def with_cache(self, cache_size: int = 1) -> Any:
        return self.inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)


class ComposeTransform(Transform):
    """Several transforms, the first first; an empty list is the identity.

    `parts` is kept as a new list, and each part with the cache's size where it is not 0.
    """

    _skimp_arguments = ("parts",)

    def __init__(self, parts: list[Any], cache_size: int = 0) -> None:
        if cache_size:
            parts = [part.with_cache(cache_size) for part in parts]
        super().__init__(cache_size=cache_size)
        self.parts = list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = None

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return _ends([(p.codomain, p.domain) for p in reversed(self.parts)])

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return _ends([(p.domain, p.codomain) for p in self.parts])

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(p.bijective for p in self.parts)

    @property
    def sign(self) -> Any:
        return functools.reduce(operator.mul, (p.sign for p in self.parts), 1)

    @property
    def inv(self) -> Any:
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv = weakref.ref(inverse)
            inverse._inv = weakref.ref(self)
        return inverse

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return ops.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total: Any = 0
        event_dim = self.domain.event_dim
        for part, a, b in zip(self.parts, values[:-1], values[1:], strict=True):
            slope = part.log_abs_det_jacobian(a, b)
            total = total + sum_rightmost(slope, event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        inner = ",\n    ".join(repr(p) for p in self.parts)
        return f"{type(self).__name__}(\n    {inner}\n)"


def _ends(steps: list[tuple[Any, Any]]) -> Any:
    """The last constraint of a chain, with the event dimensions that the others need."""
    if not steps:
        return constraints.real
    event_dim, last = steps[0][0].event_dim, steps[-1][1]
    for before, after in steps:
        event_dim = max(event_dim + after.event_dim - before.event_dim, after.event_dim)
    more = event_dim - last.event_dim
    return constraints.independent(last, more) if more > 0 else last


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last batch dimensions are one event: the log-determinants are summed.

    ValueError for an x of fewer dimensions than `reinterpreted_batch_ndims` and the base's.
    """

    _skimp_arguments = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(
        self, base_transform: Any, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        require_dims(x.shape, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        require_dims(y.shape, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slope = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(slope, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        inner = repr(self.base_transform)
        return f"{type(self).__name__}({inner}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """Events of `in_shape` as events of `out_shape`, which has as many elements (else ValueError).

    The batch's dimensions stand to the left of them. A view where `reshape` gives one.
    """

    _skimp_arguments = ("in_shape", "out_shape")

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = size_of(in_shape), size_of(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _skimp_batch(self, x: Tensor, shape: Any) -> Any:
        return x.shape[: x.dim() - len(shape)]

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self._skimp_batch(x, self.in_shape) + self.out_shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self._skimp_batch(y, self.out_shape) + self.in_shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(self._skimp_batch(x, self.in_shape))

    def forward_shape(self, shape: Any) -> Any:
        return _reshaped(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _reshaped(shape, self.out_shape, self.in_shape)


def require_dims(shape: Any, least: int) -> None:
    """A shape of at least so many dimensions."""
    require(len(shape) >= least, "Too few dimensions on input")


def _reshaped(shape: Any, old: Any, new: Any) -> Any:
    require_dims(shape, len(old))
    cut = len(shape) - len(old)
    if tuple(shape[cut:]) != tuple(old):
        raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {old}")
    return shape[:cut] + new


class _Plain(Transform):
    """A transform without parameters: two of one class are equal."""

    bijective = True
    domain: Any = constraints.real
    codomain: Any = constraints.real

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = None
