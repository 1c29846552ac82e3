/* Elements of an array along a dim, where a small index tells: what gather reads, and scatter and
   scatter_add write. NumPy computes places first, in a dozen calls for an index of one. */

#include "bare.h"

#define ALONG_MOST 4096 /* elements of an index: more take longer than what is called for them */

static int along_meet(PyArrayObject *a, PyArrayObject *b) {
    return PyArray_BYTES(a) < PyArray_BYTES(b) + PyArray_NBYTES(b) &&
           PyArray_BYTES(b) < PyArray_BYTES(a) + PyArray_NBYTES(a);
}

/* Where the elements of an index point to in an array that lies row by row, and how many these are;
   0 where anything is unusual, or wrong. */
static npy_intp along_places(PyObject *whole, PyObject *dim, PyObject *index, npy_intp *to) {
    PyArrayObject *x = (PyArrayObject *)whole, *at = (PyArrayObject *)index;
    npy_intp counter[NPY_MAXDIMS] = {0}, apart[NPY_MAXDIMS];
    npy_intp count, n, run, next, base = 0, step = 1, i = 0, j;
    const npy_int64 *from;
    int d, k, ndim;

    if (!bare_is_dense(whole) || !bare_is_dense(index) || !bare_int(dim, &d)) return 0;
    ndim = PyArray_NDIM(x);
    if (d < 0) d += ndim;
    if (d < 0 || d >= ndim || PyArray_NDIM(at) != ndim || PyArray_TYPE(at) != NPY_INT64) return 0;
    if (PyArray_TYPE(x) < 0 || PyArray_TYPE(x) >= BARE_TYPES || along_meet(x, at)) return 0;
    count = PyArray_SIZE(at);
    if (count == 0 || count > ALONG_MOST) return 0;
    for (k = ndim - 1; k >= 0; k--) {
        if (k != d && PyArray_DIM(at, k) > PyArray_DIM(x, k)) return 0;
        apart[k] = step;
        step *= PyArray_DIM(x, k);
    }
    from = (const npy_int64 *)PyArray_DATA(at);
    n = PyArray_DIM(x, d);
    step = apart[d];
    next = d < ndim - 1; /* between neighbours of the index */
    run = PyArray_DIM(at, ndim - 1);
    while (i < count) {
        for (j = 0; j < run; j++, i++) {
            if (from[i] < 0 || from[i] >= n) return 0;
            to[i] = base + j * next + from[i] * step;
        }
        for (k = ndim - 2; k >= 0; k--) {
            npy_intp by = k == d ? 0 : apart[k];
            if (++counter[k] < PyArray_DIM(at, k)) {
                base += by;
                break;
            }
            counter[k] = 0;
            base -= by * (PyArray_DIM(at, k) - 1);
        }
    }
    return count;
}

#define ALONG_EACH(type, statement) \
    do { \
        type *to = (type *)into; \
        const type *from = (const type *)values; \
        for (i = 0; i < count; i++) { statement; } \
    } while (0)

static PyObject *along_gathered(PyObject *whole, PyObject *dim, PyObject *index) {
    PyArrayObject *x = (PyArrayObject *)whole, *at = (PyArrayObject *)index;
    npy_intp places[ALONG_MOST], count, i;
    PyObject *made;
    char *into;
    const char *values;
    int item;
    if (bare_begin() < 0) return NULL;
    count = along_places(whole, dim, index, places);
    if (count == 0) Py_RETURN_NONE;
    made = PyArray_EMPTY(PyArray_NDIM(at), PyArray_DIMS(at), PyArray_TYPE(x), 0);
    if (made == NULL) return NULL;
    into = PyArray_BYTES((PyArrayObject *)made);
    values = PyArray_BYTES(x);
    item = PyArray_ITEMSIZE(x);
    if (item == 4) ALONG_EACH(npy_uint32, to[i] = from[places[i]]);
    else if (item == 8) ALONG_EACH(npy_uint64, to[i] = from[places[i]]);
    else for (i = 0; i < count; i++) memcpy(into + i * item, values + places[i] * item, item);
    return made;
}

/* Whether values were written, or `added`: of the same type, one for each element of the index, or
   a number of NumPy's that is to be written. */
static int along_written(PyObject *whole, PyObject *dim, PyObject *index, PyObject *given,
                         int added) {
    PyArrayObject *x = (PyArrayObject *)whole, *v = (PyArrayObject *)given;
    npy_intp places[ALONG_MOST], count, step = 1, i;
    char number[64], *into;
    const char *values;
    int item, type;
    if (bare_begin() < 0) return -1;
    count = along_places(whole, dim, index, places);
    if (count == 0 || !PyArray_ISWRITEABLE(x)) return 0;
    item = PyArray_ITEMSIZE(x);
    type = PyArray_TYPE(x);
    if (bare_is_dense(given)) {
        PyArrayObject *at = (PyArrayObject *)index;
        if (PyArray_TYPE(v) != type || PyArray_NDIM(v) != PyArray_NDIM(at) || along_meet(x, v) ||
            !bare_is_one_shape(PyArray_DIMS(v), PyArray_DIMS(at), PyArray_NDIM(v)))
            return 0;
        values = PyArray_BYTES(v);
    } else {
        PyArray_Descr *descr;
        if (added || !PyArray_IsScalar(given, Number)) return 0;
        descr = PyArray_DescrFromScalar(given);
        i = descr->type_num == type;
        Py_DECREF(descr);
        if (!i) return 0;
        PyArray_ScalarAsCtype(given, number);
        values = number;
        step = 0;
    }
    into = PyArray_BYTES(x);
    if (!added) {
        if (item == 4) ALONG_EACH(npy_uint32, to[places[i]] = from[i * step]);
        else if (item == 8) ALONG_EACH(npy_uint64, to[places[i]] = from[i * step]);
        else for (i = 0; i < count; i++)
            memcpy(into + places[i] * item, values + i * step * item, item);
    }
    else if (type == NPY_FLOAT) ALONG_EACH(float, to[places[i]] += from[i]);
    else if (type == NPY_DOUBLE) ALONG_EACH(double, to[places[i]] += from[i]);
    else if (type == NPY_INT64) ALONG_EACH(npy_uint64, to[places[i]] += from[i]);
    else return 0;
    return 1;
}
