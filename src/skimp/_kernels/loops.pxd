# The types of loops.py, for Cython alone.
cimport cython
from libc.math cimport sqrt as root


@cython.locals(matrix=cython.uint, one=cython.uint, other=cython.uint, n=Py_ssize_t,
               at=Py_ssize_t, have=Py_ssize_t, done=Py_ssize_t, count=Py_ssize_t)
cpdef stays(unsigned int[::1] state, unsigned int[::1] room, unsigned char[::1] out,
            unsigned int high, unsigned int low)

@cython.locals(i=Py_ssize_t)
cdef void _twist(unsigned int[::1] key, unsigned int matrix) noexcept

@cython.locals(y=cython.uint)
cdef unsigned int _mixed(unsigned int upper, unsigned int lower, unsigned int matrix) noexcept

@cython.locals(i=Py_ssize_t, y=cython.uint)
cdef void _temper(unsigned int[::1] key, Py_ssize_t at, unsigned int[::1] words, Py_ssize_t to,
                  Py_ssize_t count, unsigned int one, unsigned int other) noexcept

@cython.locals(i=Py_ssize_t, first=cython.uint)
cdef void _below(unsigned int[::1] words, unsigned char[::1] out, Py_ssize_t to, Py_ssize_t count,
                 unsigned int high, unsigned int low) noexcept

@cython.locals(i=Py_ssize_t)
cpdef kept(const float[::1] x, const unsigned char[::1] stays, float scale, float[::1] out)

@cython.locals(i=Py_ssize_t)
cpdef passed(const float[::1] g, const float[::1] x, float low, float high, float[::1] out)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t)
cpdef bint added(float[:, ::1] target, const long long[::1] places, const float[:, ::1] rows)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t, row=Py_ssize_t, factor=float)
cpdef bint weighed(float[:, ::1] target, const long long[::1] places, const float[:, ::1] rows,
                   const long long[::1] of, const float[::1] by)

@cython.locals(i=Py_ssize_t, found=cython.int)
cdef bint _lie_outside(const long long[::1] places, Py_ssize_t n) noexcept

@cython.locals(r=Py_ssize_t, k=Py_ssize_t)
cpdef lstm_carried(const float[:, :, ::1] gates, const float[:, ::1] before, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, n=Py_ssize_t, gate=Py_ssize_t, one=float)
cpdef lstm_back(const float[:, :, ::1] gates, const float[:, ::1] before, const float[:, ::1] top,
                const float[:, ::1] dh, const float[:, ::1] dc, float[:, :, ::1] room,
                float[:, ::1] d, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, new=float)
cpdef gru_shown(const float[:, :, ::1] gates, const float[:, ::1] before, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, n=Py_ssize_t, one=float, reset=float, update=float,
               new=float)
cpdef gru_back(const float[:, :, ::1] gates, const float[:, ::1] hidden,
               const float[:, ::1] before, const float[:, ::1] dh, float[:, ::1] room,
               float[:, ::1] d, float[:, ::1] behind, float[:, ::1] resets, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t)
cpdef filled(const unsigned char[::1] mask, float value, const float[:, ::1] x,
             float[:, ::1] out)


@cython.locals(r=Py_ssize_t, total=double, product=double)
cpdef summed(const float[:, ::1] x, const float[:, ::1] y, double[:, ::1] sums)

cpdef normed(const float[:, ::1] x, const float[::1] weight, const float[::1] bias, double eps,
             float[::1] means, float[::1] variances, float kept, float moved, double sample,
             double[:, ::1] moments, float[::1] mean, float[::1] rstd, float[::1] slopes,
             float[::1] shifts, float[:, ::1] out, Py_ssize_t first, Py_ssize_t last)

@cython.locals(channels=Py_ssize_t, images=Py_ssize_t, many=double, c=Py_ssize_t, i=Py_ssize_t,
               r=Py_ssize_t, total=double,
               square=double, one=double, other=double, middle=double, var=double, scale=double,
               shift=double, new=float)
cdef void _normed(const float[:, ::1] x, const float[::1] weight, const float[::1] bias,
                  double eps, float[::1] means, float[::1] variances, float kept, float moved,
                  double sample, double[:, ::1] moments, float[::1] mean, float[::1] rstd,
                  float[::1] slopes, float[::1] shifts, float[:, ::1] out, Py_ssize_t first,
                  Py_ssize_t last) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _norm_line(const float[:, ::1] x, Py_ssize_t r, float a, float b,
                 float[:, ::1] out) noexcept nogil

cpdef normed_back(const float[:, ::1] g, const float[:, ::1] x, const float[:, ::1] seen,
                  const float[::1] slopes, const float[::1] shifts, float low, float high,
                  const float[::1] mean, const float[::1] rstd, const float[::1] weight,
                  bint given, float[::1] dw, float[::1] db, float[:, ::1] out,
                  Py_ssize_t first, Py_ssize_t last)

@cython.locals(channels=Py_ssize_t, images=Py_ssize_t, many=double, c=Py_ssize_t, i=Py_ssize_t,
               r=Py_ssize_t, total=double,
               product=double, one=double, other=double, scale=double, middle=double, grad=double,
               a=double, share=double, b=double, shift=double)
cdef void _normed_back(const float[:, ::1] g, const float[:, ::1] x, const float[:, ::1] seen,
                       const float[::1] slopes, const float[::1] shifts, float low, float high,
                       const float[::1] mean, const float[::1] rstd, const float[::1] weight,
                       bint given, float[::1] dw, float[::1] db, float[:, ::1] out,
                       Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _norm_blend(const float[:, ::1] g, const float[:, ::1] x, Py_ssize_t r, float a,
                          float b, float c, bint given, float[:, ::1] out) noexcept nogil

@cython.locals(k=Py_ssize_t, own=float, line=float)
cdef inline void _norm_gate(const float[:, ::1] g, const float[:, ::1] seen, Py_ssize_t r, float a,
                         float b, float low, float high, float[:, ::1] out) noexcept nogil

@cython.locals(start=Py_ssize_t, total=double, product=double, one=double, other=double)
cdef inline (double, double) _norm_sums(const float[:, ::1] x, const float[:, ::1] y,
                                   Py_ssize_t r) noexcept nogil

@cython.locals(totals="double[16]", products="double[16]", whole=Py_ssize_t, i=Py_ssize_t,
               k=Py_ssize_t, one=double, total=double)
cdef inline (double, double) _norm_part(
    const float[:, ::1] x, const float[:, ::1] y, Py_ssize_t r, Py_ssize_t start,
    Py_ssize_t count) noexcept nogil

@cython.locals(p=Py_ssize_t)
cpdef pooled(const float[:, :, ::1] x, float[:, :, ::1] out, unsigned char[:, :, ::1] taps)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, top=float, one=float, at=cython.int)
cdef inline void _pool_plane(const float[:, :, ::1] x, float[:, :, ::1] out,
                             unsigned char[:, :, ::1] taps, Py_ssize_t p) noexcept nogil

@cython.locals(p=Py_ssize_t, i=Py_ssize_t)
cpdef pooled_back(const float[:, :, ::1] g, const unsigned char[:, :, ::1] taps,
                  float[:, :, ::1] out)

@cython.locals(k=Py_ssize_t, own=float, one=float, other=float, tap=cython.int)
cdef inline void _pool_spread(const float[:, :, ::1] g, const unsigned char[:, :, ::1] taps,
                         float[:, :, ::1] out, Py_ssize_t p, Py_ssize_t i,
                         Py_ssize_t lower) noexcept nogil

@cython.locals(p=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t, k=Py_ssize_t)
cpdef columns(const float[:, :, ::1] x, double[::1] room, float[:, ::1] out)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, whole=Py_ssize_t, one=float, other=float)
cdef inline void _column_sums(const float[:, :, ::1] x, Py_ssize_t p, Py_ssize_t first,
                              Py_ssize_t last, double[::1] room) noexcept nogil
