# The types of attention.py, for Cython alone.
cimport cython

cpdef attended(float[::1] s, const long long[::1] sizes, const unsigned char[::1] seen,
               const float[::1] added, const unsigned char[::1] kept, float grow,
               float[::1] level)

@cython.locals(one=float, nothing=float, lowest=float, hidden=float, n=Py_ssize_t,
               stop=Py_ssize_t, r=Py_ssize_t, top=float, total=float)
cdef void _attended(float* s, const long long* sizes, const unsigned char* seen,
                    const float* added, const unsigned char* kept, float grow, float* level,
                    Py_ssize_t first, Py_ssize_t last) noexcept nogil

cpdef attended_back(float[::1] s, const long long[::1] sizes, const unsigned char[::1] seen,
                    const float[::1] added, const unsigned char[::1] kept, float grow,
                    const float[::1] level, float scale, float[::1] d)

@cython.locals(one=float, nothing=float, lowest=float, hidden=float, n=Py_ssize_t,
               stop=Py_ssize_t, r=Py_ssize_t, k=Py_ssize_t, top=float, total=float, each=float,
               mean=float)
cdef void _attended_back(float* s, const long long* sizes, const unsigned char* seen,
                         const float* added, const unsigned char* kept, float grow,
                         const float* level, float scale, float* d, Py_ssize_t first,
                         Py_ssize_t last) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _lower(float* s, Py_ssize_t at, Py_ssize_t n, float by) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _scale(float* s, Py_ssize_t at, Py_ssize_t n, float by) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _thin(float* s, Py_ssize_t at, Py_ssize_t n, const unsigned char* kept,
                       float grow) noexcept nogil

@cython.locals(n=Py_ssize_t, rows=Py_ssize_t, heads=Py_ssize_t, at=Py_ssize_t, of=Py_ssize_t,
               k=Py_ssize_t, x=float)
cdef inline void _hide(float* s, const long long* sizes, const unsigned char* seen,
                       const float* added, Py_ssize_t r, float hidden) noexcept nogil
