# The types of draws.py, for Cython alone.
cimport cython

@cython.locals(view="unsigned int[::1]")
cpdef words(unsigned int[::1] state, object out)

@cython.locals(n=Py_ssize_t, t=Py_ssize_t, key="unsigned int*", room="unsigned int*")
cpdef stays(unsigned int[::1] state, unsigned char[::1] out, unsigned int high, unsigned int low,
            Py_ssize_t threads)

cdef Py_ssize_t _begin(Py_ssize_t n, Py_ssize_t t, Py_ssize_t threads) noexcept nogil

@cython.locals(i=Py_ssize_t)
cdef void _copied(unsigned int* key, unsigned int* to) noexcept nogil

@cython.locals(at=Py_ssize_t)
cdef void _passed_to(unsigned int* key, unsigned int* to, Py_ssize_t count) noexcept nogil

@cython.locals(at=Py_ssize_t, done=Py_ssize_t, count=Py_ssize_t, i=Py_ssize_t)
cdef void _words(unsigned int* key, unsigned int* out, Py_ssize_t first,
                 Py_ssize_t last) noexcept nogil

@cython.locals(at=Py_ssize_t, done=Py_ssize_t, count=Py_ssize_t, i=Py_ssize_t, y=cython.uint,
               z=cython.uint)
cdef void _stays(unsigned int* key, unsigned char[::1] out, Py_ssize_t first, Py_ssize_t last,
                 unsigned int high, unsigned int low) noexcept nogil

@cython.locals(i=Py_ssize_t, y=cython.uint, met=cython.uint)
cdef unsigned int _meet(unsigned int* key, Py_ssize_t at, unsigned char[::1] out, Py_ssize_t to,
                        Py_ssize_t count, unsigned int high) noexcept nogil

@cython.locals(y=cython.uint)
cdef inline unsigned char _below(unsigned int first, unsigned int second, unsigned int high,
                                 unsigned int low) noexcept nogil

@cython.locals(i=Py_ssize_t)
cdef void _twist(unsigned int* key) noexcept nogil

@cython.locals(y=cython.uint)
cdef inline unsigned int _mixed(unsigned int upper, unsigned int lower) noexcept nogil

cdef inline unsigned int _tempered(unsigned int y) noexcept nogil

@cython.locals(n=Py_ssize_t, i=Py_ssize_t, left=cython.uint, at=Py_ssize_t, kept=cython.longlong,
               given="unsigned int*", to="long long*")
cpdef shuffled(object words)

@cython.locals(i=Py_ssize_t, given="unsigned int*", to="long long*")
cpdef between(object words, Py_ssize_t at, Py_ssize_t n, long long low, unsigned int span)
