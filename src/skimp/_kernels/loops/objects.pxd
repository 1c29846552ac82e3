# The types of objects.py, for Cython alone.
cimport cython

cdef extern from "objects.h":
    object objects_function(object name)
