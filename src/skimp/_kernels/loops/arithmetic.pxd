# The types of arithmetic.py, for Cython alone.
cimport cython
from libc.math cimport sqrt as root

cdef extern from *:
    """
    #include <math.h>
    #define SKIMP_DATA(x) ((float*) (x).data)
    #define SKIMP_LACKS(x) ((x) == NULL)
    #define SKIMP_DOUBLES(x) ((double*) (x).data)
    #define SKIMP_PLACES(x) ((long long*) (x).data)
    #ifdef FP_FAST_FMAF
    #define SKIMP_FUSED(a, b, c) fmaf(a, b, c)
    #else
    #define SKIMP_FUSED(a, b, c) ((a) * (b) + (c))
    #endif
    """
    const float* _of "SKIMP_DATA" (const float[::1] x) noexcept nogil
    const long long* _places "SKIMP_PLACES" (const long long[::1] x) noexcept nogil
    bint _lacks "SKIMP_LACKS" (const float* x) noexcept nogil
    double* _doubles "SKIMP_DOUBLES" (double[::1] x) noexcept nogil
    float* _into "SKIMP_DATA" (float[::1] x) noexcept nogil
    float _fused "SKIMP_FUSED" (float a, float b, float c) noexcept nogil
    float log "logf" (float x) noexcept nogil
    float sqrt "sqrtf" (float x) noexcept nogil

cdef extern from "bare.h":
    object bare_kept(object x, int dims, int ones)
    Py_ssize_t bare_size(object x)
    float* bare_floats(object x)
