# The types of along.py, for Cython alone.
cimport cython

cdef extern from "along.h":
    object along_gathered(object x, object dim, object index)
    bint along_written(object x, object dim, object index, object values, bint added) except -1

cpdef gathered(object x, object dim, object index)

cpdef bint put_along(object x, object dim, object index, object values) except -1

cpdef bint added_along(object x, object dim, object index, object values) except -1
