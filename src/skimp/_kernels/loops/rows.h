/* Small arrays of float32 whose rows a loop goes through in one call: what is asked of them, which
   takes Python several attributes each, and new arrays like them. */

#include "bare.h"

#define ROWS_MOST 8192 /* elements: more are done without the interpreter's lock */

/* A new array of the first dims of one of float32 that has no gaps and is not empty, and so many
   dims of size 1 behind them. */
static PyObject *rows_kept(PyObject *o, int dims, int ones) {
    PyArrayObject *x = (PyArrayObject *)o;
    npy_intp shape[NPY_MAXDIMS];
    int i;
    if (bare_begin() < 0) return NULL;
    if (!PyArray_CheckExact(o) || PyArray_TYPE(x) != NPY_FLOAT || !PyArray_ISCARRAY_RO(x) ||
        !PyArray_SIZE(x) || dims < 0 || dims > PyArray_NDIM(x) || ones < 0 ||
        dims + ones > NPY_MAXDIMS) {
        PyErr_SetString(PyExc_ValueError, "sums: expected float32 without gaps, and its dims");
        return NULL;
    }
    for (i = 0; i < dims + ones; i++) shape[i] = i < dims ? PyArray_DIM(x, i) : 1;
    return PyArray_EMPTY(dims + ones, shape, NPY_FLOAT, 0);
}

static inline int rows_is_floats(PyObject *o) {
    return bare_is_dense(o) && PyArray_TYPE((PyArrayObject *)o) == NPY_FLOAT;
}

/* Whether it is a row of so many float32 without gaps, or None. */
static int rows_is_row(PyObject *o, Py_ssize_t n) {
    return o == Py_None || (rows_is_floats(o) && PyArray_NDIM((PyArrayObject *)o) == 1 &&
                            PyArray_DIM((PyArrayObject *)o, 0) == n);
}

/* How long the rows along a dim are, if that is the last of a small array of float32 without gaps;
   0 of any other, -1 with an error. */
static Py_ssize_t rows_width(PyObject *o, PyObject *dim) {
    PyArrayObject *x = (PyArrayObject *)o;
    int at, last;
    if (bare_begin() < 0) return -1;
    if (!rows_is_floats(o) || !bare_int(dim, &at)) return 0;
    last = PyArray_NDIM(x) - 1;
    if (last < 0 || (at != -1 && at != last) || PyArray_SIZE(x) >= ROWS_MOST) return 0;
    return PyArray_SIZE(x) ? PyArray_DIM(x, last) : 0;
}

/* How many elements of float32 without gaps dims before one have, it has itself, and those after it;
   0 where there are none, or it is any other. */
static int rows_around(PyObject *o, PyObject *dim, Py_ssize_t *around) {
    PyArrayObject *x = (PyArrayObject *)o;
    int d, k;
    if (bare_begin() < 0) return -1;
    if (!rows_is_floats(o) || !bare_int(dim, &d)) return 0;
    if (d < 0) d += PyArray_NDIM(x);
    if (d < 0 || d >= PyArray_NDIM(x) || !PyArray_SIZE(x)) return 0;
    around[0] = around[2] = 1;
    around[1] = PyArray_DIM(x, d);
    for (k = 0; k < d; k++) around[0] *= PyArray_DIM(x, k);
    for (k = d + 1; k < PyArray_NDIM(x); k++) around[2] *= PyArray_DIM(x, k);
    return 1;
}

/* Whether it is another of float32 without gaps, in the same shape. */
static int rows_is_alike(PyObject *o, PyObject *as) {
    PyArrayObject *x = (PyArrayObject *)o, *like = (PyArrayObject *)as;
    return rows_is_floats(o) && PyArray_NDIM(x) == PyArray_NDIM(like) &&
           bare_is_one_shape(PyArray_DIMS(x), PyArray_DIMS(like), PyArray_NDIM(x));
}

/* Whether it is a tuple of this size alone. */
static int rows_is_size(PyObject *o, Py_ssize_t n) {
    int size;
    return PyTuple_Check(o) && PyTuple_GET_SIZE(o) == 1 &&
           bare_int(PyTuple_GET_ITEM(o, 0), &size) && size == n;
}

/* Whether it has a whole number without gaps for each row of a matrix. */
static int rows_are_classes(PyObject *o, PyObject *of) {
    PyArrayObject *x = (PyArrayObject *)o, *rows = (PyArrayObject *)of;
    return bare_is_dense(o) && PyArray_TYPE(x) == NPY_INT64 && PyArray_NDIM(x) == 1 &&
           PyArray_NDIM(rows) == 2 && PyArray_DIM(x, 0) == PyArray_DIM(rows, 0);
}

static long long *rows_places(PyObject *o) {
    return (long long *)PyArray_DATA((PyArrayObject *)o);
}

/* A new array for the first k of each row along a dim of an array. */
static PyObject *rows_first(PyObject *o, PyObject *dim, Py_ssize_t k) {
    PyArrayObject *x = (PyArrayObject *)o;
    npy_intp shape[NPY_MAXDIMS];
    int ndim = PyArray_NDIM(x), d = (int)PyLong_AsLong(dim);
    memcpy(shape, PyArray_DIMS(x), ndim * sizeof(npy_intp));
    shape[d < 0 ? d + ndim : d] = k;
    return PyArray_EMPTY(ndim, shape, NPY_FLOAT, 0);
}

/* A new array of places beside another. */
static PyObject *rows_places_like(PyObject *o) {
    PyArrayObject *x = (PyArrayObject *)o;
    return PyArray_EMPTY(PyArray_NDIM(x), PyArray_DIMS(x), NPY_INT64, 0);
}

/* A new row of so many numbers; of places. */
static PyObject *rows_new(Py_ssize_t n) { return PyArray_EMPTY(1, &n, NPY_FLOAT, 0); }
static PyObject *rows_new_places(Py_ssize_t n) { return PyArray_EMPTY(1, &n, NPY_INT64, 0); }

/* Where so many of an engine's words lie, from a place on. */
static unsigned int *rows_words(PyObject *o, Py_ssize_t at, Py_ssize_t n) {
    PyArrayObject *x = (PyArrayObject *)o;
    if (bare_begin() < 0) return NULL;
    if (!bare_is_dense(o) || PyArray_TYPE(x) != NPY_UINT32 || PyArray_NDIM(x) != 1 || at < 0 ||
        n < 0 || at > PyArray_DIM(x, 0) - n) {
        PyErr_Format(PyExc_ValueError, "draws: expected words, of which %zd lie there", n);
        return NULL;
    }
    return (unsigned int *)PyArray_DATA(x) + at;
}

/* A new array like one of float32. */
static PyObject *rows_like(PyObject *o) {
    PyArrayObject *x = (PyArrayObject *)o;
    return PyArray_EMPTY(PyArray_NDIM(x), PyArray_DIMS(x), NPY_FLOAT, 0);
}

/* An array as it is, or a copy where only its memory does not lie as C wants it: of what was read
   from a file's bytes. */
static PyObject *rows_aligned(PyObject *o) {
    PyArrayObject *x = (PyArrayObject *)o;
    if (bare_begin() < 0) return NULL;
    if (!PyArray_CheckExact(o) || PyArray_TYPE(x) != NPY_FLOAT || PyArray_ISALIGNED(x) ||
        !PyArray_IS_C_CONTIGUOUS(x)) {
        Py_INCREF(o);
        return o;
    }
    return PyArray_FromArray(x, NULL, NPY_ARRAY_CARRAY_RO);
}

/* A new array of one number for each row along the last dim. */
static PyObject *rows_per_row(PyObject *o) {
    return rows_kept(o, PyArray_NDIM((PyArrayObject *)o) - 1, 1);
}

static Py_ssize_t rows_size(PyObject *o) { return PyArray_SIZE((PyArrayObject *)o); }

static float *rows_floats(PyObject *o) { return (float *)PyArray_DATA((PyArrayObject *)o); }

static float *rows_row(PyObject *o) { return o == Py_None ? NULL : rows_floats(o); }
