/* Products of small matrices by the loop of NumPy's `matmul`, called straight: which of BLAS's
   functions it is follows from what the loop is told, so bits are NumPy's. What its ufunc does
   before (an iterator, dims looked for, room) takes as long as a product of 16 x 32 x 32. Whatever is
   not for it goes to `instead`: other types, memory or sizes. */
#pragma once
#include "bare.h"

#define MATMUL_BRIEF (1 << 16) /* multiplications: more are done without the interpreter's lock */
#define MATMUL_DIMS 4

typedef struct {
    BareCall head;
    npy_intp most, most_of_batch; /* multiplications */
    npy_intp largest;             /* elements of a factor, where something is added */
    BareLoop times[BARE_TYPES], scales[BARE_TYPES], adds[BARE_TYPES];
} MatmulCall;

/* Matrices: where they are, and how far rows, columns and two of them are apart, in bytes. */
typedef struct {
    char *data;
    npy_intp rows, columns, down, right;
    int vector; /* of one dim, as a column */
} MatmulFactor;

static inline int matmul_takes(PyObject *a, int type) {
    PyArrayObject *x = (PyArrayObject *)a;
    return PyArray_CheckExact(a) && PyArray_ISBEHAVED_RO(x) && PyArray_TYPE(x) == type;
}

static inline int matmul_type(PyObject *a) {
    int type = PyArray_CheckExact(a) ? PyArray_TYPE((PyArrayObject *)a) : -1;
    return type == NPY_FLOAT || type == NPY_DOUBLE ? type : -1;
}

/* The matrices of its last dims; of fewer than two, or where it is `flat`, all before the last are
   the rows. */
static inline MatmulFactor matmul_factor(PyArrayObject *x, int flat) {
    int ndim = PyArray_NDIM(x);
    const npy_intp *shape = PyArray_DIMS(x), *strides = PyArray_STRIDES(x);
    MatmulFactor f = {PyArray_BYTES(x), 1, shape[ndim - 1], 0, strides[ndim - 1], 0};
    if (ndim == 2 || (ndim > 2 && !flat)) {
        f.rows = shape[ndim - 2];
        f.down = strides[ndim - 2];
    } else {
        for (int i = 0; i < ndim - 1; i++) f.rows *= shape[i];
        f.down = f.columns * PyArray_ITEMSIZE(x);
    }
    return f;
}

static inline MatmulFactor matmul_turned(MatmulFactor f) {
    MatmulFactor t = {f.data, f.columns, f.rows, f.right, f.down, 0};
    return t;
}

/* Whether BLAS can read it where it lies: rows or columns are runs of memory. */
static inline int matmul_is_run(const MatmulFactor *f, npy_intp item) {
    if (f->rows == 1 || f->columns == 1) {
        npy_intp step = f->rows == 1 ? f->right : f->down;
        return f->rows == f->columns || (step > 0 && step % item == 0);
    }
    if (f->right == item) return f->down >= f->columns * item && f->down % item == 0;
    return f->down == item && f->right >= f->rows * item && f->right % item == 0;
}

static inline npy_intp matmul_step(npy_intp size, npy_intp step) { return size == 1 ? 0 : step; }

/* out = a @ b of `count` pairs, so many bytes apart. A column times a row is none to BLAS, but a
   ufunc, unless the row is of one dim. */
static void matmul_run(const MatmulCall *m, int type, const MatmulFactor *a, const MatmulFactor *b,
                       const MatmulFactor *out, npy_intp count, const npy_intp *apart) {
    const BareLoop *loop;
    npy_intp sizes[4] = {count, a->rows, a->columns, b->columns};
    npy_intp steps[9] = {apart[0], apart[1], apart[2],
                         matmul_step(a->rows, a->down), matmul_step(a->columns, a->right),
                         matmul_step(b->rows, b->down), matmul_step(b->columns, b->right),
                         matmul_step(out->rows, out->down),
                         matmul_step(out->columns, out->right)};
    char *at[3] = {a->data, b->data, out->data};
    if (a->columns > 1 || b->vector) {
        loop = &m->times[type];
        loop->run(at, sizes, steps, loop->data);
        return;
    }
    loop = &m->scales[type];
    for (npy_intp i = 0; i < count; i++)
        for (npy_intp r = 0; r < a->rows; r++) {
            npy_intp n = b->columns, within[3] = {0, b->right, out->right};
            char *row[3] = {a->data + i * apart[0] + r * a->down, b->data + i * apart[1],
                            out->data + i * apart[2] + r * out->down};
            loop->run(row, &n, within, loop->data);
        }
}

/* The same of all pairs of arrays whose dims before the last two are these. */
static void matmul_all(const MatmulCall *m, int type, MatmulFactor a, MatmulFactor b,
                       MatmulFactor out, int lead, const npy_intp *shape, const npy_intp *apart_a,
                       const npy_intp *apart_b, const npy_intp *apart) {
    if (lead < 2) {
        npy_intp each[3] = {0, 0, 0};
        if (lead) each[0] = *apart_a, each[1] = *apart_b, each[2] = *apart;
        matmul_run(m, type, &a, &b, &out, lead ? *shape : 1, each);
        return;
    }
    for (npy_intp i = 0; i < *shape; i++) {
        matmul_all(m, type, a, b, out, lead - 1, shape + 1, apart_a + 1, apart_b + 1, apart + 1);
        a.data += *apart_a, b.data += *apart_b, out.data += *apart;
    }
}

static inline int matmul_is_quick(const MatmulCall *m, int type, npy_intp size, npy_intp columns,
                                  int batch) {
    return size > 0 && columns > 0 && columns <= (batch ? m->most_of_batch : m->most) / size &&
           m->times[type].run != NULL && m->scales[type].run != NULL && m->adds[type].run != NULL;
}

static inline PyObject *matmul_done(PyObject *out) {
    if (!PyErr_Occurred()) return out;
    Py_DECREF(out);
    return NULL;
}

/* The bytes that an array is within. */
static inline void matmul_bounds(PyArrayObject *x, char **low, char **high) {
    *low = *high = PyArray_BYTES(x);
    for (int i = 0; i < PyArray_NDIM(x); i++) {
        npy_intp step = PyArray_STRIDE(x, i) * (PyArray_DIM(x, i) - 1);
        if (step < 0) *low += step;
        else *high += step;
    }
    *high += PyArray_ITEMSIZE(x);
}

static inline int matmul_overlap(PyArrayObject *x, PyArrayObject *y) {
    char *low_x, *high_x, *low_y, *high_y;
    matmul_bounds(x, &low_x, &high_x);
    matmul_bounds(y, &low_y, &high_y);
    return low_x < high_y && low_y < high_x;
}

/* multiply(a, b, out=None): matrices, or batches with the same dims before the last two. */
static PyObject *matmul_multiply_call(PyObject *self, PyObject *const *args, size_t nargsf,
                                      PyObject *names) {
    const MatmulCall *m = (const MatmulCall *)self;
    Py_ssize_t given = PyVectorcall_NARGS(nargsf), named = names ? PyTuple_GET_SIZE(names) : 0;
    PyObject *made = NULL;
    PyArrayObject *a, *b, *out = NULL;
    MatmulFactor one, other, into;
    npy_intp shape[MATMUL_DIMS];
    int type, ndim;

    if (given < 2 || given + named > 3) goto instead;
    for (Py_ssize_t k = 0; k < named; k++) {
        const char *word = k + given == 2 ? "out" : "b";
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), word)) goto instead;
    }
    if (given + named == 3 && args[2] != Py_None) made = args[2];
    type = matmul_type(args[0]);
    if (type < 0 || !matmul_takes(args[0], type) || !matmul_takes(args[1], type)) goto instead;
    a = (PyArrayObject *)args[0];
    b = (PyArrayObject *)args[1];
    ndim = PyArray_NDIM(a);
    if (ndim < 2 || ndim > MATMUL_DIMS || PyArray_NDIM(b) != ndim ||
        !bare_is_one_shape(PyArray_DIMS(a), PyArray_DIMS(b), ndim - 2))
        goto instead;
    one = matmul_factor(a, 0);
    other = matmul_factor(b, 0);
    if (one.columns != other.rows ||
        !matmul_is_quick(m, type, PyArray_SIZE(a), other.columns, ndim > 2))
        goto instead;
    memcpy(shape, PyArray_DIMS(a), sizeof(npy_intp) * (ndim - 1));
    shape[ndim - 1] = other.columns;
    if (made == NULL) {
        made = PyArray_EMPTY(ndim, shape, type, 0);
        if (made == NULL) return NULL;
        out = (PyArrayObject *)made;
    } else {
        out = (PyArrayObject *)made;
        if (!matmul_takes(made, type) || !PyArray_ISWRITEABLE(out) || PyArray_NDIM(out) != ndim ||
            !bare_is_one_shape(PyArray_DIMS(out), shape, ndim) || matmul_overlap(out, a) ||
            matmul_overlap(out, b))
            goto instead;
        Py_INCREF(made);
    }
    into = matmul_factor(out, 0);
    NPY_BEGIN_THREADS_DEF;
    if (PyArray_SIZE(a) > MATMUL_BRIEF / other.columns) NPY_BEGIN_THREADS;
    matmul_all(m, type, one, other, into, ndim - 2, shape, PyArray_STRIDES(a), PyArray_STRIDES(b),
               PyArray_STRIDES(out));
    NPY_END_THREADS;
    return matmul_done(made);

instead:
    return PyObject_Vectorcall(m->head.instead, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

/* times(x, y, flipped, below, shape=None, bias=None), by places alone: the product of matrices, of
   batches, of one and a vector, of what is seen as a matrix by its last dim; of fewer than so many
   elements, of the shape, with what is added to each row or to all. */
static PyObject *matmul_times_call(PyObject *self, PyObject *const *args, size_t nargsf,
                                   PyObject *names) {
    const MatmulCall *m = (const MatmulCall *)self;
    Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    PyObject *made, *wanted = given > 4 ? args[4] : Py_None, *added = given > 5 ? args[5] : Py_None;
    PyArrayObject *x, *y;
    MatmulFactor one, other, into = {NULL, 0, 0, 0, 0, 0}, bias = {NULL, 0, 0, 0, 0, 0};
    npy_intp shape[NPY_MAXDIMS], size, item;
    enum { FIRST, SECOND };
    int type, flipped, below, ndim, others, batch, dims, i;

    if (names != NULL || given < 4 || given > 6) goto instead;
    type = matmul_type(args[0]);
    if (type < 0 || !matmul_takes(args[0], type) || !matmul_takes(args[1], type) ||
        !bare_int(args[2], &flipped) || !bare_int(args[3], &below))
        goto instead;
    x = (PyArrayObject *)args[0];
    y = (PyArrayObject *)args[1];
    item = PyArray_ITEMSIZE(x);
    ndim = PyArray_NDIM(x);
    others = PyArray_NDIM(y);
    batch = ndim > 2 && others > 2;
    if (ndim == 0 || others == 0) goto none;
    if (batch) {
        if (ndim > MATMUL_DIMS) goto instead;
        if (ndim != others ||
            !bare_is_one_shape(PyArray_DIMS(x), PyArray_DIMS(y), ndim - 2))
            goto none;
    } else if (flipped == FIRST ? ndim != 2 || (others > 2 && !PyArray_IS_C_CONTIGUOUS(y))
                                : others > 2 || (ndim != 2 && !PyArray_IS_C_CONTIGUOUS(x))) {
        goto none;
    }
    one = matmul_factor(x, !batch);
    other = matmul_factor(y, !batch);
    if (others == 1) {
        if (flipped == SECOND || ndim == 1) goto none;
        other.rows = other.columns, other.columns = 1;
        other.down = other.right, other.right = 0;
        other.vector = 1;
    }
    if (flipped == FIRST) one = matmul_turned(one);
    else if (flipped == SECOND) other = matmul_turned(other);
    size = PyArray_SIZE(x);
    if (one.columns != other.rows || size == 0 || other.columns == 0 ||
        size / one.columns >= below / other.columns + (below % other.columns != 0) ||
        !matmul_is_run(&one, item) || !matmul_is_run(&other, item))
        goto none;
    if (!matmul_is_quick(m, type, size, other.columns, batch)) goto instead;

    if (wanted != Py_None) {
        npy_intp whole = 1, value;
        if (!PyTuple_CheckExact(wanted) || PyTuple_GET_SIZE(wanted) > MATMUL_DIMS) goto instead;
        dims = (int)PyTuple_GET_SIZE(wanted);
        for (i = 0; i < dims; i++) {
            int one_size;
            if (!bare_int(PyTuple_GET_ITEM(wanted, i), &one_size) || one_size < 1) goto instead;
            value = shape[i] = one_size;
            if (value > below / whole) goto instead;
            whole *= value;
        }
        if (batch || whole != one.rows * other.columns) goto instead;
    } else {
        dims = ndim;
        for (i = 0; i < dims - 1; i++) shape[i] = PyArray_DIM(x, i);
        if (batch || ndim == 2) shape[dims - 2] = one.rows;
        if (others == 1) dims--;
        else shape[dims - 1] = other.columns;
    }
    if (added != Py_None) {
        PyArrayObject *b = (PyArrayObject *)added;
        if (batch || other.vector || !matmul_takes(added, type) || size >= m->largest ||
            PyArray_SIZE(y) >= m->largest)
            goto instead;
        if (PyArray_NDIM(b) != 1 && PyArray_NDIM(b) != 2) goto instead;
        bias = matmul_factor(b, 0);
        if (bias.columns != other.columns || (bias.rows != one.rows && PyArray_NDIM(b) == 2))
            goto instead;
        if (PyArray_NDIM(b) == 1) bias.down = 0;
    }

    made = PyArray_EMPTY(dims, shape, type, 0);
    if (made == NULL) return NULL;
    into.data = PyArray_BYTES((PyArrayObject *)made);
    into.rows = one.rows;
    into.columns = other.columns;
    into.right = item;
    into.down = item * other.columns;
    NPY_BEGIN_THREADS_DEF;
    if (size > MATMUL_BRIEF / other.columns) NPY_BEGIN_THREADS;
    matmul_all(m, type, one, other, into, batch ? ndim - 2 : 0, shape, PyArray_STRIDES(x),
               PyArray_STRIDES(y), PyArray_STRIDES((PyArrayObject *)made));
    if (bias.data != NULL) {
        const BareLoop *loop = &m->adds[type];
        for (npy_intp r = 0; r < into.rows; r++) {
            char *row = into.data + r * into.down, *at[3] = {row, bias.data + r * bias.down, row};
            npy_intp n = into.columns, steps[3] = {item, bias.right, item};
            loop->run(at, &n, steps, loop->data);
        }
    }
    NPY_END_THREADS;
    return matmul_done(made);

none:
    Py_RETURN_NONE;

instead:
    return PyObject_Vectorcall(m->head.instead, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

static PyTypeObject matmul_class =
    BARE_CLASS(MatmulCall, "product", "A product of small matrices by NumPy's own loop.");

/* What is called as `instead`; `ufuncs`: NumPy's matmul, multiply and add. */
static PyObject *matmul_made(PyObject *instead, PyObject *ufuncs, Py_ssize_t most,
                             Py_ssize_t most_of_batch, Py_ssize_t largest, vectorcallfunc call) {
    MatmulCall *m;
    if (bare_begin() < 0 || (matmul_class.tp_dict == NULL && PyType_Ready(&matmul_class) < 0))
        return NULL;
    for (Py_ssize_t i = 0; i < 3; i++)
        if (!PyTuple_Check(ufuncs) || PyTuple_GET_SIZE(ufuncs) != 3 ||
            Py_TYPE(PyTuple_GET_ITEM(ufuncs, i)) != &PyUFunc_Type)
            return Py_NewRef(instead);
    m = PyObject_New(MatmulCall, &matmul_class);
    if (m == NULL) return NULL;
    m->head.call = call;
    m->head.instead = Py_NewRef(instead);
    m->most = most;
    m->most_of_batch = most_of_batch;
    m->largest = largest;
    bare_loops((PyUFuncObject *)PyTuple_GET_ITEM(ufuncs, 0), m->times);
    bare_loops((PyUFuncObject *)PyTuple_GET_ITEM(ufuncs, 1), m->scales);
    bare_loops((PyUFuncObject *)PyTuple_GET_ITEM(ufuncs, 2), m->adds);
    return (PyObject *)m;
}

static PyObject *matmul_multiply(PyObject *instead, PyObject *ufuncs, Py_ssize_t most,
                                 Py_ssize_t most_of_batch) {
    return matmul_made(instead, ufuncs, most, most_of_batch, 0, matmul_multiply_call);
}

static PyObject *matmul_times(PyObject *instead, PyObject *ufuncs, Py_ssize_t most,
                              Py_ssize_t most_of_batch, Py_ssize_t largest) {
    return matmul_made(instead, ufuncs, most, most_of_batch, largest, matmul_times_call);
}
