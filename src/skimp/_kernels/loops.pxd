# The types of loops.py, for Cython alone.
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

@cython.locals(i=Py_ssize_t)
cpdef kept(const float[::1] x, const unsigned char[::1] stays, float scale, float[::1] out)

@cython.locals(i=Py_ssize_t)
cpdef passed(const float[::1] g, const float[::1] x, float low, float high, float[::1] out)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t)
cpdef bint added(float[:, ::1] target, const long long[::1] places, const float[:, ::1] rows)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t, row=Py_ssize_t, factor=float)
cpdef bint weighed(float[:, ::1] target, const long long[::1] places, const float[:, ::1] rows,
                   const long long[::1] of, const float[::1] by)

@cython.locals(i=Py_ssize_t, found=cython.int)
cdef bint _lie_outside(const long long[::1] places, Py_ssize_t n) noexcept

@cython.locals(r=Py_ssize_t, k=Py_ssize_t)
cpdef lstm_carried(const float[:, :, ::1] gates, const float[:, ::1] before, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, n=Py_ssize_t, gate=Py_ssize_t, one=float)
cpdef lstm_back(const float[:, :, ::1] gates, const float[:, ::1] before, const float[:, ::1] top,
                const float[:, ::1] dh, const float[:, ::1] dc, float[:, :, ::1] room,
                float[:, ::1] d, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, new=float)
cpdef gru_shown(const float[:, :, ::1] gates, const float[:, ::1] before, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, n=Py_ssize_t, one=float, reset=float, update=float,
               new=float)
cpdef gru_back(const float[:, :, ::1] gates, const float[:, ::1] hidden,
               const float[:, ::1] before, const float[:, ::1] dh, float[:, ::1] room,
               float[:, ::1] d, float[:, ::1] behind, float[:, ::1] resets, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t)
cpdef filled(const unsigned char[::1] mask, float value, const float[:, ::1] x,
             float[:, ::1] out)

cdef extern from "bare.h":
    object bare_ufunc(object function)
    object bare_reduce(object function, object reduce)
    object bare_concatenate(object function)
    object bare_stack(object function)

@cython.locals(i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, total=double)
cpdef summed(const float[:, :, ::1] x, float[:, :, ::1] out)

@cython.locals(last=Py_ssize_t, r=Py_ssize_t, i=Py_ssize_t, at=Py_ssize_t, one=float)
cpdef bint topped(const float[:, ::1] x, bint largest, float[:, ::1] values,
                  long long[:, ::1] places)

cdef bint _beats(float one, float other, bint largest) noexcept

@cython.locals(n=Py_ssize_t, i=Py_ssize_t, left=cython.uint, at=Py_ssize_t, kept=cython.longlong)
cpdef shuffled(const unsigned int[::1] words, long long[::1] out)
