# The types of order.py, for Cython alone.
cimport cython

@cython.locals(last=Py_ssize_t, r=Py_ssize_t, i=Py_ssize_t, at=Py_ssize_t, one=float)
cpdef bint topped(const float[:, ::1] x, bint largest, float[:, ::1] values,
                  long long[:, ::1] places)

cdef bint _beats(float one, float other, bint largest) noexcept

@cython.locals(i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, total=double)
cpdef accumulated(const float[:, :, ::1] x, float[:, :, ::1] out)
