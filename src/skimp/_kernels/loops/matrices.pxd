# The types of matrices.py, for Cython alone.
cimport cython

cdef extern from "matrices.h":
    void matrices_multiplied(object plan, size_t a, size_t b, size_t out, int threads, bint add)

cpdef multiplied(bytes plan, size_t a, size_t b, size_t out, int threads, bint add)
