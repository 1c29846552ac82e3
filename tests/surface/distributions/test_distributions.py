"""torch.distributions against PyTorch: the same numbers from the same seed, the same densities,
moments, gradients, divergences and refusals.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import skimp

Make = Callable[[Any, Any], Any]  # (the library, its `tensor` with gradients) -> a distribution


@pytest.fixture(autouse=True)
def oracle_checks() -> None:
    """PyTorch's compiler, once another test has imported it, lets distributions take anything."""
    torch.distributions.Distribution.set_default_validate_args(True)


def _mixture(lib: Any, t: Any) -> Any:
    d = lib.distributions
    parts = d.Normal(t([[0.3, 1.0], [1.0, 2.0]]), t([[1.0, 2.0], [1.0, 0.4]]))
    return d.MixtureSameFamily(d.Categorical(t([0.3, 0.7])), d.Independent(parts, 1))


def _squashed(lib: Any, t: Any) -> Any:
    d = lib.distributions
    steps = [d.TanhTransform(cache_size=1), d.AffineTransform(t([1.0, 2.0]), t([-3.0, 0.5]))]
    return d.TransformedDistribution(d.Normal(lib.zeros(2), lib.ones(2)), steps)


MAKERS: dict[str, Make] = {
    "normal": lambda lib, t: lib.distributions.Normal(t([0.3, -1.0]), t([1.5, 0.2])),
    "standard normal": lambda lib, t: lib.distributions.Normal(0, 1),
    "laplace": lambda lib, t: lib.distributions.Laplace(t([0.3, -1.0]), t([1.5, 0.2])),
    "cauchy": lambda lib, t: lib.distributions.Cauchy(t([0.3, -1.0]), t([1.5, 0.2])),
    "uniform": lambda lib, t: lib.distributions.Uniform(t([0.3, -1.0]), t([1.5, 0.2])),
    "exponential": lambda lib, t: lib.distributions.Exponential(t([0.3, 1.0])),
    "gamma": lambda lib, t: lib.distributions.Gamma(t([0.3, 4.0]), t([1.5, 0.2])),
    "chi2": lambda lib, t: lib.distributions.Chi2(t([0.3, 4.0])),
    "poisson": lambda lib, t: lib.distributions.Poisson(t([0.3, 14.0])),
    "student": lambda lib, t: lib.distributions.StudentT(
        t([0.7, 14.0, 1.5]), t([0.3, 1.0, 2.0]), t([0.3, 4.0, 2.0])
    ),
    "student of a number": lambda lib, t: lib.distributions.StudentT(3.0),
    "fisher": lambda lib, t: lib.distributions.FisherSnedecor(t([3.0, 14.0]), t([4.3, 4.0])),
    "von mises": lambda lib, t: lib.distributions.VonMises(t([0.3, 1.4]), t([4.3, 0.4])),
    "generalized pareto": lambda lib, t: lib.distributions.GeneralizedPareto(
        t([0.3, 1.4]), t([4.3, 0.4]), t([0.2, 0.0])
    ),
    "bernoulli": lambda lib, t: lib.distributions.Bernoulli(t([0.3, 0.9])),
    "bernoulli of logits": lambda lib, t: lib.distributions.Bernoulli(logits=t([0.3, -0.9])),
    "continuous bernoulli": lambda lib, t: lib.distributions.ContinuousBernoulli(t([0.3, 0.5])),
    "geometric": lambda lib, t: lib.distributions.Geometric(t([0.3, 0.5])),
    "binomial": lambda lib, t: lib.distributions.Binomial(10, t([0.3, 0.8])),
    "large binomial": lambda lib, t: lib.distributions.Binomial(
        lib.tensor([100.0, 50.0]), logits=t([0.3, 0.8])
    ),
    "negative binomial": lambda lib, t: lib.distributions.NegativeBinomial(
        lib.tensor([10.0, 5.0]), logits=t([0.3, 0.8])
    ),
    "categorical": lambda lib, t: lib.distributions.Categorical(
        t([[0.3, 0.8, 1.0], [2.0, 1.0, 0.1]])
    ),
    "categorical of logits": lambda lib, t: lib.distributions.Categorical(
        logits=t([0.3, 0.8, 1.0])
    ),
    "one hot": lambda lib, t: lib.distributions.OneHotCategorical(
        t([[0.3, 0.8, 1.0], [2, 1, 0.1]])
    ),
    "straight through": lambda lib, t: lib.distributions.OneHotCategoricalStraightThrough(
        t([0.3, 0.8, 1.0])
    ),
    "multinomial": lambda lib, t: lib.distributions.Multinomial(7, t([[0.3, 0.8, 1], [2, 1, 0.1]])),
    "dirichlet": lambda lib, t: lib.distributions.Dirichlet(t([[0.3, 0.8, 1.0], [2.0, 1.0, 5.0]])),
    "beta": lambda lib, t: lib.distributions.Beta(t([0.3, 5.0]), t([0.8, 3.0])),
    "beta of numbers": lambda lib, t: lib.distributions.Beta(1.0, 2.0),
    "independent": lambda lib, t: lib.distributions.Independent(
        lib.distributions.Normal(t([[0.3, 1.0]]), t([[1.0, 2.0]])), 1
    ),
    "mixture": _mixture,
    "multivariate normal": lambda lib, t: lib.distributions.MultivariateNormal(
        t([0.3, 1.0]), t([[1.0, 0.2], [0.2, 2.0]])
    ),
    "multivariate normal of precision": lambda lib, t: lib.distributions.MultivariateNormal(
        t([[0.3, 1.0], [1.0, 2.0]]), precision_matrix=t([[1.0, 0.2], [0.2, 2.0]])
    ),
    "multivariate normal of a factor": lambda lib, t: lib.distributions.MultivariateNormal(
        t([0.3, 1.0]), scale_tril=t([[[1.0, 0.0], [0.2, 2.0]], [[1.0, 0.0], [0.1, 0.4]]])
    ),
    "low rank normal": lambda lib, t: lib.distributions.LowRankMultivariateNormal(
        t([0.3, 1.0]), t([[1.0], [0.3]]), t([1.0, 2.0])
    ),
    "lkj": lambda lib, t: lib.distributions.LKJCholesky(3, t(1.5)),
    "wishart": lambda lib, t: lib.distributions.Wishart(t(4.5), t([[1.0, 0.2], [0.2, 2.0]])),
    "log normal": lambda lib, t: lib.distributions.LogNormal(t([0.3, -1.0]), t([1.5, 0.2])),
    "logistic normal": lambda lib, t: lib.distributions.LogisticNormal(
        t([0.3, -1.0]), t([1.5, 0.2])
    ),
    "half normal": lambda lib, t: lib.distributions.HalfNormal(t([0.3, 1.0])),
    "half cauchy": lambda lib, t: lib.distributions.HalfCauchy(t([0.3, 1.0])),
    "pareto": lambda lib, t: lib.distributions.Pareto(t([0.3, 1.0]), t([0.8, 3.0])),
    "weibull": lambda lib, t: lib.distributions.Weibull(t([0.3, 1.0]), t([0.8, 3.0])),
    "gumbel": lambda lib, t: lib.distributions.Gumbel(t([0.3, 1.0]), t([0.8, 3.0])),
    "gumbel of numbers": lambda lib, t: lib.distributions.Gumbel(0.0, 1.0),
    "kumaraswamy": lambda lib, t: lib.distributions.Kumaraswamy(t([0.3, 2.0]), t([0.8, 3.0])),
    "inverse gamma": lambda lib, t: lib.distributions.InverseGamma(t([0.3, 2.5]), t([0.8, 3.0])),
    "relaxed bernoulli": lambda lib, t: lib.distributions.RelaxedBernoulli(t(0.7), t([0.8, 0.3])),
    "relaxed one hot": lambda lib, t: lib.distributions.RelaxedOneHotCategorical(
        t(0.7), t([0.8, 0.3, 0.1])
    ),
    "squashed": _squashed,
}
DRAWN_TWICE = ["wishart"]  # by PyTorch: see docs/differences.md


class Case:
    """A distribution of one library, and the parameters that it was made of."""

    def __init__(self, lib: Any, make: Make) -> None:
        self.lib = lib
        self.leaves: list[Any] = []
        self.d = make(lib, self.leaf)

    def leaf(self, values: Any) -> Any:
        self.leaves.append(self.lib.tensor(values, requires_grad=True))
        return self.leaves[-1]

    def gradients(self, y: Any) -> Any:
        found = self.lib.autograd.grad(y.sum(), self.leaves, allow_unused=True)
        return [None if g is None else g.tolist() for g in found]


Ask = Callable[[Case], Any]


class Refusal(tuple[str, str]):
    """The kind of an error, and its words."""


def outcome(lib: Any, make: Make, ask: Ask) -> Any:
    """What `ask` gives, from seed 0: plain data, or the kind of the error."""
    lib.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's about Wishart's singular samples
            return plain(ask(Case(lib, make)))
    except (NotImplementedError, ValueError, RuntimeError) as error:
        return Refusal(
            [type(error).__name__, " ".join(str(error).split()).replace("skimp", "torch")]
        )


def plain(value: Any) -> Any:
    if hasattr(value, "detach"):
        return str(value.dtype).rpartition(".")[2], tuple(value.shape), value.detach().tolist()
    return value


def numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)
    else:
        yield value


# What some distributions of a grid lack, or don't take.
LACKING = (
    r"^NotImplementedError|`inputs` argument to `grad\(\)` cannot be empty"
    r"|^ValueError: (Value is not broadcastable|The right-most size|Expected value argument)"
)


def check(make: Make, ask: Ask, rel: float = 2e-5, refused: str | None = None) -> None:
    """`ask` gives the same on both sides; or it is `refused` on both with words of this pattern."""
    wanted, given = outcome(torch, make, ask), outcome(skimp, make, ask)
    if isinstance(wanted, Refusal):
        assert refused is not None, f"PyTorch refuses the case: {wanted}"
        assert re.search(refused, ": ".join(wanted)), f"PyTorch refuses the case: {wanted}"
    if wanted == given:
        return
    for a, b in itertools.zip_longest(numbers(wanted), numbers(given)):
        if isinstance(a, float) and isinstance(b, float):
            assert b == pytest.approx(a, rel=rel, abs=1e-5, nan_ok=True), (wanted, given)
        else:
            assert a == b, (wanted, given)


def value_of(make: Make) -> Any:
    """A sample, as an array."""
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Case(torch, make).d.sample().numpy()


@pytest.mark.parametrize("name", MAKERS)
def test_a_distribution_is_pytorchs(name: str) -> None:
    make = MAKERS[name]
    at = value_of(make)
    asked: list[Ask] = [
        lambda c: repr(c.d),
        lambda c: (list(c.d.batch_shape), list(c.d.event_shape)),
        lambda c: (c.d.has_rsample, c.d.has_enumerate_support),
        lambda c: {k: repr(v).split("tensor")[0] for k, v in c.d.arg_constraints.items()},
        lambda c: repr(c.d.support).split("tensor")[0],
        lambda c: c.d.mean,
        lambda c: c.d.variance,
        lambda c: c.d.stddev,
        lambda c: c.d.mode,
        lambda c: c.d.entropy(),
        lambda c: c.d.perplexity(),
        lambda c: c.d.enumerate_support(),
        lambda c: c.d.log_prob(c.lib.as_tensor(at)),
        lambda c: c.d.cdf(c.lib.as_tensor(at)),
        lambda c: c.d.icdf(c.lib.rand(c.d.batch_shape)),
        lambda c: c.d.expand([4, *c.d.batch_shape]).log_prob(c.lib.as_tensor(at)),
        lambda c: c.d.log_prob(c.lib.full((7,), -3.0)),
        lambda c: c.gradients(c.d.log_prob(c.lib.as_tensor(at))),
        lambda c: c.gradients(c.d.entropy()),
    ]
    for ask in asked:
        check(make, ask, refused=LACKING)


@pytest.mark.parametrize("name", [n for n in MAKERS if n not in DRAWN_TWICE])
def test_samples_are_pytorchs(name: str) -> None:
    make = MAKERS[name]
    check(make, lambda c: c.d.sample())
    check(make, lambda c: c.d.sample((3,)))
    check(make, lambda c: c.d.expand([4, *c.d.batch_shape]).sample())
    # PyTorch approximates the gamma and beta distributions' own derivatives to about 1e-4
    check(make, lambda c: c.gradients(c.d.rsample((3,)) ** 2), rel=1e-3, refused=LACKING)


def test_divergences_are_pytorchs() -> None:
    made = {lib: [Case(lib, make).d for make in MAKERS.values()] for lib in (torch, skimp)}
    for i, j in itertools.product(range(len(MAKERS)), repeat=2):

        def between(case: Case, i: int = i, j: int = j) -> Any:
            p, q = made[case.lib][i], made[case.lib][j]
            return case.lib.distributions.kl_divergence(p, q)

        check(lambda lib, t: None, between, rel=1e-4, refused="^NotImplementedError")


@pytest.mark.parametrize("concentration", [0.01, 0.3, 1.0, 2.5, 40.0, 3000.0])
def test_gamma_numbers_move_with_their_shape(concentration: float) -> None:
    """The derivative keeps the quantile: a step along it leaves the distribution function."""
    skimp.manual_seed(0)
    a = skimp.full((64,), concentration, dtype=skimp.float64, requires_grad=True)
    x = skimp.distributions.Gamma(a, 1.0).rsample()
    (slope,) = skimp.autograd.grad(x.sum(), a)
    h = 1e-7 * min(concentration, math.sqrt(concentration))
    x = x.detach()

    def chance(step: float) -> Any:
        return skimp.special.gammainc(a.detach() + step * h, x + step * h * slope).numpy()

    moved = (chance(1.0) - chance(-1.0)) / (2 * h)
    assert np.abs(moved).max() < 1e-6 / min(concentration, 1.0)


def test_wishart_draws_once() -> None:
    """PyTorch takes regular samples for singular ones, and can't differentiate what it replaces."""
    skimp.manual_seed(0)
    case = Case(skimp, MAKERS["wishart"])
    drawn = case.d.sample((20_000,))
    assert np.allclose(drawn.mean(0).numpy(), case.d.mean.detach().numpy(), rtol=0.05, atol=0.1)
    assert np.allclose(drawn.var(0).numpy(), case.d.variance.detach().numpy(), rtol=0.1, atol=0.2)
    assert all(g is not None for g in case.gradients(case.d.rsample((3,))))


def test_wrong_parameters_are_refused_as_in_pytorch() -> None:
    wrong: list[Make] = [
        lambda lib, t: lib.distributions.Normal(t([0.0]), t([-1.0])),
        lambda lib, t: lib.distributions.Categorical(t([-0.5, 1.5])),
        lambda lib, t: lib.distributions.Categorical(t([0.5]), t([0.5])),
        lambda lib, t: lib.distributions.Bernoulli(),
        lambda lib, t: lib.distributions.Uniform(t([1.0]), t([0.0])),
        lambda lib, t: lib.distributions.Dirichlet(t(1.0)),
        lambda lib, t: lib.distributions.MultivariateNormal(t([0.0, 0.0])),
        lambda lib, t: lib.distributions.MultivariateNormal(
            t([0.0, 0.0]), t([[1.0, 2.0], [2.0, 1.0]])
        ),
        lambda lib, t: lib.distributions.Normal("a", 1.0),
        lambda lib, t: lib.distributions.LKJCholesky(1),
    ]
    for make in wrong:
        for refusal in (outcome(lib, make, lambda c: c.d) for lib in (torch, skimp)):
            assert refusal[0] == "ValueError"
        if "implementing" not in outcome(torch, make, lambda c: c.d)[1]:  # ours says what came
            check(make, lambda c: c.d, refused="^ValueError")
    assert repr(skimp.distributions.Normal(0.0, -1.0, validate_args=False))


def test_divergences_are_found_by_class() -> None:
    class Mine(skimp.distributions.Normal):
        pass

    p = Mine(skimp.tensor(0.0), skimp.tensor(1.0))
    assert skimp.distributions.kl_divergence(p, p) == 0

    @skimp.distributions.register_kl(Mine, Mine)
    def mine(p: Any, q: Any) -> Any:
        return "mine"

    assert skimp.distributions.kl_divergence(p, p) == "mine"

    class Other:
        pass

    @skimp.distributions.register_kl(Mine, Other)
    def other(p: Any, q: Any) -> Any:
        return "other"

    assert skimp.distributions.kl_divergence(p, Other()) == "other"
    with pytest.raises(TypeError, match="to be a Distribution subclass"):
        skimp.distributions.register_kl(Mine, 3)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match=r"No KL\(p \|\| q\) is implemented for p type"):
        skimp.distributions.kl_divergence(p, skimp.distributions.StudentT(1.0))


CLASSES = [
    name
    for name in torch.distributions.__all__
    if isinstance(getattr(torch.distributions, name), type)
]


def signature(function: Any) -> Any:
    """The names, kinds and defaults of its arguments."""
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


@pytest.mark.parametrize("name", CLASSES)
def test_classes_take_what_pytorchs_take(name: str) -> None:
    theirs, ours = getattr(torch.distributions, name), getattr(skimp.distributions, name)
    assert signature(ours) == signature(theirs)
    lineage = [c.__name__ for c in ours.__mro__]
    assert [n for n in lineage if n in CLASSES] == [
        c.__name__ for c in theirs.__mro__ if c.__name__ in CLASSES
    ]
    for key, value in vars(theirs).items():
        if inspect.isfunction(value) and not key.startswith("_"):
            assert signature(getattr(ours, key)) == signature(value), key
    told = [n for n, _, _ in signature(ours) if n not in ("validate_args", "cache_size")]
    if issubclass(ours, skimp.distributions.Distribution) and told[:1] != ["batch_shape"]:
        assert not [n for n in told if f"`{n}`" not in ours.__doc__]


def test_constraints_take_what_pytorchs_take() -> None:
    for name in torch.distributions.constraints.__all__:
        theirs = getattr(torch.distributions.constraints, name)
        ours = getattr(skimp.distributions.constraints, name)
        if inspect.isclass(theirs):
            assert signature(ours) == signature(theirs), name
        elif not inspect.isfunction(theirs):
            assert repr(ours) == repr(theirs)


def shapes(lib: Any, value: Any) -> Any:
    """The public attributes of a distribution, with the shapes and strides of tensors."""
    if isinstance(value, lib.distributions.Distribution):
        public = sorted(k for k in vars(value) if not k.startswith("_"))
        return type(value).__name__, [(k, shapes(lib, getattr(value, k))) for k in public]
    if isinstance(value, lib.Tensor):
        return list(value.shape), list(value.stride())
    return [type(v).__name__ for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", MAKERS)
def test_an_expanded_distribution_is_pytorchs(name: str) -> None:
    make = MAKERS[name]

    def expanded(c: Case) -> Any:
        d = c.d.expand([4, *c.d.batch_shape])
        again = d.expand(d.batch_shape)
        vars(d).pop("concentration_reciprocal", None)  # PyTorch computes it again, ours is a view
        return repr(d), shapes(c.lib, d), list(again.batch_shape), list(again.event_shape)

    check(make, expanded)
    if name != "multinomial":
        check(make, lambda c: c.d.expand([4, *c.d.batch_shape]).entropy(), refused=LACKING)
    d = Case(skimp, make).d
    held = [v for v in vars(d).values() if isinstance(v, skimp.Tensor)]
    wide = vars(d.expand([4, *d.batch_shape])).values()
    pointers = {v.data_ptr() for v in wide if isinstance(v, skimp.Tensor)}
    assert all(v.data_ptr() in pointers for v in held)  # views, of everything


@pytest.mark.parametrize("name", MAKERS)
def test_distributions_can_be_pickled(name: str) -> None:
    at = skimp.as_tensor(value_of(MAKERS[name]))
    d = MAKERS[name](skimp, skimp.tensor)
    again = pickle.loads(pickle.dumps(d))
    assert repr(again) == repr(d)
    assert skimp.equal(again.log_prob(at), d.log_prob(at))
    assert skimp.equal(copy.deepcopy(again).log_prob(at), d.log_prob(at))


@pytest.mark.parametrize("name", MAKERS)
def test_subclasses_are_expanded_as_pytorchs(name: str) -> None:
    """One without a constructor as its base; one with its own has to say how."""

    def plain_one(c: Case) -> Any:
        d = c.d
        d.__class__ = type("Mine", (type(d),), {})
        wide = d.expand([4, *d.batch_shape])
        return type(wide).__name__, repr(wide), list(wide.batch_shape)

    def own_constructor(c: Case) -> Any:
        d = c.d
        d.__class__ = type("Mine", (type(d),), {"__init__": lambda self, a, b: None})
        return d.expand([4, *d.batch_shape])

    def own_expand(c: Case) -> Any:
        d, base = c.d, type(c.d)

        def expand(self: Any, batch_shape: Any, _instance: Any = None) -> Any:
            new = self._get_checked_instance(Mine, _instance)
            new.more = "kept"
            return base.expand(self, batch_shape, new)

        Mine = type("Mine", (base,), {"__init__": lambda self, a, b: None, "expand": expand})
        d.__class__ = Mine
        wide = d.expand([4, *d.batch_shape])
        return type(wide).__name__, wide.more, list(wide.batch_shape)

    make = MAKERS[name]
    check(make, plain_one)
    if name != "von mises":  # PyTorch calls its constructor
        check(make, own_constructor, refused=r"must also define a custom \.expand\(\) method")
        check(make, own_expand)


def test_a_distribution_of_the_user() -> None:
    """Only what PyTorch documents: a constructor, formulas, an `expand` where it is wanted."""

    def triangle(lib: Any, t: Any) -> Any:
        class Triangle(lib.distributions.Distribution):  # type: ignore[misc]
            arg_constraints: ClassVar = {"width": lib.distributions.constraints.positive}
            support = lib.distributions.constraints.nonnegative

            def __init__(self, width: Any, validate_args: Any = None) -> None:
                self.width = width
                super().__init__(width.shape, validate_args=validate_args)

            def log_prob(self, value: Any) -> Any:
                if self._validate_args:
                    self._validate_sample(value)
                return (2 * (self.width - value) / self.width**2).log()

        return Triangle(t([1.0, 2.0]))

    check(triangle, lambda c: c.d.log_prob(c.lib.tensor([0.5, 0.25])))
    check(triangle, lambda c: repr(c.d))
    check(triangle, lambda c: c.d.expand([3, 2]), refused="^NotImplementedError")
    check(triangle, lambda c: c.d.log_prob(c.lib.tensor([-0.5, 0.25])), refused="^ValueError")
    check(triangle, lambda c: c.d.sample(), refused="^NotImplementedError")
    check(triangle, lambda c: c.d.mode, refused="^NotImplementedError")


@pytest.mark.parametrize("shape", [(), (2,), (1,), (3, 2), (3, 1), (3,)])
def test_values_of_a_categorical_are_whole_and_broadcast(shape: tuple[int, ...]) -> None:
    found = []
    for lib in (torch, skimp):
        probs = lib.tensor([[0.2, 0.8], [0.5, 0.5]], requires_grad=True)
        said: list[Any] = []
        for value in (lib.ones(shape, dtype=lib.int64), lib.zeros(shape), lib.full(shape, 0.5)):
            d = lib.distributions.Categorical(probs)
            try:
                made = d.log_prob(value)
                (g,) = lib.autograd.grad(made.sum(), probs)
                said.append((made.tolist(), g.tolist(), tuple(made.shape)))
            except ValueError as error:
                said.append(str(error)[:40])
        found.append(said)
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 3, 15, 16, 17, 40])
def test_few_standard_normals_are_pytorchs(count: int, dtype: str) -> None:
    found = []
    for lib in (torch, skimp):
        lib.manual_seed(count)
        zeros = lib.zeros(count, dtype=getattr(lib, dtype))
        draws = lib.distributions.Normal(zeros, zeros + 1.5).rsample((2,))
        found.append((draws.tolist(), lib.rand(2).tolist()))
    assert found[0] == found[1]


def test_constraints_of_narrow_integers_and_flags() -> None:
    """A bound beyond the type wraps, and flags are counted, as in PyTorch."""
    found = []
    for t in (skimp, torch):
        sets = t.distributions.constraints
        small, flags = t.tensor([0, 1, 255], dtype=t.uint8), t.tensor([[True, True, False]])
        checked = (
            sets.greater_than(-1).check(small),
            sets.interval(0, 256).check(small),
            sets.one_hot.check(flags),
            sets.simplex.check(flags),
        )
        found.append([c.tolist() for c in checked])
    assert found[0] == found[1]
