# The types of halves.py, for Cython alone.
cimport cython

cdef extern from *:
    """
    #ifdef __F16C__
    #include <immintrin.h>
    #endif
    /* As many as come eight at a time, from the first on; where the others begin. */
    static Py_ssize_t halves_converted(const unsigned int* x, unsigned short* out,
                                       Py_ssize_t first, Py_ssize_t last) {
    #ifdef __F16C__
        for (; last - first >= 8; first += 8)
            _mm_storeu_si128((__m128i*) (out + first),
                             _mm256_cvtps_ph(_mm256_loadu_ps((const float*) (x + first)), 0));
    #endif
        return first;
    }
    static Py_ssize_t halves_widened(const unsigned short* x, float* out, Py_ssize_t first,
                                     Py_ssize_t last) {
    #ifdef __F16C__
        for (; last - first >= 8; first += 8)
            _mm256_storeu_ps(out + first,
                             _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*) (x + first))));
    #endif
        return first;
    }
    """
    Py_ssize_t halves_converted(const unsigned int* x, unsigned short* out, Py_ssize_t first,
                                Py_ssize_t last) noexcept nogil
    Py_ssize_t halves_widened(const unsigned short* x, float* out, Py_ssize_t first,
                              Py_ssize_t last) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef halved(const unsigned int[::1] x, unsigned short[::1] out, Py_ssize_t threads)

@cython.locals(i=Py_ssize_t, u=cython.uint, e=cython.uint, normal=cython.uint, cut=cython.uint,
               m=cython.uint, small=cython.uint, near=cython.uint, nan=cython.uint,
               least=cython.uint, most=cython.uint, infinite=cython.uint, fewest=cython.uint,
               digits=cython.uint)
cdef void _halved(const unsigned int[::1] x, unsigned short[::1] out, Py_ssize_t first,
                  Py_ssize_t last) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef widened(const unsigned short[::1] x, unsigned int[::1] bits, float[::1] out,
              Py_ssize_t threads)

@cython.locals(start=Py_ssize_t)
cdef void _widened(const unsigned short[::1] x, unsigned int[::1] bits, float[::1] out,
                   Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(i=Py_ssize_t, u=cython.uint, low=float, none=float, top=cython.uint,
               normal=cython.uint, small=cython.uint, more=cython.uint, v=float)
cdef void _widened_block(const unsigned short[::1] x, unsigned int[::1] bits, float[::1] out,
                         Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef brain_halved(const unsigned int[::1] x, unsigned short[::1] out, Py_ssize_t threads)

@cython.locals(i=Py_ssize_t, u=cython.uint, near=cython.uint, infinite=cython.uint,
               nan=cython.uint)
cdef void _brain_halved(const unsigned int[::1] x, unsigned short[::1] out, Py_ssize_t first,
                        Py_ssize_t last) noexcept nogil
