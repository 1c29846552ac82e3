# The types of sums.py, for Cython alone.
cimport cython

@cython.locals(top=float, j=Py_ssize_t, stop=Py_ssize_t, lanes=float[32])
cdef inline float _top(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(found=double)
cdef float _sum(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, lanes=float[32])
cdef inline float _piece_of_sum(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(found=double)
cdef float _product(const float* x, const float* y, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, lanes=float[32])
cdef inline float _piece_of_product(const float* x, const float* y, Py_ssize_t at,
                                    Py_ssize_t n) noexcept nogil

@cython.locals(j=Py_ssize_t)
cdef inline void _join(float* lanes) noexcept nogil

cdef inline float _joined(float* lanes) noexcept nogil

@cython.locals(p=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t, k=Py_ssize_t)
cpdef columns(const float[:, :, ::1] x, double[::1] room, float[:, ::1] out)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, whole=Py_ssize_t, one=float, other=float)
cdef inline void _column_sums(const float[:, :, ::1] x, Py_ssize_t p, Py_ssize_t first,
                              Py_ssize_t last, double[::1] room) noexcept nogil
