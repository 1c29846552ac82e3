# The types of softmax.py, for Cython alone.
cimport cython

ctypedef void (*_Rows)(const float* x, Py_ssize_t n, float* out, Py_ssize_t at,
                       Py_ssize_t stop) noexcept nogil
ctypedef void (*_RowsBack)(const float* g, const float* y, Py_ssize_t n, float* out,
                           Py_ssize_t at, Py_ssize_t stop) noexcept nogil

@cython.locals(size=Py_ssize_t, rows=Py_ssize_t, t=Py_ssize_t)
cdef void _by_rows(_Rows loop, const float[::1] x, Py_ssize_t n, float[::1] out,
                   Py_ssize_t threads) except *

@cython.locals(size=Py_ssize_t, rows=Py_ssize_t, t=Py_ssize_t)
cdef void _back_by_rows(_RowsBack loop, const float[::1] g, const float[::1] y, Py_ssize_t n,
                        float[::1] out, Py_ssize_t threads) except *

@cython.locals(n=Py_ssize_t)
cdef _made(_Rows loop, object x, object dim)

cpdef made_softmaxes(object x, object dim)

cpdef made_log_softmaxes(object x, object dim)

@cython.locals(n=Py_ssize_t)
cdef _made_back(_RowsBack loop, object g, object y, object dim)

cpdef made_softmaxes_back(object g, object y, object dim)

cpdef made_log_softmaxes_back(object g, object y, object dim)

cpdef softmaxes(const float[::1] x, Py_ssize_t n, float[::1] out,
                Py_ssize_t threads)

@cython.locals(k=Py_ssize_t, one=float, least=float, most=float, total=float, step=Py_ssize_t,
               count=Py_ssize_t)
cdef void _softmaxes(const float* x, Py_ssize_t n, float* out, Py_ssize_t at,
                     Py_ssize_t stop) noexcept nogil

cpdef softmaxes_back(const float[::1] g, const float[::1] y, Py_ssize_t n, float[::1] out,
                     Py_ssize_t threads)

@cython.locals(k=Py_ssize_t, total=float)
cdef void _softmaxes_back(const float* g, const float* y, Py_ssize_t n, float* out,
                          Py_ssize_t at, Py_ssize_t stop) noexcept nogil

cpdef log_softmaxes(const float[::1] x, Py_ssize_t n, float[::1] out,
                    Py_ssize_t threads)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, level=float, step=Py_ssize_t, count=Py_ssize_t,
               room=float[2048])
cdef void _log_softmaxes(const float* x, Py_ssize_t n, float* out, Py_ssize_t at,
                         Py_ssize_t stop) noexcept nogil

cpdef log_softmaxes_back(const float[::1] g, const float[::1] y, Py_ssize_t n, float[::1] out,
                         Py_ssize_t threads)

@cython.locals(k=Py_ssize_t, total=float, step=Py_ssize_t, count=Py_ssize_t)
cdef void _log_softmaxes_back(const float* g, const float* y, Py_ssize_t n, float* out,
                              Py_ssize_t at, Py_ssize_t stop) noexcept nogil
