# The types of ufuncs.py, for Cython alone.
cimport cython

cdef extern from "passes.h":
    bint passes_ran(object steps, object operands, Py_ssize_t n, Py_ssize_t block, int registers,
                    int outs, int threads, bint asked) except -1

cdef extern from "bare.h":
    object bare_ufunc(object function)
    object bare_reduce(object function, object reduce)

cdef extern from "joins.h":
    object joins_concatenate(object function)
    object joins_stack(object function)

cdef extern from "matmul.h":
    object matmul_multiply(object instead, object ufuncs, Py_ssize_t most,
                           Py_ssize_t most_of_batch)
    object matmul_times(object instead, object ufuncs, Py_ssize_t most, Py_ssize_t most_of_batch,
                        Py_ssize_t largest)
cdef extern from "lines.h":
    object lines_function(object function)

cdef extern from "exponentials.h":
    object exponentials_ufunc(object function)

cpdef bint ran(object steps, object operands, Py_ssize_t n, Py_ssize_t block, int registers,
               int outs, int threads, bint asked=*) except -1
