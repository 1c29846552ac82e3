# The types of masks.py, for Cython alone.
cimport cython

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef kept(const float[::1] x, const unsigned char[::1] stays, float scale, float[::1] out,
           Py_ssize_t threads)

@cython.locals(i=Py_ssize_t)
cdef void _kept(const float[::1] x, const unsigned char[::1] stays, float scale, float[::1] out,
                Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef passed(const float[::1] g, const float[::1] x, float low, float high, float[::1] out,
             Py_ssize_t threads)

@cython.locals(i=Py_ssize_t)
cdef void _passed(const float[::1] g, const float[::1] x, float low, float high, float[::1] out,
                  Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef held(const float[::1] x, float low, float high, float[::1] out, Py_ssize_t threads)

@cython.locals(i=Py_ssize_t, one=float)
cdef void _held(const float[::1] x, float low, float high, float[::1] out, Py_ssize_t first,
                Py_ssize_t last) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef filled(const unsigned char[::1] mask, float value, const float[:, ::1] x,
             float[:, ::1] out, Py_ssize_t threads)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t)
cdef void _filled(const unsigned char[::1] mask, float value, const float[:, ::1] x,
                  float[:, ::1] out, Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef cleared(unsigned char[::1] out, Py_ssize_t threads)

@cython.locals(i=Py_ssize_t)
cdef void _cleared_from(unsigned char[::1] out, Py_ssize_t first, Py_ssize_t last) noexcept nogil
