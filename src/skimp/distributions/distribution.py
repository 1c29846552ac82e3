"""The base of all distributions: what one declares, and what follows from that.

A distribution declares its parameters with their constraints, and has the formulas:

    class Exponential(ExponentialFamily):
        rate = parameter(constraints.positive)
        support = constraints.nonnegative

        def __init__(self, rate, validate_args=None):
            self._skimp_begin(validate_args, rate=rate)

From the declaration follow `arg_constraints`, broadcasting, the batch's shape, the check of the
arguments, `expand`, `repr` and parameters that are computed from others (`probs` and `logits`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import bare
from skimp.distributions import constraints
from skimp.distributions.utils import broadcast_all, lazy_property, size_of
from skimp.nn import ops

SAYS = """\
Shape: parameters broadcast to `batch_shape`; a draw is (*sample_shape, *batch_shape, *event_shape),
and log_prob has a number for each event.
Dtypes: floating point; draws have the parameters' dtype.
Raises: ValueError for parameters, and for values, outside of their constraints, unless
`validate_args=False`; NotImplementedError for what the distribution has no formula of.
Memory: parameters are kept, as views where they are expanded; draws are new tensors, and only those
of `rsample`, where there is one, have a gradient."""


class _Parameter(lazy_property):
    """A declared parameter: an attribute where it was given, else computed from others and kept."""

    def __init__(self, constraint: Any, derive: Callable[[Any], Tensor] | None) -> None:
        self.constraint, self.derive = constraint, derive

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def wrapped(self, instance: Any) -> Tensor:
        if self.derive is None:
            raise AttributeError(f"{type(instance).__name__!r} object has no {self.name!r} yet")
        return self.derive(instance)


class _Forwarded(property):
    """A parameter or a moment that another attribute holds; not kept."""

    constraint: Any = None


def parameter(constraint: Any, derive: Callable[[Any], Tensor] | None = None) -> Any:
    """Declare a parameter inside `constraint`; `derive` computes one that was not given."""
    return _Parameter(constraint, derive)


def forwarded(source: str | Callable[[Any], Any], constraint: Any = None) -> Any:
    """A read-only attribute that stands elsewhere: "base_dist.loc", or a function of the instance.

    With a constraint it is one of the distribution's parameters.
    """
    found = _Forwarded(attrgetter(source) if isinstance(source, str) else source)
    found.__doc__, found.constraint = None, constraint
    return found


def _holds(inside: Any) -> bool:
    """Whether all of what a constraint says is true."""
    a = inside._np if type(inside) is Tensor else None
    return bool(inside.all() if a is None else bare.count_nonzero(a) == a.size)


class Distribution:
    """A distribution with `batch_shape` independent copies of events of `event_shape`.

    Parameters that are numbers take the dtype of the first one that is a tensor (the default
    dtype without one). With `validate_args` (the default outside of `python -O`), parameters and
    values outside of their constraints raise ValueError.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    # Declared by subclasses: what grows with the batch, besides the parameters;
    _skimp_expands: ClassVar[tuple[str, ...]] = ()
    # what an expanded distribution shares with its source.
    _skimp_keeps: ClassVar[tuple[str, ...]] = ()
    # The nearest class that declared something: a subclass whose constructor is another one may
    # hold more than `expand` knows.
    _skimp_declared_by: ClassVar[type | None] = None

    def __init_subclass__(cls, **words: Any) -> None:
        super().__init_subclass__(**words)
        own: dict[str, Any] = {
            name: value.constraint
            for name, value in vars(cls).items()
            if isinstance(value, _Parameter | _Forwarded) and value.constraint is not None
        }
        if not own and "_skimp_expands" not in vars(cls):
            return
        parents: Any = super(cls, cls)
        if own and "arg_constraints" not in vars(cls):
            found: Any = parents.arg_constraints
            inherited = found if isinstance(found, dict) else {}
            cls.arg_constraints = own | {  # type: ignore[method-assign, assignment]
                name: value for name, value in inherited.items() if name not in own
            }
        names = *own, *vars(cls).get("_skimp_expands", ()), *parents._skimp_expands
        cls._skimp_expands = tuple(dict.fromkeys(names))
        cls._skimp_declared_by = cls

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check parameters and samples.

        ValueError for anything but True and False.
        """
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: {value!r} is neither True nor False")
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Any = Size(),  # noqa: B008  (as PyTorch's signature shows it)
        event_shape: Any = Size(),  # noqa: B008
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = size_of(batch_shape)
        self._event_shape = size_of(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._skimp_validate_parameters()
        super().__init__()

    def _skimp_validate_parameters(self) -> None:
        try:
            found = self.arg_constraints
        except NotImplementedError:
            found = {}
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. "
                "Please set `arg_constraints = {}` or initialize the distribution "
                "with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
        for name, constraint in found.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(
                getattr(type(self), name, None), lazy_property
            ):
                continue  # computed from one that is checked
            value = getattr(self, name)
            if not _holds(constraint.check(value)):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                )

    def _skimp_begin(self, validate_args: bool | None, **values: Any) -> None:
        """Keep the parameters of a distribution of numbers, broadcast, and check them."""
        tensors = broadcast_all(*values.values())
        for name, tensor in zip(values, tensors, strict=True):
            setattr(self, name, tensor)
        Distribution.__init__(self, tensors[0].size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with a batch of `batch_shape`, to which its own must broadcast.

        The parameters are views of these, nothing is copied or checked again. RuntimeError where
        the shapes don't broadcast; NotImplementedError for a subclass that has a constructor
        of its own and no `expand`.
        """
        if self._skimp_declared_by is None:
            raise NotImplementedError
        new = self._get_checked_instance(self._skimp_declared_by, _instance)
        batch_shape = size_of(batch_shape)
        for name in self._skimp_expands:
            if name in self.__dict__:
                setattr(new, name, self._skimp_expanded(name, batch_shape))
        for name in self._skimp_keeps:
            setattr(new, name, self.__dict__[name])
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _skimp_expanded(self, name: str, batch_shape: Size) -> Any:
        """A parameter, another tensor or a distribution inside, with the batch's new shape."""
        value = self.__dict__[name]
        if isinstance(value, Distribution):
            return value.expand(batch_shape + value.batch_shape[len(self._batch_shape) :])
        declared = getattr(type(self), name, None)
        event_dim = (
            declared.constraint.event_dim
            if isinstance(declared, _Parameter)
            else len(self._event_shape)
        )
        return value.expand(batch_shape + value.shape[value.dim() - event_dim :])

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters, without the dimensions of one event."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw; () for numbers."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """The constraint of each parameter, by its name."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that every draw satisfies."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean, of `batch_shape + event_shape`; may share memory with a parameter."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The likeliest value, of `batch_shape + event_shape`; may share memory, as the mean."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element, of `batch_shape + event_shape`."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draw a tensor of `sample_shape + batch_shape + event_shape`, without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draw as a differentiable function of the parameters (where `has_rsample`)."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """Draw n samples; a FutureWarning says to use `sample((n,))`."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, 2
        )
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density or probability at `value`.

        `value` broadcasts with `batch_shape + event_shape`; the result lacks the event's
        dimensions. ValueError for a value outside of the support, if arguments are validated.
        """
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`, which is checked as in `log_prob`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The number below which the probability `value` lies; unchecked."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first dimension.

        The batch's dimensions follow, as views of one value each, or of size 1 with
        `expand=False`. NotImplementedError where the values differ within the batch.
        """
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy in nats, of `batch_shape`."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return ops.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size([*size_of(sample_shape), *self._batch_shape, *self._event_shape])

    def _skimp_enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """`values`, one event after another, as `enumerate_support` gives them."""
        batch, event = self._batch_shape, self._event_shape
        values = values.view((-1, *[1] * len(batch), *event))
        return values.expand((-1, *batch, *event)) if expand else values

    def _skimp_full(self, number: float, like: Tensor) -> Tensor:
        """One number for each element of one draw."""
        return ops.full(self._extended_shape(), number, dtype=like.dtype)

    def _skimp_check(self, value: Tensor) -> None:
        if self._validate_args:
            self._validate_sample(value)

    def _skimp_check_shape(self, value: Tensor) -> None:
        first = value.dim() - len(self._event_shape)
        if value.shape[max(first, 0) :] != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {value.size()} vs "
                f"{self._event_shape}."
            )
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.size()), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    "Value is not broadcastable with batch_shape+event_shape: "
                    f"{value.size()} vs {expected}."
                )

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        if value.shape != (*self._batch_shape, *self._event_shape):
            self._skimp_check_shape(value)
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not _holds(support.check(value)):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, but found "
                f"invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom "
                "__init__ method must also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        try:
            names = [name for name in self.arg_constraints if name in self.__dict__]
        except NotImplementedError:
            names = []
        shown = []
        for name in names:
            value = self.__dict__[name]
            one = not isinstance(value, Tensor) or value.numel() == 1
            shown.append(f"{name}: {value if one else value.size()}")
        return f"{type(self).__name__}({', '.join(shown)})"
