# The types of optimizers.py, for Cython alone.
cimport cython

@cython.locals(p=float[::1], g="const float[::1]")
cpdef sgd(list jobs, const float[::1] numbers)

@cython.locals(i=Py_ssize_t, x=float, sign=float, decay=float, decays=bint, lr=float)
cdef void _sgd(float[::1] p, const float[::1] g, const float[::1] numbers) noexcept nogil

@cython.locals(p=float[::1], b=float[::1], g="const float[::1]")
cpdef momentum(list jobs, const float[::1] numbers)

@cython.locals(i=Py_ssize_t, x=float, mean=float, sign=float, decay=float, decays=bint,
               keep=float, new=float, nesterov=bint, lr=float)
cdef void _momentum(float[::1] p, float[::1] b, const float[::1] g,
               const float[::1] numbers) noexcept nogil

@cython.locals(p=float[::1], m=float[::1], v=float[::1], g="const float[::1]")
cpdef adam(list jobs, const float[::1] numbers)

@cython.locals(i=Py_ssize_t, x=float, mean=float, square=float, sign=float, decay=float,
               decays=bint, shrink=float, near=bint, weight=float, keep=float, new=float,
               size=float, root=float, eps=float)
cdef void _adam(float[::1] p, float[::1] m, float[::1] v, const float[::1] g,
               const float[::1] numbers) noexcept nogil

@cython.locals(p=float[::1], m=float[::1], v=float[::1], top=float[::1], g="const float[::1]")
cpdef amsgrad(list jobs, const float[::1] numbers)

@cython.locals(i=Py_ssize_t, x=float, mean=float, square=float, most=float, sign=float,
               decay=float, decays=bint, shrink=float, near=bint, weight=float, keep=float,
               new=float, size=float, root=float, eps=float)
cdef void _amsgrad(float[::1] p, float[::1] m, float[::1] v, float[::1] top,
               const float[::1] g, const float[::1] numbers) noexcept nogil

@cython.locals(p=float[::1], v=float[::1], g="const float[::1]")
cpdef rmsprop(list jobs, const float[::1] numbers)

@cython.locals(i=Py_ssize_t, x=float, square=float, sign=float, decay=float, decays=bint,
               keep=float, new=float, lr=float, eps=float)
cdef void _rmsprop(float[::1] p, float[::1] v, const float[::1] g,
               const float[::1] numbers) noexcept nogil

@cython.locals(p=float[::1], v=float[::1], b=float[::1], g="const float[::1]")
cpdef rmsprop_momentum(list jobs, const float[::1] numbers)

@cython.locals(i=Py_ssize_t, x=float, square=float, mean=float, sign=float, decay=float,
               decays=bint, keep=float, new=float, momentum=float, lr=float, eps=float)
cdef void _rmsprop_momentum(float[::1] p, float[::1] v, float[::1] b, const float[::1] g,
               const float[::1] numbers) noexcept nogil

@cython.locals(p=float[::1], v=float[::1], g="const float[::1]")
cpdef adagrad(list jobs, const float[::1] numbers)

@cython.locals(i=Py_ssize_t, x=float, square=float, sign=float, decay=float, decays=bint,
               size=float, eps=float)
cdef void _adagrad(float[::1] p, float[::1] v, const float[::1] g,
               const float[::1] numbers) noexcept nogil

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t, x=float, mean=float, square=float,
               weight=float, rest=float, size=float, eps=float)
cpdef bint sparse_adam(float[:, ::1] p, float[:, ::1] m, float[:, ::1] v,
                       const long long[::1] places, const float[:, ::1] rows,
                       const float[::1] numbers)
