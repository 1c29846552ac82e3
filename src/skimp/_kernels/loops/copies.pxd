# The types of copies.py, for Cython alone.
cimport cython

cdef extern from "copies.h":
    bint copies_moved(object source, object out, int threads, bint asked) except -1

cpdef bint moved(object source, object out, int threads, bint asked=*) except -1
