# The types of layer_norm.py, for Cython alone.
cimport cython

@cython.locals(how=cython.int, rows=Py_ssize_t, t=Py_ssize_t)
cpdef normalized(const float[::1] x, const float[::1] w, const float[::1] b, Py_ssize_t n,
                 float eps, bint centre, float[::1] mean, float[::1] rstd, float[::1] out,
                 Py_ssize_t threads)

@cython.locals(how=cython.int, rows=Py_ssize_t, t=Py_ssize_t)
cpdef normalized_again(const float[::1] x, const float[::1] w, const float[::1] b, Py_ssize_t n,
                       bint centre, float[::1] mean, float[::1] rstd, float[::1] out,
                       Py_ssize_t threads)

@cython.locals(n=Py_ssize_t, how=cython.int)
cpdef made_normalized(object x, object shape, object w, object b, float eps, bint centre)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t, one=float, size=float, middle=float,
               scale=float)
cdef void _normalized(const float* x, const float* w, const float* b, Py_ssize_t n, float eps,
                      int how, float* mean, float* rstd, float* out, Py_ssize_t first,
                      Py_ssize_t last) noexcept nogil

@cython.locals(rows=Py_ssize_t, pieces=Py_ssize_t, affine=bint, t=Py_ssize_t)
cpdef normalized_back(const float[::1] g, const float[::1] x, const float[::1] mean,
                      const float[::1] rstd, const float[::1] w, Py_ssize_t n, bint centre,
                      float[::1] out, Py_ssize_t step, double[::1] room, float[::1] near,
                      float[::1] sums, Py_ssize_t threads)

@cython.locals(p=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t, r=Py_ssize_t, k=Py_ssize_t,
               at=Py_ssize_t, to=Py_ssize_t, size=float, middle=float, scale=float, along=float,
               apart=float, sums=float[2])
cdef void _normalized_back(const float* g, const float* x, const float* mean, const float* rstd,
                           const float* w, Py_ssize_t n, bint centre, bint affine, float* out,
                           Py_ssize_t step, double* room, float* near, Py_ssize_t rows,
                           Py_ssize_t piece, Py_ssize_t stop) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _flush(float* near, double* room, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(one=double, other=double, done=Py_ssize_t, count=Py_ssize_t)
cdef void _both_sums(const float* g, const float* x, const float* w, Py_ssize_t at, Py_ssize_t n,
                     float middle, float scale, float* sums) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, also=float, lanes=float[32],
               others=float[32])
cdef inline void _pieces_of_both(const float* g, const float* x, const float* w, Py_ssize_t at,
                                 Py_ssize_t k, Py_ssize_t n, float middle, float scale,
                                 float* sums) noexcept nogil
