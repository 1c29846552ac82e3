# The types of shares.py, for Cython alone.
cimport cython

cdef extern from "shares.h":
    object share_prepared(object told, object limits)

cdef extern from "bare.h":
    int bare_shared(object ufunc, double cost) except -1
    bint bare_done(object ufunc, object arrays, object out, object numbers) except -1
