# The types of instances.py, for Cython alone.
cimport cython

cdef extern from "instances.h":
    object instances_made(dict given)
