# The types of normals.py, for Cython alone.
cimport cython

@cython.locals(n=Py_ssize_t, groups=Py_ssize_t, t=Py_ssize_t, given="unsigned int*", to="float*")
cpdef normals(const unsigned int[::1] words, float[::1] out, float std, float mean,
              Py_ssize_t threads)

@cython.locals(given="unsigned int*", to="float*", one=float, zero=float)
cpdef made_normals(object words, Py_ssize_t at, Py_ssize_t n)

@cython.locals(k=Py_ssize_t)
cdef void _normals(unsigned int* words, float* out, Py_ssize_t first, Py_ssize_t last, float std,
                   float mean) noexcept nogil

@cython.locals(i=Py_ssize_t, r=float, u=cython.uint, quarter=cython.uint, x=float, even=float,
               odd=float, c=float, s=float)
cdef inline void _sixteen(unsigned int* words, Py_ssize_t at, float* out, Py_ssize_t to,
                          float std, float mean) noexcept nogil

@cython.locals(c0=float, c1=float, c2=float, c3=float, c4=float, c5=float, c6=float, c7=float,
               c8=float, low=float, high=float, half=float, one=float, two=float,
               bits=cython.int, e=float, x=float, y=float, z=float)
cdef inline float _radius(unsigned int word) noexcept nogil

@cython.locals(step=float, first=float, second=float, third=float, q=float)
cdef inline float _angle(unsigned int u, unsigned int quarter) noexcept nogil

@cython.locals(c0=float, c1=float, c2=float, half=float, one=float, y=float)
cdef inline float _even(float z) noexcept nogil

@cython.locals(c0=float, c1=float, c2=float, y=float)
cdef inline float _odd(float x, float z) noexcept nogil
