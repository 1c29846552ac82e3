# The types of exponentials.py, for Cython alone.
cimport cython

cdef extern from "exponentials.h":
    bint exponentials_made(const float* x, Py_ssize_t at, Py_ssize_t n, float* out,
                           Py_ssize_t to) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _less(const float* x, Py_ssize_t at, Py_ssize_t n, float number, float* out,
                       Py_ssize_t to) noexcept nogil

@cython.locals(found=double, count=Py_ssize_t)
cdef float _powers(const float* x, Py_ssize_t at, Py_ssize_t n, float number,
                   float* room) noexcept nogil

@cython.locals(j=Py_ssize_t, room=float[32])
cdef void _exps(const float* x, Py_ssize_t at, Py_ssize_t n, float* out,
                Py_ssize_t to) noexcept nogil

@cython.locals(least=float, most=float, per=float, magic=float, high=float, low=float, one=float,
               c2=float, c3=float, c4=float, c5=float, c6=float, w=float, k=float, r=float,
               q=float, e=float)
cdef inline float _exp(float v) noexcept nogil

@cython.locals(bits=cython.int)
cdef inline float _two_to(float k) noexcept nogil
