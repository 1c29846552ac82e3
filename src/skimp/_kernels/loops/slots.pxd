# The types of slots.py, for Cython alone.
cimport cython

cdef extern from "slots.h":
    object slots_prepare(object call, object attribute, tuple shared)
    object slots_fill(object kind)

cpdef object prepare(object call, object attribute, tuple shared)
cpdef object fill(object kind)
