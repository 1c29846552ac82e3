# The types of attention.py, for Cython alone.
cimport cython

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef attended(size_t gemm, bint wide, const float[:, :, :, :] q, const float[:, :, :, :] k,
               const float[:, :, :, :] v, float scale, const long long[::1] sizes,
               const unsigned char[::1] seen, const float[::1] added,
               const unsigned char[::1] kept, float grow, float[:, ::1] room, float[::1] level,
               float[:, :, :, :] out, Py_ssize_t threads)

cdef Py_ssize_t _with_room(Py_ssize_t threads, Py_ssize_t rooms, Py_ssize_t matrices) noexcept

@cython.locals(one=float, keys=Py_ssize_t, rows=Py_ssize_t, width=Py_ssize_t, deep=Py_ssize_t,
               step=Py_ssize_t, m=Py_ssize_t, i=Py_ssize_t, h=Py_ssize_t, block=Py_ssize_t,
               r=Py_ssize_t, count=Py_ssize_t, turned=cython.bint, s=cython.p_float, kt=cython.p_float,
               to=cython.p_const_float, apart=Py_ssize_t)
cdef inline void _attended(size_t gemm, bint wide, const float[:, :, :, :] q,
                           const float[:, :, :, :] k, const float[:, :, :, :] v, float scale,
                           const long long[::1] sizes, const unsigned char[::1] seen,
                           const float[::1] added, const unsigned char[::1] kept, float grow,
                           float[:, ::1] room, float[::1] level, float[:, :, :, :] out,
                           Py_ssize_t first, Py_ssize_t last, Py_ssize_t t) noexcept nogil

@cython.locals(one=float, nothing=float, lowest=float, hidden=float, first=Py_ssize_t,
               stop=Py_ssize_t, r=Py_ssize_t, top=float, total=float)
cdef void _weigh(float* s, Py_ssize_t n, Py_ssize_t count, const long long* sizes,
                 const unsigned char* seen, const float* added, const unsigned char* kept,
                 float grow, float* level, Py_ssize_t before) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef attended_back(size_t gemm, bint wide, const float[:, :, :, :] g,
                    const float[:, :, :, :] q, const float[:, :, :, :] k,
                    const float[:, :, :, :] v, float scale, const long long[::1] sizes,
                    const unsigned char[::1] seen, const float[::1] added,
                    const unsigned char[::1] kept, float grow, float[:, ::1] room,
                    const float[::1] level, float[:, :, :, :] dq, float[:, :, :, :] dk,
                    float[:, :, :, :] dv, Py_ssize_t threads)

@cython.locals(one=float, keys=Py_ssize_t, rows=Py_ssize_t, width=Py_ssize_t, deep=Py_ssize_t,
               step=Py_ssize_t, m=Py_ssize_t, i=Py_ssize_t, h=Py_ssize_t, block=Py_ssize_t,
               r=Py_ssize_t, count=Py_ssize_t, hidden=Py_ssize_t, later=cython.bint,
               turned=cython.bint, s=cython.p_float, d=cython.p_float, kt=cython.p_float,
               vt=cython.p_float, to=cython.p_const_float, apart=Py_ssize_t,
               values=cython.p_const_float, between=Py_ssize_t)
cdef inline void _attended_back(size_t gemm, bint wide, const float[:, :, :, :] g,
                                const float[:, :, :, :] q, const float[:, :, :, :] k,
                                const float[:, :, :, :] v, float scale,
                                const long long[::1] sizes, const unsigned char[::1] seen,
                                const float[::1] added, const unsigned char[::1] kept,
                                float grow, float[:, ::1] room, const float[::1] level,
                                float[:, :, :, :] dq, float[:, :, :, :] dk,
                                float[:, :, :, :] dv, Py_ssize_t first, Py_ssize_t last,
                                Py_ssize_t t) noexcept nogil

@cython.locals(one=float, nothing=float, lowest=float, hidden=float, first=Py_ssize_t,
               stop=Py_ssize_t, r=Py_ssize_t, k=Py_ssize_t, top=float, total=float, each=float,
               mean=float)
cdef void _weigh_back(float* s, Py_ssize_t n, Py_ssize_t count, const long long* sizes,
                      const unsigned char* seen, const float* added,
                      const unsigned char* kept, float grow, const float* level, float scale,
                      float* d, Py_ssize_t before) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _lower(float* s, Py_ssize_t at, Py_ssize_t n, float by) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _scale(float* s, Py_ssize_t at, Py_ssize_t n, float by) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _thin(float* s, Py_ssize_t at, Py_ssize_t n, const unsigned char* kept,
                       Py_ssize_t of, float grow) noexcept nogil

@cython.locals(rows=Py_ssize_t, heads=Py_ssize_t, of=Py_ssize_t, k=Py_ssize_t, x=float)
cdef inline void _hide(float* s, Py_ssize_t at, Py_ssize_t n, const long long* sizes,
                       const unsigned char* seen, const float* added, Py_ssize_t r,
                       float hidden) noexcept nogil
