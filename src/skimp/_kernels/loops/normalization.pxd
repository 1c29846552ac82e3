# The types of normalization.py, for Cython alone.
cimport cython

@cython.locals(start=Py_ssize_t, total=double, product=double, one=double, other=double)
cdef inline (double, double) _norm_sums(const float[:, ::1] x, const float[:, ::1] y,
                                   Py_ssize_t r) noexcept nogil

@cython.locals(totals="double[16]", products="double[16]", whole=Py_ssize_t, i=Py_ssize_t,
               k=Py_ssize_t, one=double, total=double)
cdef inline (double, double) _norm_part(
    const float[:, ::1] x, const float[:, ::1] y, Py_ssize_t r, Py_ssize_t start,
    Py_ssize_t count) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef summed(const float[:, ::1] x, const float[:, ::1] y, double[:, ::1] sums, Py_ssize_t threads)

@cython.locals(r=Py_ssize_t, total=double, product=double)
cdef void _summed(const float[:, ::1] x, const float[:, ::1] y, double[:, ::1] sums,
                  Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(rows=Py_ssize_t, places=Py_ssize_t, t=Py_ssize_t)
cpdef lined(const float[:, ::1] x, const float[::1] a, const float[::1] b,
            const float[:, ::1] more, bint holds, float low, float high, float[:, ::1] out,
            Py_ssize_t threads)

@cython.locals(rows=Py_ssize_t, places=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t)
cdef void _lined_by(const float[:, ::1] x, const float[::1] a, const float[::1] b,
                    const float[:, ::1] more, bint holds, float low, float high,
                    float[:, ::1] out, Py_ssize_t t, Py_ssize_t count) noexcept nogil

@cython.locals(channels=Py_ssize_t, r=Py_ssize_t, c=Py_ssize_t, k=Py_ssize_t)
cdef void _lined(const float[:, ::1] x, const float[::1] a, const float[::1] b,
                 const float[:, ::1] more, bint holds, float low, float high, float[:, ::1] out,
                 Py_ssize_t first, Py_ssize_t last, Py_ssize_t start, Py_ssize_t stop) noexcept nogil

@cython.locals(made="float[256]", k=Py_ssize_t, one=float)
cdef inline void _line_part(const float[:, ::1] x, float a, float b, const float[:, ::1] more,
                            bint holds, float low, float high, float[:, ::1] out, Py_ssize_t r,
                            Py_ssize_t at, Py_ssize_t count) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef normed(const float[:, ::1] x, const float[::1] weight, const float[::1] bias, double eps,
             float[::1] means, float[::1] variances, float kept, float moved, double sample,
             double[:, ::1] moments, float[::1] mean, float[::1] rstd, float[::1] slopes,
             float[::1] shifts, float[:, ::1] out, Py_ssize_t first, Py_ssize_t last,
             Py_ssize_t threads)

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

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef normed_back(const float[:, ::1] g, const float[:, ::1] x, const float[:, ::1] seen,
                  const float[::1] slopes, const float[::1] shifts, float low, float high,
                  const float[::1] mean, const float[::1] rstd, const float[::1] weight,
                  bint given, float[::1] dw, float[::1] db, float[:, ::1] out, bint over,
                  Py_ssize_t first, Py_ssize_t last, Py_ssize_t threads)

@cython.locals(channels=Py_ssize_t, images=Py_ssize_t, many=double, c=Py_ssize_t, i=Py_ssize_t,
               r=Py_ssize_t, total=double,
               product=double, one=double, other=double, scale=double, middle=double, grad=double,
               a=double, share=double, b=double, shift=double)
cdef void _normed_back(const float[:, ::1] g, const float[:, ::1] x, const float[:, ::1] seen,
                       const float[::1] slopes, const float[::1] shifts, float low, float high,
                       const float[::1] mean, const float[::1] rstd, const float[::1] weight,
                       bint given, float[::1] dw, float[::1] db, float[:, ::1] out, bint over,
                       Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _norm_blend(const float[:, ::1] g, const float[:, ::1] x, Py_ssize_t r, float a,
                          float b, float c, bint given, float[:, ::1] out) noexcept nogil

@cython.locals(k=Py_ssize_t, own=float, line=float)
cdef inline void _norm_gate(const float[:, ::1] g, const float[:, ::1] seen, Py_ssize_t r, float a,
                         float b, float low, float high, float[:, ::1] out) noexcept nogil
