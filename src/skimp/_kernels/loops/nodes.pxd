# The types of nodes.py, for Cython alone.
cimport cython

cdef extern from "nodes.h":
    object nodes_bind(object given)
    object nodes_recording(object described)
