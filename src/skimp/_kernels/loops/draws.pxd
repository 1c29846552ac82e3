# The types of draws.py, for Cython alone.
cimport cython

@cython.locals(matrix=cython.uint, one=cython.uint, other=cython.uint, n=Py_ssize_t,
               at=Py_ssize_t, have=Py_ssize_t, done=Py_ssize_t, count=Py_ssize_t)
cpdef stays(unsigned int[::1] state, unsigned int[::1] room, unsigned char[::1] out,
            unsigned int high, unsigned int low)

@cython.locals(i=Py_ssize_t)
cdef void _twist(unsigned int[::1] key, unsigned int matrix) noexcept

@cython.locals(y=cython.uint)
cdef unsigned int _mixed(unsigned int upper, unsigned int lower, unsigned int matrix) noexcept

@cython.locals(i=Py_ssize_t, y=cython.uint)
cdef void _temper(unsigned int[::1] key, Py_ssize_t at, unsigned int[::1] words, Py_ssize_t to,
                  Py_ssize_t count, unsigned int one, unsigned int other) noexcept

@cython.locals(i=Py_ssize_t, first=cython.uint)
cdef void _below(unsigned int[::1] words, unsigned char[::1] out, Py_ssize_t to, Py_ssize_t count,
                 unsigned int high, unsigned int low) noexcept

@cython.locals(n=Py_ssize_t, i=Py_ssize_t, left=cython.uint, at=Py_ssize_t, kept=cython.longlong)
cpdef shuffled(const unsigned int[::1] words, long long[::1] out)
