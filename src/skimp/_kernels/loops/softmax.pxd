# The types of softmax.py, for Cython alone.
cimport cython

cpdef softmaxes(const float[::1] x, Py_ssize_t n, float[::1] out)

@cython.locals(k=Py_ssize_t, one=float, least=float, most=float, total=float, step=Py_ssize_t,
               count=Py_ssize_t)
cdef void _softmaxes(const float* x, Py_ssize_t n, float* out, Py_ssize_t at,
                     Py_ssize_t stop) noexcept nogil

cpdef softmaxes_back(const float[::1] g, const float[::1] y, Py_ssize_t n, float[::1] out)

@cython.locals(k=Py_ssize_t, total=float)
cdef void _softmaxes_back(const float* g, const float* y, Py_ssize_t n, float* out,
                          Py_ssize_t at, Py_ssize_t stop) noexcept nogil

cpdef log_softmaxes(const float[::1] x, Py_ssize_t n, float[::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, level=float, step=Py_ssize_t, count=Py_ssize_t,
               room=float[2048])
cdef void _log_softmaxes(const float* x, Py_ssize_t n, float* out, Py_ssize_t at,
                         Py_ssize_t stop) noexcept nogil

cpdef log_softmaxes_back(const float[::1] g, const float[::1] y, Py_ssize_t n, float[::1] out)

@cython.locals(k=Py_ssize_t, total=float, step=Py_ssize_t, count=Py_ssize_t)
cdef void _log_softmaxes_back(const float* g, const float* y, Py_ssize_t n, float* out,
                              Py_ssize_t at, Py_ssize_t stop) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _less(const float* x, Py_ssize_t at, Py_ssize_t n, float number,
                       float* out) noexcept nogil

@cython.locals(found=double)
cdef float _powers(const float* x, Py_ssize_t at, Py_ssize_t n, float* room) noexcept nogil

@cython.locals(j=Py_ssize_t, room=float[32])
cdef void _exps(const float* x, Py_ssize_t at, Py_ssize_t n, float* out,
                Py_ssize_t to) noexcept nogil

@cython.locals(least=float, most=float, per=float, magic=float, high=float, low=float, one=float,
               c2=float, c3=float, c4=float, c5=float, c6=float, w=float, k=float, r=float,
               q=float, e=float)
cdef inline float _exp(float v) noexcept nogil

@cython.locals(bits=cython.int)
cdef inline float _two_to(float k) noexcept nogil

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
