# The types of pooling.py, for Cython alone.
cimport cython

@cython.locals(p=Py_ssize_t)
cpdef pooled(const float[:, :, ::1] x, float[:, :, ::1] out, unsigned char[:, :, ::1] taps)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, top=float, one=float, at=cython.int)
cdef inline void _pool_plane(const float[:, :, ::1] x, float[:, :, ::1] out,
                             unsigned char[:, :, ::1] taps, Py_ssize_t p) noexcept nogil

@cython.locals(p=Py_ssize_t, i=Py_ssize_t)
cpdef pooled_back(const float[:, :, ::1] g, const unsigned char[:, :, ::1] taps,
                  float[:, :, ::1] out)

@cython.locals(k=Py_ssize_t, own=float, one=float, other=float, tap=cython.int)
cdef inline void _pool_spread(const float[:, :, ::1] g, const unsigned char[:, :, ::1] taps,
                         float[:, :, ::1] out, Py_ssize_t p, Py_ssize_t i,
                         Py_ssize_t lower) noexcept nogil
