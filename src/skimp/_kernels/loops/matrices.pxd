# The types of matrices.py, for Cython alone.
cimport cython

cdef extern from "matrices.h":
    int matrices_multiplied(object plan, size_t a, size_t b, size_t out, int threads,
                            bint add) except -1

cpdef multiplied(bytes plan, size_t a, size_t b, size_t out, int threads, bint add)
