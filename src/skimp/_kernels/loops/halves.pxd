# The types of halves.py, for Cython alone.
cimport cython

@cython.locals(i=Py_ssize_t, u=cython.uint, e=cython.uint, normal=cython.uint, cut=cython.uint,
               m=cython.uint, small=cython.uint, near=cython.uint, nan=cython.uint,
               least=cython.uint, most=cython.uint, infinite=cython.uint, fewest=cython.uint,
               digits=cython.uint)
cpdef halved(const unsigned int[::1] x, unsigned short[::1] out)

@cython.locals(first=Py_ssize_t)
cpdef widened(const unsigned short[::1] x, unsigned int[::1] bits, float[::1] out)

@cython.locals(i=Py_ssize_t, u=cython.uint, low=float, none=float, top=cython.uint,
               normal=cython.uint, small=cython.uint, more=cython.uint, v=float)
cdef void _widened(const unsigned short[::1] x, unsigned int[::1] bits, float[::1] out,
                   Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(i=Py_ssize_t, u=cython.uint, near=cython.uint, infinite=cython.uint,
               nan=cython.uint)
cpdef brain_halved(const unsigned int[::1] x, unsigned short[::1] out)
