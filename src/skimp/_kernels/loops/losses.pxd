# The types of losses.py, for Cython alone.
cimport cython

@cython.locals(rows=Py_ssize_t, t=Py_ssize_t)
cpdef bint class_losses(const float[::1] x, const long long[::1] classes, Py_ssize_t n,
                        float[::1] losses, float[::1] levels, Py_ssize_t threads)

@cython.locals(n=Py_ssize_t, rows=Py_ssize_t, of=cython.p_float, count=float)
cpdef made_class_losses(object x, object classes)

@cython.locals(step=Py_ssize_t, count=Py_ssize_t, r=Py_ssize_t, at=Py_ssize_t, top=float,
               level=float, room=float[2048])
cdef void _class_losses(const float* x, const long long* classes, Py_ssize_t n, float* losses,
                        float* levels, Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(rows=Py_ssize_t, t=Py_ssize_t)
cpdef bint class_gradients(const float[::1] x, const long long[::1] classes,
                           const float[::1] levels, const float[::1] whole, const float[::1] own,
                           Py_ssize_t n, float[::1] out, Py_ssize_t threads)

@cython.locals(step=Py_ssize_t, count=Py_ssize_t, r=Py_ssize_t, k=Py_ssize_t, factor=float)
cdef void _class_gradients(const float* x, const long long* classes, const float* levels,
                           const float* whole, const float* own, Py_ssize_t n, float* out,
                           Py_ssize_t first, Py_ssize_t last) noexcept nogil
