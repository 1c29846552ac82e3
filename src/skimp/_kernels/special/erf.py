"""The error function, its relatives and inverses."""

from __future__ import annotations

from math import sqrt

import numpy as np

from skimp._kernels import bare
from skimp._kernels.special.base import F64, Array, kernel, pieces, polynomial, ratio

# erf(x) / x in x**2 on [0, 1]
_ERF = (
    1.1283791670955126, -0.37612638903183543, 0.11283791670945006, -0.02686617064323777,
    0.0052239776071164225, -0.0008548325975389692, 0.00012055294904839707,
    -1.492473690741966e-05, 1.6447424703317362e-06, -1.6208483801871705e-07,
    1.3720064546777686e-08, -7.795898827002142e-10,
# (1 + 2 x) erfcx(x) in (x - 3) / (x + 3) on [0, inf)
)  # fmt: skip
_ERFCX = (
    1.2530080582697296, -0.13562110612458117, -0.04756229435345087, 0.1296451587027606,
    -0.11927366341530699, 0.06830802734397848, -0.023770514918645888, 0.002529391816066239,
    0.0018886903591561553, -0.0007798322721083991, -0.00010515979981501177,
    0.00012509935235563107, 4.949484992570595e-06, -2.0100567931289227e-05,
    -7.315105164159062e-07, 3.472414602875686e-06, 3.5683839153992204e-07,
    -6.166496077604353e-07, -1.4160064940265987e-07, 1.0187000600072885e-07,
    4.180784698845582e-08, -1.3326364813003834e-08, -8.500397929772615e-09,
    9.885798831139365e-10, 8.864219016427092e-10,
)  # fmt: skip
# erfinv(x) / x in 0.7225 - x**2 on [0, 0.85]
_ERFINV_P = (
    1.1975323115670913, 13.958624292474479, 64.4124259378243, 150.31127561022078,
    188.25604237118438, 124.17197757418073, 39.45440924312032, 4.902438669904915,
    0.12829291514390134, -0.0010059666989162286,
)  # fmt: skip
_ERFINV_Q = (
    1.0, 12.40747101531872, 61.73091707183999, 158.04617551399502, 222.5881497178227,
    171.3000437946555, 67.47113139595216, 11.701903325327713, 0.6200179491594854,
)  # fmt: skip
# y with erfc(y) = 2 exp(-r**2): in r - 1.6 on [1.6, 5], then in 1 / r up to 27.5
_TAIL1_P = (
    1.006522033603688, 3.4828190020137537, 4.782983546752653, 3.5045161438835524,
    1.528603630133518, 0.4125114637904936, 0.06798748733247538, 0.006379554849763303,
    0.00029174047147026606, 4.535416593959928e-06,
)  # fmt: skip
_TAIL1_Q = (
    1.0, 2.2605151673501407, 2.1264268230544525, 1.0868638300980726, 0.3286389875752645,
    0.05914469888315968, 0.0059384175151360056, 0.0002845052845838409, 4.535329850899032e-06,
)  # fmt: skip
_TAIL2_P = (
    126665334.57929309, 17148639219.4161, 683302605974.0663, 10825700988397.475,
    77432706017291.28, 266338116536831.16, 395827829677903.25, 13021166890401.684,
    -358186918474305.0, -101956446414438.84,
)  # fmt: skip
_TAIL2_Q = (
    1.0, 126664756.517013, 17148904978.385769, 683747486822.4519, 10872713098041.424,
    78958897177555.33, 286073012337518.7, 510940856553263.4, 339925322837495.9,
    46441418319715.15,
)  # fmt: skip
# atanh(erf(x)) / x in x**2 on [0, 16], for float32: nodes crowd towards 0, where it matters
_ERF32_P = (
    1.1283791507377767, 0.3144685902499191, 0.052254185981021606, 0.003223722107473925,
    1.7766759818208303e-05,
)  # fmt: skip
_ERF32_Q = (1.0, 0.1876096566170339, 0.029411400345054482, 0.0007296969937166162)
# (1 + 2 x) erfcx(x) for float32, in (x - 3) / (x + 3) on [0, 10.2]
_ERFCX32 = (
    1.25300805895, -0.135621111469, -0.0475623842915, 0.12964536701, -0.119271644838,
    0.0683064417936, -0.0237872881389, 0.00252794790195, 0.00194785495415,
    -0.000739813225162, -0.000178775972283, 3.6989435719e-05,
)  # fmt: skip
# erfinv(x) / x for float32, of w = -log(1 - x**2): in w - 2.5 on [0, 5], then in sqrt(w) - 3.1430
_ERFINV32_NEAR = (
    1.50140936, 0.2466402791, -0.004177392875, -0.001252726392, 0.0002183493862,
    -4.97241969e-06, -3.463985268e-06, 4.681313482e-07, 2.333596721e-08, -8.931925978e-09,
)  # fmt: skip
_ERFINV32_FAR = (
    2.976423437, 1.003967806, 0.006769972538, -0.005035083702, 0.003557073005,
    -0.002388118013, 0.001276688063, -0.0003332626769, -0.0001587421399, 0.0001203858634,
)  # fmt: skip

_SQRT2 = sqrt(2.0)
_SQRT1_2 = sqrt(0.5)
_FAR_CENTRE = 3.143033988749895
_CENTRE = 0.85  # |x| up to which erfinv is a function of x, beyond it of log(1 - |x|)


def _exp_square(x: F64, sign: float) -> F64:
    """exp(sign * x**2) without the rounding error of x**2: the square of x's head is exact."""
    head = np.rint(x * 16.0) / 16.0
    return np.asarray(bare.exp(sign * head * head) * bare.exp(sign * (x - head) * (x + head)))


def _erfcx_right(x: F64) -> F64:
    return np.asarray(polynomial(1.0 - 6.0 / (x + 3.0), _ERFCX) / (1.0 + 2.0 * x))


def erfc64(x: F64) -> F64:
    """1 - erf(x), accurate in the right tail."""
    a = bare.absolute(x)
    y = _exp_square(bare.minimum(a, 40.0), -1.0)
    y *= _erfcx_right(a)
    return bare.where(x < 0, 2.0 - y, y)


def erf64(x: F64) -> F64:
    """The error function."""
    a = bare.absolute(x)
    return pieces(
        x,
        (a < 1.0, lambda x: x * polynomial(x * x, _ERF)),
        (a >= 1.0, lambda x: bare.copysign(1.0 - erfc64(bare.absolute(x)), x)),
    )


def erfcx64(x: F64) -> F64:
    """exp(x**2) * erfc(x)."""
    y = _erfcx_right(bare.absolute(x))
    left = x < 0
    if left.any():
        bare.copyto(y, 2.0 * _exp_square(bare.maximum(x, -40.0), 1.0) - y, where=left)
    return y


def _tail(p: F64) -> F64:
    """y with erfc(y) = 2 p, for p up to exp(-1.6**2); infinite at 0, NaN below."""
    r = bare.sqrt(-bare.log(p))
    return pieces(
        r,
        (r <= 5.0, lambda r: ratio(r - 1.6, _TAIL1_P, _TAIL1_Q)),
        ((r > 5.0) & (r < 28.0), lambda r: ratio(1.0 / r, _TAIL2_P, _TAIL2_Q)),
        (r == np.inf, lambda r: r),
    )


def _centre(x: F64) -> F64:
    return np.asarray(x * ratio(0.7225 - x * x, _ERFINV_P, _ERFINV_Q))


def erfinv64(x: F64) -> F64:
    """The inverse of erf; infinite at -1 and 1, NaN outside."""
    a = bare.absolute(x)
    return pieces(
        x,
        (a <= _CENTRE, _centre),
        (a > _CENTRE, lambda x: bare.copysign(_tail(0.5 * (1.0 - bare.absolute(x))), x)),
    )


def ndtr64(x: F64) -> F64:
    """The distribution function of the standard normal."""
    y = erfc64(x * -_SQRT1_2)
    y *= 0.5
    return y


def ndtri64(p: F64) -> F64:
    """The quantile function of the standard normal."""
    x = 2.0 * p - 1.0
    y = pieces(
        p,
        (bare.absolute(x) <= _CENTRE, lambda p: _centre(2.0 * p - 1.0)),
        (x < -_CENTRE, lambda p: -_tail(p)),
        (x > _CENTRE, lambda p: _tail(1.0 - p)),
    )
    return y * _SQRT2


def log_ndtr64(x: F64) -> F64:
    """log(ndtr(x)), accurate in both tails."""
    return pieces(
        x,
        (x < -1.0, lambda x: bare.log(0.5 * erfcx64(x * -_SQRT1_2)) - 0.5 * x * x),
        (x >= -1.0, lambda x: bare.log1p(-0.5 * erfc64(x * _SQRT1_2))),
    )


def erf_float32(x: Array, out: Array) -> None:
    """erf in float32, within 4 ulp: tanh of a rational function, no branch (exact GELU is this)."""
    square = bare.multiply(x, x)
    square = bare.minimum(square, 16.0)
    q = polynomial(square, _ERF32_Q)
    bare.multiply(square, _ERF32_P[-1], out=out)
    for c in _ERF32_P[-2:0:-1]:
        out += c
        out *= square
    out += _ERF32_P[0]
    out /= q
    out *= x
    bare.tanh(out, out=out)


_erf_wide = kernel(erf64)


def erf(x: Array, *, out: Array) -> None:
    """The error function; float32 stays in float32."""
    if out.dtype == np.float32 and x.dtype == np.float32:
        erf_float32(x, out)
    else:
        _erf_wide(x, out=out)


def _erfc_of_float32(x: F64) -> F64:
    """erfc for results of float32: a short polynomial, and no care for the digits of x**2."""
    a = bare.absolute(x)
    y = polynomial(1.0 - 6.0 / (a + 3.0), _ERFCX32)
    y /= 1.0 + 2.0 * a
    y *= bare.exp(-a * a)
    return bare.where(x < 0, 2.0 - y, y)


def _erfinv_of_float32(x: F64) -> F64:
    """erfinv for float32, within .7 ulp."""
    w = (1.0 - x) * (1.0 + x)
    bare.negative(bare.log(w, out=w), out=w)
    y = polynomial(w - 2.5, _ERFINV32_NEAR)
    far = w > 5.0
    if bare.count_nonzero(far):
        root = bare.sqrt(w[far])
        y[far] = bare.where(root == np.inf, root, polynomial(root - _FAR_CENTRE, _ERFINV32_FAR))
    y *= x
    return y


erfc = kernel(erfc64, _erfc_of_float32)
erfcx = kernel(erfcx64)
erfinv = kernel(erfinv64, _erfinv_of_float32)
ndtr = kernel(ndtr64, lambda x: 0.5 * _erfc_of_float32(x * -_SQRT1_2))
ndtri = kernel(ndtri64)
log_ndtr = kernel(log_ndtr64)
