"""The pointwise special functions that NumPy lacks, by family."""

from skimp._kernels.special.bessel import (
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    i0,
    i0e,
    i1,
    i1e,
    modified_bessel_k0,
    modified_bessel_k1,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    spherical_bessel_j0,
)
from skimp._kernels.special.erf import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from skimp._kernels.special.gamma import digamma, lgamma, mvlgamma, polygamma, trigamma, zeta
from skimp._kernels.special.gammainc import gammainc, gammaincc
from skimp._kernels.special.misc import entr, logit, sinc, xlog1py, xlogy
from skimp._kernels.special.polynomials import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t",
    "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr",
    "erf", "erfc", "erfcx", "erfinv", "gammainc", "gammaincc", "hermite_polynomial_h",
    "hermite_polynomial_he", "i0", "i0e", "i1", "i1e", "laguerre_polynomial_l",
    "legendre_polynomial_p", "lgamma", "log_ndtr", "logit", "modified_bessel_k0",
    "modified_bessel_k1", "mvlgamma", "ndtr", "ndtri", "polygamma", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "sinc",
    "spherical_bessel_j0", "trigamma", "xlog1py", "xlogy", "zeta",
]  # fmt: skip
