# The types of sums.py, for Cython alone.
cimport cython

@cython.locals(top=float, j=Py_ssize_t, stop=Py_ssize_t, lanes=float[32])
cdef inline float _top(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(found=double)
cdef float _sum(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, lanes=float[8])
cdef inline float _sum_of_few(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, lanes=float[32])
cdef inline float _piece_of_sum(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(found=double)
cdef float _squares(const float* x, Py_ssize_t at, Py_ssize_t n, float middle) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, lanes=float[32])
cdef inline float _piece_of_squares(const float* x, Py_ssize_t at, Py_ssize_t n,
                                    float middle) noexcept nogil

@cython.locals(found=double)
cdef float _product(const float* x, const float* y, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(j=Py_ssize_t, stop=Py_ssize_t, rest=float, lanes=float[32])
cdef inline float _piece_of_product(const float* x, const float* y, Py_ssize_t at,
                                    Py_ssize_t n) noexcept nogil

@cython.locals(j=Py_ssize_t)
cdef inline void _join(float* lanes) noexcept nogil

cdef inline float _joined(float* lanes) noexcept nogil

@cython.locals(rows=Py_ssize_t, whole=Py_ssize_t)
cpdef totals(object x, int kept, int ones)

@cython.locals(rows=Py_ssize_t, whole=Py_ssize_t)
cpdef squares(object x, const float[::1] middles, int kept, int ones)

@cython.locals(rows=Py_ssize_t, n=Py_ssize_t, pieces=Py_ssize_t, parts=Py_ssize_t, t=Py_ssize_t,
               read="const float*", into="float*", sums="float*", back=bint)
cpdef shared_totals(object x, int kept, int ones, Py_ssize_t unit, bint square,
                    const float[::1] middles, Py_ssize_t threads)

cdef extern from "turns.h":
    bint turns_back(long long bytes, int threads) nogil

ctypedef float (*_OfPiece)(const float*, Py_ssize_t, Py_ssize_t) noexcept nogil

cdef extern from "passes.h":
    int passes_summed(object steps, object operands, Py_ssize_t rows, Py_ssize_t n,
                      Py_ssize_t block, int registers, int summed, float* room, int threads,
                      _OfPiece sum) except -1

@cython.locals(pieces=Py_ssize_t, into="float*", add=_OfPiece)
cpdef passed_totals(object steps, object operands, int registers, int summed, Py_ssize_t rows,
                    Py_ssize_t n, Py_ssize_t unit, bint square, Py_ssize_t threads)

cdef float _piece_of_own_squares(const float* x, Py_ssize_t at, Py_ssize_t n) noexcept nogil

@cython.locals(units=Py_ssize_t, each=Py_ssize_t, r=Py_ssize_t, u=Py_ssize_t, count=Py_ssize_t)
cdef void _join_pieces(const float* room, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t pieces,
                       Py_ssize_t unit, float* out) noexcept nogil

@cython.locals(r=Py_ssize_t)
cdef void _row_sums(const float* x, Py_ssize_t n, float* out, Py_ssize_t first,
                    Py_ssize_t last) noexcept nogil

@cython.locals(r=Py_ssize_t)
cdef void _row_squares(const float* x, Py_ssize_t n, const float* middles, float* out,
                       Py_ssize_t first, Py_ssize_t last) noexcept nogil

@cython.locals(k=Py_ssize_t, p=Py_ssize_t, r=Py_ssize_t, at=Py_ssize_t, count=Py_ssize_t,
               middle=float)
cdef void _sums_of_pieces(const float* x, Py_ssize_t n, bint square, const float* middles,
                          Py_ssize_t pieces, float* room, Py_ssize_t first, Py_ssize_t last,
                          bint back) noexcept nogil

@cython.locals(p=Py_ssize_t, found=double)
cdef float _sum_of_pieces(const float* room, Py_ssize_t at, Py_ssize_t pieces) noexcept nogil

@cython.locals(pieces=Py_ssize_t, count=Py_ssize_t, parts=Py_ssize_t, p=Py_ssize_t, t=Py_ssize_t)
cpdef columns(const float[::1] x, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t step, double[::1] room,
              float[::1] out, Py_ssize_t threads)

@cython.locals(p=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t, left=Py_ssize_t, start=Py_ssize_t)
cdef void _column_sums(const float* x, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t step,
                       Py_ssize_t pieces, double* room, Py_ssize_t part,
                       Py_ssize_t stop) noexcept nogil

@cython.locals(k=Py_ssize_t, one=float, other=float)
cdef inline void _columns_of_piece(const float* x, Py_ssize_t at, Py_ssize_t rows, Py_ssize_t n,
                                   Py_ssize_t width, double* room, Py_ssize_t to) noexcept nogil

@cython.locals(r=Py_ssize_t, k=Py_ssize_t)
cdef void _add_rows(double* room, Py_ssize_t at, Py_ssize_t rows, Py_ssize_t n, float* out,
                    Py_ssize_t to) noexcept nogil
