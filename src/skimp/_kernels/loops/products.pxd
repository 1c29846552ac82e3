# The types of products.py, for Cython alone.
cimport cython

cdef extern from *:
    """
    #define SKIMP_MATRIX(x, i, h, r) \
        ((float*) ((x).data + (i) * (x).strides[0] + (h) * (x).strides[1] + (r) * (x).strides[2]))
    /* of a single row, which BLAS asks for as well, it may be anything */
    #define SKIMP_PITCH(x) ((x).strides[2] / 4 > (x).shape[3] ? (x).strides[2] / 4 : (x).shape[3])
    #define SKIMP_SAME(x, y) ((x).data == (y).data)
    #define SKIMP_ROW(x, t) ((float*) ((x).data + (t) * (x).strides[0]))
    """
    const float* _matrix "SKIMP_MATRIX" (const float[:, :, :, :] x, Py_ssize_t i, Py_ssize_t h,
                                         Py_ssize_t r) noexcept nogil
    float* _target "SKIMP_MATRIX" (float[:, :, :, :] x, Py_ssize_t i, Py_ssize_t h,
                                   Py_ssize_t r) noexcept nogil
    Py_ssize_t _pitch "SKIMP_PITCH" (const float[:, :, :, :] x) noexcept nogil
    bint _same "SKIMP_SAME" (const float[:, :, :, :] x, const float[:, :, :, :] y) noexcept nogil
    float* _row "SKIMP_ROW" (float[:, ::1] x, Py_ssize_t t) noexcept nogil

cdef extern from "products.h":
    void _cleared "products_clear" (float* x, Py_ssize_t pitch, Py_ssize_t rows,
                                    Py_ssize_t columns) noexcept nogil
    void _turned "products_turn" (const float* x, Py_ssize_t pitch, Py_ssize_t rows,
                                  Py_ssize_t columns, float* out) noexcept nogil
    void _multiplied "products_gemm" (size_t gemm, bint wide, bint turned_a, bint turned_b,
                                      Py_ssize_t rows, Py_ssize_t columns, Py_ssize_t depth,
                                      float by, const float* a, Py_ssize_t pitch_a,
                                      const float* b, Py_ssize_t pitch_b, bint adds,
                                      float* out, Py_ssize_t pitch) noexcept nogil

@cython.locals(n=Py_ssize_t, t=Py_ssize_t)
cpdef bint products(size_t gemm, bint wide, bint turned_a, bint turned_b,
                    const float[:, :, :, :] a, const float[:, :, :, :] b, float[:, :, :, :] out,
                    Py_ssize_t threads) except -1

@cython.locals(one=float, rows=Py_ssize_t, columns=Py_ssize_t, depth=Py_ssize_t, m=Py_ssize_t,
               i=Py_ssize_t, h=Py_ssize_t)
cdef inline void _products(size_t gemm, bint wide, bint turned_a, bint turned_b,
                           const float[:, :, :, :] a, const float[:, :, :, :] b,
                           float[:, :, :, :] out, Py_ssize_t first,
                           Py_ssize_t last) noexcept nogil
