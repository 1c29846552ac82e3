/* NumPy's `concatenate` and `stack` on small arrays, likewise (`bare.h`). */

#pragma once
#include "bare.h"

#define JOINS_MOST (1 << 16) /* bytes: more are left to NumPy */

/* What `self` makes, `concatenate` or `stack`, of arrays of one type that lie row by row. */
static PyObject *joins_made(PyObject *self, PyObject *const *args, Py_ssize_t given,
                           PyObject *names, int anew) {
    PyObject **arrays, *out;
    PyArrayObject *first, *array;
    Py_ssize_t k, many;
    int ndim, type, axis = 0, i;
    npy_intp shape[NPY_MAXDIMS + 1], lead = 1, within, whole, row;
    char *to;

    if (names != NULL || given < 1 || given > 2 ||
        !(PyList_CheckExact(args[0]) || PyTuple_CheckExact(args[0])))
        goto numpy;
    if (given == 2 && !bare_int(args[1], &axis)) goto numpy;
    arrays = PySequence_Fast_ITEMS(args[0]);
    many = PySequence_Fast_GET_SIZE(args[0]);
    if (many == 0 || !bare_is_dense(arrays[0])) goto numpy;
    first = (PyArrayObject *)arrays[0];
    ndim = PyArray_NDIM(first);
    type = PyArray_TYPE(first);
    if (axis < 0) axis += ndim + anew;
    if (type < 0 || type >= BARE_TYPES || axis < 0 || axis >= ndim + anew) goto numpy;
    for (i = 0; i < ndim; i++) shape[i] = PyArray_DIM(first, i);
    for (k = 1; k < many; k++) {
        if (!bare_is_dense(arrays[k])) goto numpy;
        array = (PyArrayObject *)arrays[k];
        if (PyArray_TYPE(array) != type || PyArray_NDIM(array) != ndim) goto numpy;
        for (i = 0; i < ndim; i++)
            if ((anew || i != axis) && PyArray_DIM(array, i) != shape[i]) goto numpy;
        if (!anew) shape[axis] += PyArray_DIM(array, axis);
    }
    if (anew) {
        if (ndim == NPY_MAXDIMS) goto numpy;
        memmove(shape + axis + 1, shape + axis, (ndim++ - axis) * sizeof(npy_intp));
        shape[axis] = many;
    }
    whole = PyArray_ITEMSIZE(first);
    for (i = 0; i < axis; i++) lead *= shape[i];
    for (i = axis; i < ndim; i++) whole *= shape[i];
    if (whole == 0 || lead > JOINS_MOST / whole) goto numpy;
    out = PyArray_EMPTY(ndim, shape, type, 0);
    if (out == NULL) return NULL;
    to = PyArray_BYTES((PyArrayObject *)out);
    for (k = 0; k < many; k++) {
        const char *from = PyArray_BYTES((PyArrayObject *)arrays[k]);
        within = lead ? PyArray_NBYTES((PyArrayObject *)arrays[k]) / lead : 0;
        for (row = 0; row < lead; row++) memcpy(to + row * whole, from + row * within, within);
        to += within;
    }
    return out;

numpy:
    return PyObject_Vectorcall(self, args, given, names);
}

static PyObject *joins_concatenate_call(PyObject *self, PyObject *const *args, Py_ssize_t given,
                                       PyObject *names) {
    return joins_made(self, args, given, names, 0);
}

static PyObject *joins_stack_call(PyObject *self, PyObject *const *args, Py_ssize_t given,
                                 PyObject *names) {
    return joins_made(self, args, given, names, 1);
}

#define JOINS_METHOD(name, call) \
    {name, (PyCFunction)(void (*)(void))call, METH_FASTCALL | METH_KEYWORDS, NULL}

static PyMethodDef joins_concatenate_method = JOINS_METHOD("concatenate", joins_concatenate_call);
static PyMethodDef joins_stack_method = JOINS_METHOD("stack", joins_stack_call);

static PyObject *joins_concatenate(PyObject *function) {
    if (bare_begin() < 0) return NULL;
    return PyCFunction_New(&joins_concatenate_method, function);
}

static PyObject *joins_stack(PyObject *function) {
    if (bare_begin() < 0) return NULL;
    return PyCFunction_New(&joins_stack_method, function);
}
