"""Special functions: error function, gamma, Bessel, polynomials (torch.special, and in torch)."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any, Final

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.bodies import pointwise
from skimp._engine.dispatch.forms import METHODS, NAMESPACES, export
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.pointwise_forms import binary
from skimp._engine.dispatch.result_types import floating, same
from skimp._engine.dispatch.row import sampled
from skimp._engine.dispatch.rows import FLOAT, NO_HALVES, PAIR, binary_row, node_name, unary_row
from skimp._engine.dispatch.settled import Run
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import require
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import activation as A, special as S
from skimp._ops.index.masks import where

BOTH = ("", "special")
ROOT_PI = sqrt(pi)


def _alias(name: str, known: str) -> None:
    export(name, NAMESPACES[""][known], ("special",), False)


# -- with names in torch as well ------------------------------------------------------------------

unary_row(
    "erf",
    {FLOAT: S.erf},
    lambda g, input: g * (2 / ROOT_PI * (-(input * input)).exp()),
    title="erf_vml_cpu",
    namespaces=BOTH,
    doc="The error function.",
    foreach=1,
    sparse="values",
)
unary_row(
    "erfc",
    {FLOAT: S.erfc},
    lambda g, input: g * (-2 / ROOT_PI * (-(input * input)).exp()),
    title="erfc_vml_cpu",
    namespaces=BOTH,
    doc="1 - erf(input), exact far out.",
    foreach=1,
)
unary_row(
    "erfinv",
    {FLOAT: S.erfinv},
    lambda g, result: g * (ROOT_PI / 2 * (result * result).exp()),
    title="erfinv_vml_cpu",
    namespaces=BOTH,
    doc="The inverse of erf.",
)
unary_row(
    "lgamma",
    {FLOAT: S.lgamma},
    lambda g, input: g * input.digamma(),
    title="lgamma_vml_cpu",
    doc="log |gamma(input)|.",
    foreach=1,
)
unary_row(
    "digamma",
    {FLOAT: S.digamma},
    lambda g, input: g * input.polygamma(1),
    title="digamma",
    namespaces=BOTH,
    doc="The derivative of lgamma.",
)
unary_row(
    "i0",
    {FLOAT: S.i0},
    lambda g, input: g * i1(input),
    title="i0_vml_cpu",
    namespaces=BOTH,
    doc="The modified Bessel function of the first kind, of order 0.",
)


def _sinc_back(g: Tensor, input: Tensor) -> Any:
    angle, square = input * pi, input * input * pi
    slope = (angle.cos() * angle - angle.sin()) / square
    return where(square == 0, 0, g * slope.conj())  # also where the square of a number is


unary_row("sinc", S.sinc, _sinc_back, namespaces=BOTH, doc="sin(pi input) / (pi input), 1 at 0.")
_alias("psi", "digamma")
_alias("gammaln", "lgamma")

LOGIT_BACK = Pointwise(
    "logit_backward", {FLOAT: A.logit_backward}, same, None, ("grad", "input"), ("eps",)
)


def _logit_back(g: Tensor, input: Tensor, eps: float | None) -> Any:
    if not modes.state.grad:
        return call(LOGIT_BACK, (g, input), (eps,))
    low, value = (0.0, float("nan")) if eps is None else (eps, 0.0)
    inside = (input >= low) & (input <= 1 - low)
    return where(inside, g / (input * (1 - input)), value)


LOGIT = Pointwise(
    "logit",
    {FLOAT: S.logit},
    floating,
    Rule("LogitBackward0", input=lambda g, input, eps: _logit_back(g, input, eps)),
    params=("eps",),
)


@pointwise(LOGIT, BOTH)
def logit(
    input: Tensor, eps: float | None = None, *, out: Tensor | None = None, inplace: bool = False
) -> Run:
    """log(input / (1 - input)), of the input held within eps and 1 - eps."""
    return Run(LOGIT, (input,), (None if eps is None or eps < 0 else float(eps),))


# -- polygamma, mvlgamma --------------------------------------------------------------------------

POLYGAMMA = Pointwise(
    "polygamma",
    {FLOAT: S.polygamma},
    floating,
    Rule("PolygammaBackward0", input=lambda g, input, n: g * polygamma(n + 1, input)),
    params=("n",),
)


def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The n-th derivative of digamma.

    Shape: any; the result's is the input's.
    Dtypes: bool, integers and floating point.
    Raises: RuntimeError for a negative `n`, NotImplementedError for complex numbers.
    """
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return call(POLYGAMMA, (input,), (int(n),), out)


def _polygamma(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma.

    Dtypes: bool, integers and floating point.
    Raises: RuntimeError for a negative `n`, NotImplementedError for complex numbers.
    """
    return polygamma(n, self)


@sampled(lambda tensor: [(tensor([[1, 2, 3]]), 1)])
def _polygamma_(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma, in place.

    Dtypes: floating point.
    Raises: RuntimeError for a negative `n` and for integers, NotImplementedError for complex
    numbers.
    """
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return call(POLYGAMMA, (self,), (int(n),), self, True)


export("polygamma", polygamma, BOTH, False, samples=lambda tensor: [(1, tensor([[1, 2, 3]]))])
export("polygamma", _polygamma, ())
export("polygamma_", _polygamma_, ())


def _mvlgamma_back(g: Tensor, input: Tensor, p: int) -> Any:
    total = input.digamma()
    for j in range(1, p):
        total = total + (input - j / 2).digamma()
    return g * total


MVLGAMMA = Pointwise(
    "mvlgamma",
    {FLOAT: S.mvlgamma},
    floating,
    Rule("MvlgammaBackward0", input=_mvlgamma_back),
    params=("p",),
    title="mvlgamma",
    overlap=(),
)


_MOST_TERMS: Final = 1 << 28  # what takes minutes


def _dimension(input: Tensor, p: Any) -> tuple[int]:
    if isinstance(p, Tensor):
        p = p.__index__()
    if type(p) is not int:
        raise TypeError(f"mvlgamma(): argument 'p' must be int, not {type(p).__name__}")
    if p > _MOST_TERMS:  # PyTorch makes a tensor of so many numbers
        raise RuntimeError(f"mvlgamma(): p={p} is a sum of too many terms")
    require(
        getattr(input, "dtype", None) is not dtypes.bool,
        "The input tensor may not be a boolean tensor.",
        RuntimeError,
    )
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    return (int(p),)


@pointwise(MVLGAMMA, in_place=())
def mvlgamma(input: Tensor, p: int, *, out: Tensor | None = None, inplace: bool = False) -> Run:
    """The logarithm of the multivariate gamma function of dimension p.

    Dtypes: integers and floating point.
    """
    return Run(MVLGAMMA, (input,), _dimension(input, p))


_alias("multigammaln", "mvlgamma")

# -- two arguments --------------------------------------------------------------------------------


def _xlogy_by_number_back(g: Tensor, input: Any, other: Any) -> Any:
    made = xlogy(g, other)
    return made if other > 0 else made.masked_fill(input == 0, 0)


def _xlog1py_by_number_back(g: Tensor, input: Any, other: Any) -> Any:
    made = xlog1py(g, other)
    return made if other > -1 else made.masked_fill(input == 0, 0)


def _xlog1py_other_back(g: Tensor, input: Any, other: Any) -> Any:
    return g * (input / (other + 1))


xlogy: Any = binary_row(
    "xlogy",
    {FLOAT: S.xlogy},
    floating,
    Rule(
        "XlogyBackward0",
        input=lambda g, input, other: where((input == 0) & (other <= 0), 0, xlogy(g, other)),
        other=lambda g, input, other: g * (input / other),
        numbers={
            "input": Rule("XlogyBackward1", other=lambda g, input, other: g * (input / other)),
            "other": Rule("XlogyBackward2", input=_xlogy_by_number_back),
        },
    ),
    doc="input * log(other), 0 where input is 0.",
    namespaces=BOTH,
)
xlog1py: Any = binary_row(
    "xlog1py",
    {FLOAT: S.xlog1py},
    floating,
    Rule(
        "SpecialXlog1PyBackward0",
        input=lambda g, input, other: where((input == 0) & (other <= -1), 0, g * other.log1p()),
        other=_xlog1py_other_back,
        numbers={
            "input": Rule("SpecialXlog1PyBackward1", other=_xlog1py_other_back),
            "other": Rule("SpecialXlog1PyBackward2", input=_xlog1py_by_number_back),
        },
    ),
    doc="input * log(1 + other), 0 where input is 0.",
    namespaces=("special",),
    inplace=False,
    method=False,
)


def _gamma_density(input: Any, other: Any) -> Any:
    return ((input - 1) * other.log() - other - input.lgamma()).exp()


def _no_derivative(name: str) -> Any:
    def formula(g: Tensor) -> Tensor:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")

    return formula


for _name, _kernel, _sign in (("igamma", S.gammainc, 1), ("igammac", S.gammaincc, -1)):
    _f = binary(
        Pointwise(
            _name,
            {FLOAT: _kernel},
            same,
            Rule(
                node_name(_name),
                input=_no_derivative(f"{_name}: input"),
                other=lambda g, input, other, sign=_sign: g * (sign * _gamma_density(input, other)),
            ),
            PAIR,
            numbers=(),
        ),
        doc="The regularised incomplete gamma function.",
    )
    export(_name.replace("igamma", "gammainc"), _f, ("special",), False)

zeta: Any = binary_row(
    "zeta",
    {FLOAT: S.zeta, **NO_HALVES},
    floating,
    Rule(
        "SpecialZetaBackward0",
        input=_no_derivative("zeta"),
        other=lambda g, input, other: g * (-input * zeta(input + 1, other)),
    ),
    doc="Hurwitz's zeta function.",
    namespaces=("special",),
    inplace=False,
    method=False,
)

# -- one argument, in torch.special alone ----------------------------------------------------------


def _special(
    name: str, kernel: Any, formula: Any = None, *, halves: bool = False, doc: str, **known: Any
) -> Any:
    return unary_row(
        name,
        {FLOAT: kernel, **({} if halves else NO_HALVES)},
        formula,
        node=f"Special{node_name(name)}",
        inplace=False,
        method=False,
        namespaces=("special",),
        doc=doc,
        **known,
    )


def _near_zero(input: Tensor, slope: Any) -> Any:
    """The slope of i1 and i1e, 1/2 at 0, where the formula divides by 0."""
    return where(input == 0, 0.5, slope(where(input == 0, 1.0, input)))


i0e: Any = _special(
    "i0e",
    S.i0e,
    lambda g, input, result: g * (i1e(input) - input.sgn() * result),
    halves=True,
    doc="i0(input) exp(-|input|).",
)
i1: Any = _special(
    "i1",
    S.i1,
    lambda g, input, result: g * _near_zero(input, lambda x: NAMESPACES[""]["i0"](x) - result / x),
    halves=True,
    doc="The modified Bessel function of the first kind, of order 1.",
)
i1e: Any = _special(
    "i1e",
    S.i1e,
    lambda g, input, result: g * _near_zero(input, lambda x: i0e(x) - result * (x.sgn() + 1 / x)),
    halves=True,
    doc="i1(input) exp(-|input|).",
)
_special(
    "entr", S.entr, lambda g, input: g * -(1 + input.log()), halves=True, doc="-input log(input)."
)
_special(
    "ndtr",
    S.ndtr,
    lambda g, input: g * ((-0.5 * input * input).exp() / sqrt(2 * pi)),
    halves=True,
    title="erf_vml_cpu",
    overlap=(),
    doc="The normal distribution's cumulative function.",
)
_special(
    "ndtri",
    S.ndtri,
    lambda g, result: g * (sqrt(2 * pi) * (0.5 * result * result).exp()),
    doc="The inverse of ndtr.",
)
erfcx: Any = _special(
    "erfcx",
    S.erfcx,
    lambda g, input, result: g * (2 * (input * result) - 2 / ROOT_PI),
    doc="exp(input ** 2) erfc(input).",
)
_special(
    "log_ndtr",
    S.log_ndtr,
    lambda g, input: g / erfcx(input * -sqrt(0.5)) * sqrt(2 / pi),
    doc="log(ndtr(input)), exact far out.",
)
for _name, _doc in (
    ("airy_ai", "Airy's function Ai."),
    ("bessel_j0", "The Bessel function of the first kind, of order 0."),
    ("bessel_j1", "The Bessel function of the first kind, of order 1."),
    ("bessel_y0", "The Bessel function of the second kind, of order 0."),
    ("bessel_y1", "The Bessel function of the second kind, of order 1."),
    ("modified_bessel_i0", "The modified Bessel function of the first kind, of order 0."),
    ("modified_bessel_i1", "The modified Bessel function of the first kind, of order 1."),
    ("modified_bessel_k0", "The modified Bessel function of the second kind, of order 0."),
    ("modified_bessel_k1", "The modified Bessel function of the second kind, of order 1."),
    ("scaled_modified_bessel_k0", "modified_bessel_k0(input) exp(input)."),
    ("scaled_modified_bessel_k1", "modified_bessel_k1(input) exp(input)."),
    ("spherical_bessel_j0", "sin(input) / input."),
):
    _special(_name, getattr(S, _name.replace("modified_bessel_i", "i")), doc=_doc)
for _name in (
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
):
    binary(
        Pointwise(_name, {FLOAT: getattr(S, _name), **NO_HALVES}, floating, None, ("x", "n")),
        namespaces=("special",),
        inplace=False,
        method=False,
        doc=f"The {_name.replace('_polynomial', '').replace('_', ' ')} polynomial of degree n.",
    )
export("xlogy_", METHODS["xlogy_"], method=False)


SAYS = """\
Shape: any; the result's is the input's.
Raises: NotImplementedError or RuntimeError for other dtypes."""
