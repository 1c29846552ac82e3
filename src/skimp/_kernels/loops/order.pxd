# The types of order.py, for Cython alone.
cimport cython

@cython.locals(around=Py_ssize_t[3])
cpdef topped(object x, Py_ssize_t k, object dim, bint largest)

@cython.locals(r=Py_ssize_t, i=Py_ssize_t, at=Py_ssize_t, to=Py_ssize_t, last=Py_ssize_t, one=float)
cdef bint _topped(const float* x, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t k, bint largest,
                  float* values, long long* places) noexcept

cdef bint _beats(float one, float other, bint largest) noexcept

@cython.locals(around=Py_ssize_t[3])
cpdef accumulated(object x, object dim)

@cython.locals(i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, total=double)
cdef void _accumulated(const float* x, Py_ssize_t before, Py_ssize_t n, Py_ssize_t after,
                       float* out) noexcept
