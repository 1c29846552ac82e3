# The types of places.py, for Cython alone.
cimport cython

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t)
cpdef bint added(float[:, ::1] target, const long long[::1] places, const float[:, ::1] rows)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t, row=Py_ssize_t, factor=float)
cpdef bint weighed(float[:, ::1] target, const long long[::1] places, const float[:, ::1] rows,
                   const long long[::1] of, const float[::1] by)

@cython.locals(i=Py_ssize_t, found=cython.int)
cdef bint _lie_outside(const long long* places, Py_ssize_t count, Py_ssize_t n) noexcept
