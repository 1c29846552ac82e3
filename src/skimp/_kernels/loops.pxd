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

cdef extern from *:
    """
    #include <math.h>
    #define SKIMP_DATA(x) ((float*) (x).data)
    #define SKIMP_PLACES(x) ((long long*) (x).data)
    #ifdef FP_FAST_FMAF
    #define SKIMP_FUSED(a, b, c) fmaf(a, b, c)
    #else
    #define SKIMP_FUSED(a, b, c) ((a) * (b) + (c))
    #endif
    """
    const float* _of "SKIMP_DATA" (const float[::1] x) noexcept nogil
    const long long* _places "SKIMP_PLACES" (const long long[::1] x) noexcept nogil
    float* _into "SKIMP_DATA" (float[::1] x) noexcept nogil
    float _fused "SKIMP_FUSED" (float a, float b, float c) noexcept nogil
    float log "logf" (float x) noexcept nogil
    float sqrt "sqrtf" (float x) noexcept nogil

cpdef softmaxes(const float[::1] x, Py_ssize_t n, float[::1] out)

@cython.locals(k=Py_ssize_t, one=float, least=float, most=float, total=float, step=Py_ssize_t,
               count=Py_ssize_t)
cdef void _softmaxes(const float* x, Py_ssize_t n, float* out, Py_ssize_t at,
                     Py_ssize_t stop) noexcept nogil

cpdef softmaxes_back(const float[::1] g, const float[::1] y, Py_ssize_t n, float[::1] out)

@cython.locals(k=Py_ssize_t, total=float)
cdef void _softmaxes_back(const float* g, const float* y, Py_ssize_t n, float* out,
                          Py_ssize_t at, Py_ssize_t stop) noexcept nogil

cpdef log_softmaxes(const float[::1] x, Py_ssize_t n, float[::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, level=float, step=Py_ssize_t, count=Py_ssize_t,
               room=float[2048])
cdef void _log_softmaxes(const float* x, Py_ssize_t n, float* out, Py_ssize_t at,
                         Py_ssize_t stop) noexcept nogil

cpdef log_softmaxes_back(const float[::1] g, const float[::1] y, Py_ssize_t n, float[::1] out)

@cython.locals(k=Py_ssize_t, total=float, step=Py_ssize_t, count=Py_ssize_t)
cdef void _log_softmaxes_back(const float* g, const float* y, Py_ssize_t n, float* out,
                              Py_ssize_t at, Py_ssize_t stop) noexcept nogil

@cython.locals(k=Py_ssize_t)
cdef inline void _less(const float* x, Py_ssize_t at, Py_ssize_t n, float number, float* out,
                       Py_ssize_t to) noexcept nogil

@cython.locals(found=double, count=Py_ssize_t)
cdef float _powers(const float* x, Py_ssize_t at, Py_ssize_t n, float number,
                   float* room) noexcept nogil

@cython.locals(j=Py_ssize_t, room=float[32])
cdef void _exps(const float* x, Py_ssize_t at, Py_ssize_t n, float* out,
                Py_ssize_t to) noexcept nogil

@cython.locals(least=float, most=float, per=float, magic=float, high=float, low=float, one=float,
               c2=float, c3=float, c4=float, c5=float, c6=float, w=float, k=float, r=float,
               q=float, e=float)
cdef inline float _exp(float v) noexcept nogil

@cython.locals(bits=cython.int)
cdef inline float _two_to(float k) noexcept nogil

@cython.locals(top=float, j=Py_ssize_t, stop=Py_ssize_t, lanes=float[32])
cdef inline float _top(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(found=double)
cdef float _sum(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, lanes=float[32])
cdef inline float _piece_of_sum(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(found=double)
cdef float _product(const float* x, const float* y, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, lanes=float[32])
cdef inline float _piece_of_product(const float* x, const float* y, Py_ssize_t at,
                                    Py_ssize_t n) noexcept nogil

@cython.locals(j=Py_ssize_t)
cdef inline void _join(float* lanes) noexcept nogil

cdef inline float _joined(float* lanes) noexcept nogil

@cython.locals(how=cython.int, rows=Py_ssize_t)
cpdef normalized(const float[::1] x, const float[::1] w, const float[::1] b, Py_ssize_t n,
                 float eps, bint centre, float[::1] mean, float[::1] rstd, float[::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t, one=float, size=float, middle=float,
               scale=float)
cdef void _normalized(const float* x, const float* w, const float* b, Py_ssize_t n, float eps,
                      int how, float* mean, float* rstd, float* out, Py_ssize_t first,
                      Py_ssize_t last) noexcept nogil

@cython.locals(rows=Py_ssize_t)
cpdef normalized_back(const float[::1] g, const float[::1] x, const float[::1] mean,
                      const float[::1] rstd, const float[::1] w, Py_ssize_t n, bint centre,
                      bint affine, float[::1] out, float[::1] dw, float[::1] db)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, at=Py_ssize_t, size=float, middle=float, scale=float,
               along=float, apart=float, sums=float[2])
cdef void _normalized_back(const float* g, const float* x, const float* mean, const float* rstd,
                           const float* w, Py_ssize_t n, bint centre, bint affine, float* out,
                           float* dw, float* db, Py_ssize_t rows) noexcept nogil

@cython.locals(found=double)
cdef float _squares(const float* x, Py_ssize_t at, Py_ssize_t n, float middle) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, lanes=float[32])
cdef inline float _piece_of_squares(const float* x, Py_ssize_t at, Py_ssize_t n,
                                    float middle) noexcept nogil

@cython.locals(one=double, other=double, done=Py_ssize_t, count=Py_ssize_t)
cdef void _both_sums(const float* g, const float* x, const float* w, Py_ssize_t at, Py_ssize_t n,
                     float middle, float scale, float* sums) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, also=float, lanes=float[32],
               others=float[32])
cdef inline void _pieces_of_both(const float* g, const float* x, const float* w, Py_ssize_t at,
                                 Py_ssize_t k, Py_ssize_t n, float middle, float scale,
                                 float* sums) noexcept nogil

cpdef bint class_losses(const float[::1] x, const long long[::1] classes, Py_ssize_t n,
                        float[::1] losses, float[::1] levels)

@cython.locals(first=Py_ssize_t, step=Py_ssize_t, count=Py_ssize_t, r=Py_ssize_t, at=Py_ssize_t,
               top=float, level=float, room=float[2048])
cdef void _class_losses(const float* x, const long long* classes, Py_ssize_t n, float* losses,
                        float* levels, Py_ssize_t rows) noexcept nogil

cpdef bint class_gradients(const float[::1] x, const long long[::1] classes,
                           const float[::1] levels, const float[::1] whole, const float[::1] own,
                           Py_ssize_t n, float[::1] out)

@cython.locals(first=Py_ssize_t, step=Py_ssize_t, count=Py_ssize_t, r=Py_ssize_t, k=Py_ssize_t,
               factor=float)
cdef void _class_gradients(const float* x, const long long* classes, const float* levels,
                           const float* whole, const float* own, Py_ssize_t n, float* out,
                           Py_ssize_t rows) noexcept nogil

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
