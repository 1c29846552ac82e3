# The types of primitives.py, for Cython alone.
cimport cython

cdef extern from "primitives.h":
    bint primitives_executed(object plan, object where) except -1

cpdef bint executed(bytes plan, list where) except -1
