# The types of optimizers.py, for Cython alone.
cimport cython

ctypedef void (*_Update)(float** at, Py_ssize_t first, Py_ssize_t last,
                         const float* numbers) noexcept nogil

@cython.locals(many=Py_ssize_t, total=Py_ssize_t, table="float**", ends="Py_ssize_t*",
               k=Py_ssize_t, i=Py_ssize_t, t=Py_ssize_t, step=Py_ssize_t, view=float[::1],
               given="const float[::1]")
cdef void _updated(_Update update, Py_ssize_t wide, list jobs, const float[::1] numbers,
                   Py_ssize_t threads) except *

@cython.locals(start=Py_ssize_t, k=Py_ssize_t, low=Py_ssize_t, high=Py_ssize_t)
cdef void _ranged(_Update update, Py_ssize_t wide, float** table, Py_ssize_t* ends,
                  Py_ssize_t many, const float* numbers, Py_ssize_t first,
                  Py_ssize_t last) noexcept nogil

cpdef sgd(list jobs, const float[::1] numbers, Py_ssize_t threads)

@cython.locals(p=cython.p_float, g=cython.p_float,
               i=Py_ssize_t, x=float, sign=float, decay=float, decays=bint, lr=float)
cdef void _sgd(float** at, Py_ssize_t first, Py_ssize_t last,
               const float* numbers) noexcept nogil

cpdef momentum(list jobs, const float[::1] numbers, Py_ssize_t threads)

@cython.locals(p=cython.p_float, b=cython.p_float, g=cython.p_float,
               i=Py_ssize_t, x=float, mean=float, sign=float, decay=float, decays=bint,
               keep=float, new=float, nesterov=bint, lr=float)
cdef void _momentum(float** at, Py_ssize_t first, Py_ssize_t last,
               const float* numbers) noexcept nogil

cpdef adam(list jobs, const float[::1] numbers, Py_ssize_t threads)

@cython.locals(p=cython.p_float, m=cython.p_float, v=cython.p_float, g=cython.p_float,
               i=Py_ssize_t, x=float, mean=float, square=float, sign=float, decay=float,
               decays=bint, shrink=float, near=bint, weight=float, keep=float, new=float,
               size=float, root=float, eps=float)
cdef void _adam(float** at, Py_ssize_t first, Py_ssize_t last,
               const float* numbers) noexcept nogil

cpdef amsgrad(list jobs, const float[::1] numbers, Py_ssize_t threads)

@cython.locals(p=cython.p_float, m=cython.p_float, v=cython.p_float, top=cython.p_float,
               g=cython.p_float,
               i=Py_ssize_t, x=float, mean=float, square=float, most=float, sign=float,
               decay=float, decays=bint, shrink=float, near=bint, weight=float, keep=float,
               new=float, size=float, root=float, eps=float)
cdef void _amsgrad(float** at, Py_ssize_t first, Py_ssize_t last,
               const float* numbers) noexcept nogil

cpdef rmsprop(list jobs, const float[::1] numbers, Py_ssize_t threads)

@cython.locals(p=cython.p_float, v=cython.p_float, g=cython.p_float,
               i=Py_ssize_t, x=float, square=float, sign=float, decay=float, decays=bint,
               keep=float, new=float, lr=float, eps=float)
cdef void _rmsprop(float** at, Py_ssize_t first, Py_ssize_t last,
               const float* numbers) noexcept nogil

cpdef rmsprop_momentum(list jobs, const float[::1] numbers, Py_ssize_t threads)

@cython.locals(p=cython.p_float, v=cython.p_float, b=cython.p_float, g=cython.p_float,
               i=Py_ssize_t, x=float, square=float, mean=float, sign=float, decay=float,
               decays=bint, keep=float, new=float, momentum=float, lr=float, eps=float)
cdef void _rmsprop_momentum(float** at, Py_ssize_t first, Py_ssize_t last,
               const float* numbers) noexcept nogil

cpdef adagrad(list jobs, const float[::1] numbers, Py_ssize_t threads)

@cython.locals(p=cython.p_float, v=cython.p_float, g=cython.p_float,
               i=Py_ssize_t, x=float, square=float, sign=float, decay=float, decays=bint,
               size=float, eps=float)
cdef void _adagrad(float** at, Py_ssize_t first, Py_ssize_t last,
               const float* numbers) noexcept nogil

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t, x=float, mean=float, square=float,
               weight=float, rest=float, size=float, eps=float)
cpdef bint sparse_adam(float[:, ::1] p, float[:, ::1] m, float[:, ::1] v,
                       const long long[::1] places, const float[:, ::1] rows,
                       const float[::1] numbers)
