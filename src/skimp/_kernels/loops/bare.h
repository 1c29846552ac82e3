/* NumPy's functions on small arrays: their loops, without what finds them and makes room anew at
   each call, which takes longer than the loop. Each is called as NumPy's is, and leaves to that what
   is not for it: arrays of other types or layouts, long ones, other words. Results of no dims are
   arrays, and nobody is told of floating point errors. */

#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <string.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
#include <numpy/ufuncobject.h>
#include "lines.h"
#include "passes.h"
#include "shares.h"

#define BARE_OPERANDS 3
#define BARE_TYPES NPY_OBJECT /* those before it are numbers */
#define BARE_MOST 4096        /* elements: more are done without the interpreter's lock, */
#define BARE_LONG (1 << 15)   /* and by teams from here on (`sharing.FROM`), or by NumPy */
#define BARE_EXACT (1 << 24)  /* whole numbers up to it are floats */

typedef struct {
    PyUFuncGenericFunction run;
    void *data;
    int made;
} BareLoop;

typedef struct { /* what all that is called in the place of a function of NumPy's begins with */
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *instead; /* what is asked itself where C leaves a call */
} BareCall;

typedef struct {
    BareCall head;
    int nin;
    int begins; /* where `reduce` does: 0, or -1: at the first number; else -2 */
    double cost; /* seconds for an element of one thread, where a team may share; or 0 */
    BareLoop loops[BARE_TYPES];
} BareUfunc;

typedef struct {
    char *data;
    npy_intp size;
    int ndim;
    npy_intp *shape;
    union { float f; double d; long l; } number;
} BareOperand;

static inline int bare_is_dense(PyObject *a) {
    const int needs = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
    return PyArray_CheckExact(a) && (PyArray_FLAGS((PyArrayObject *)a) & needs) == needs &&
           PyArray_ISNOTSWAPPED((PyArrayObject *)a);
}

/* Whether it is a small number, as the places of dims are. */
static inline int bare_int(PyObject *a, int *to) {
    int overflow = 0;
    long value = PyLong_CheckExact(a) ? PyLong_AsLongAndOverflow(a, &overflow) : BARE_EXACT;
    *to = (int)value;
    return !overflow && value > -BARE_EXACT && value < BARE_EXACT;
}

/* Whether it is an operand of the type, as which a number that the type takes counts too. */
static inline int bare_take(PyObject *a, int type, BareOperand *to) {
    if (bare_is_dense(a)) {
        PyArrayObject *array = (PyArrayObject *)a;
        to->data = PyArray_BYTES(array);
        to->size = PyArray_SIZE(array);
        to->ndim = PyArray_NDIM(array);
        to->shape = PyArray_DIMS(array);
        return PyArray_TYPE(array) == type;
    }
    if (PyFloat_CheckExact(a)) {
        double value = PyFloat_AS_DOUBLE(a);
        if (type == NPY_FLOAT) to->number.f = (float)value;
        else if (type == NPY_DOUBLE) to->number.d = value;
        else return 0;
        if (type == NPY_FLOAT && to->number.f == 0 && value != 0) return 0; /* true to `logical_` */
    } else if (PyLong_CheckExact(a)) {
        int overflow;
        long whole = PyLong_AsLongAndOverflow(a, &overflow);
        if (overflow || whole < -BARE_EXACT || whole > BARE_EXACT) return 0;
        if (type == NPY_FLOAT) to->number.f = (float)whole;
        else if (type == NPY_DOUBLE) to->number.d = (double)whole;
        else if (type == NPY_LONG) to->number.l = whole;
        else return 0;
    } else if (type == NPY_FLOAT && PyArray_IsScalar(a, Float)) {
        to->number.f = PyArrayScalar_VAL(a, Float);
    } else if (type == NPY_DOUBLE && PyArray_IsScalar(a, Double)) {
        to->number.d = PyArrayScalar_VAL(a, Double);
    } else {
        return 0;
    }
    to->data = (char *)&to->number;
    to->size = 1;
    to->ndim = 0;
    return 1;
}

static inline int bare_is_one_shape(const npy_intp *a, const npy_intp *b, int ndim) {
    while (ndim && a[ndim - 1] == b[ndim - 1]) ndim--;
    return ndim == 0;
}

static inline int bare_is_alike(const BareOperand *a, const BareOperand *b) {
    return a->ndim == b->ndim && bare_is_one_shape(a->shape, b->shape, a->ndim);
}

/* How often the loop runs, and by how much the smaller operand moves within and between the runs,
   in elements; 0 where it is not broadcast to the other. */
static npy_intp bare_runs(const BareOperand *whole, const BareOperand *part, npy_intp *within,
                          npy_intp *between) {
    int ndim = whole->ndim, own = part->ndim;
    const npy_intp *shape = part->shape;
    npy_intp n = 1;
    *within = 1;
    while (own && *shape == 1) shape++, own--;
    if (bare_is_one_shape(shape, whole->shape + ndim - own, own)) {
        *between = 0;
        return whole->size / part->size;
    }
    *within = 0;
    *between = 1;
    if (part->ndim != ndim) return 0;
    while (ndim && part->shape[ndim - 1] == 1) ndim--;
    if (!bare_is_one_shape(part->shape, whole->shape, ndim)) return 0;
    while (ndim) n *= whole->shape[--ndim];
    return n;
}

/* Long operands of one shape, and numbers, by a team where that is worth it; below 0 with an error. */
static int bare_long(const BareUfunc *u, const BareLoop *loop, char **places, const npy_intp *steps,
                     npy_intp n) {
    Passes p;
    double began, seconds = n * u->cost;
    int threads = share_begin(n, seconds, &began);
    if (threads < 0) return -1;
    p.many = 1;
    p.steps[0].loop = loop->run;
    p.steps[0].data = loop->data;
    p.steps[0].many = u->nin + 1;
    for (int i = 0; i <= u->nin; i++) {
        p.operands[i] = (PassOperand){places[i], steps[i], 0};
        p.steps[0].args[i] = i;
    }
    Py_BEGIN_ALLOW_THREADS
    passes_go(&p, n, n, u->nin + 1, u->nin, u->nin, threads);
    Py_END_ALLOW_THREADS
    return began != 0 ? share_end(began, seconds) : 0;
}

/* The same calls of the same loop, for operands of one type that lie row by row, one of the result's
   shape, the others too, or numbers, or, of two, of fewer dims or with dims of 1; into `out`, if it is
   given. NULL without an error where that is not for this. */
static PyObject *bare_tried(const BareUfunc *u, PyObject *const *args, PyObject *out) {
    Py_ssize_t given;
    int nin = u->nin, type, i, typed = 0, whole = 0;
    PyArrayObject *array;
    BareOperand in[BARE_OPERANDS];
    npy_intp item, size, n, runs = 1, within[BARE_OPERANDS], between[BARE_OPERANDS];
    npy_intp steps[BARE_OPERANDS + 1];
    char *places[BARE_OPERANDS + 1];
    const BareLoop *loop;
    PyThreadState *lock = NULL;

    while (!PyArray_CheckExact(args[typed]))
        if (++typed == nin) return NULL;
    array = (PyArrayObject *)args[typed];
    type = PyArray_TYPE(array);
    if (type < 0 || type >= BARE_TYPES) return NULL;
    loop = &u->loops[type];
    if (loop->run == NULL) return NULL;
    item = PyArray_ITEMSIZE(array);
    for (i = 0; i < nin; i++) {
        if (!bare_take(args[i], type, &in[i])) return NULL;
        if (in[i].size > in[whole].size ||
            (in[i].size == in[whole].size && in[i].ndim > in[whole].ndim))
            whole = i;
    }
    size = in[whole].size;
    if (size == 0 || (size >= BARE_LONG && (u->cost == 0 || !pass_item(type)))) return NULL;
    if (size == 1 && PyTypeNum_ISCOMPLEX(type)) return NULL; /* bits depend on steps */
    for (i = 0; i < nin; i++) {
        within[i] = 1;
        between[i] = -1; /* as far as a run goes */
        if (i == whole || bare_is_alike(&in[i], &in[whole])) continue;
        if (in[i].ndim > in[whole].ndim || (nin == 3 && in[i].size != 1)) return NULL;
        if (in[i].size == 1) {
            within[i] = between[i] = 0;
            continue;
        }
        given = bare_runs(&in[whole], &in[i], &within[i], &between[i]);
        if (given == 0 || (runs != 1 && given != runs) || (given > 1 && size >= BARE_LONG))
            return NULL;
        runs = given;
    }

    if (out == NULL) {
        n = loop->made == type ? item : loop->made == NPY_BOOL; /* 0: of another size */
        out = lines_empty(in[whole].ndim, in[whole].shape, loop->made, size * n);
        if (out == NULL) return NULL;
        array = (PyArrayObject *)out;
    } else {
        array = (PyArrayObject *)out;
        if (!bare_is_dense(out) || PyArray_TYPE(array) != loop->made ||
            !PyArray_ISWRITEABLE(array) || PyArray_NDIM(array) != in[whole].ndim ||
            !bare_is_one_shape(PyArray_DIMS(array), in[whole].shape, in[whole].ndim))
            return NULL;
        for (i = 0; i < nin; i++) /* each element is read before it is written over; of what only
                                     touches loops have other bits, as if it overlapped */
            if ((PyArray_BYTES(array) != in[i].data || in[i].size != size ||
                 PyArray_ITEMSIZE(array) != item) &&
                PyArray_BYTES(array) + PyArray_NBYTES(array) >= in[i].data &&
                in[i].data + in[i].size * item >= PyArray_BYTES(array))
                return NULL;
        Py_INCREF(out);
    }

    n = size / runs;
    for (i = 0; i < nin; i++) {
        places[i] = in[i].data;
        steps[i] = within[i] * item;
        between[i] = (between[i] < 0 ? n : between[i]) * item;
    }
    places[nin] = PyArray_BYTES(array);
    steps[nin] = PyArray_ITEMSIZE(array);
    if (size >= BARE_LONG) {
        if (bare_long(u, loop, places, steps, size) < 0) Py_CLEAR(out);
        return out;
    }
    if (size > BARE_MOST) lock = PyEval_SaveThread();
    if (runs == 1) {
        loop->run(places, &n, steps, loop->data);
    } else {
        char *at[BARE_OPERANDS + 1];
        npy_intp run, count;
        for (run = 0; run < runs; run++) {
            for (i = 0; i < nin; i++) at[i] = places[i] + run * between[i];
            at[nin] = places[nin] + run * n * steps[nin];
            count = n;
            loop->run(at, &count, steps, loop->data);
        }
    }
    if (lock) PyEval_RestoreThread(lock);
    if (PyErr_Occurred()) {
        Py_DECREF(out);
        return NULL;
    }
    return out;
}

/* A ufunc, which is asked itself where its loop is not. */
static PyObject *bare_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    BareUfunc *u = (BareUfunc *)self;
    Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    int nin = u->nin;
    PyObject *out = NULL, *made;

    if (names == NULL) {
        if (given == nin + 1) out = args[nin];
        else if (given != nin) goto ufunc;
    } else {
        if (given != nin || PyTuple_GET_SIZE(names) != 1 ||
            PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "out") != 0)
            goto ufunc;
        out = args[nin];
    }
    made = bare_tried(u, args, out == Py_None ? NULL : out);
    if (made != NULL || PyErr_Occurred()) return made;

ufunc:
    return PyObject_Vectorcall(u->head.instead, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

/* What `reduce` of a ufunc of two operands makes along one dim, or all: at the end of the rows one
   call of its loop for each, else one for each line that is joined to those before it. */
static PyObject *bare_reduce_call(PyObject *self, PyObject *const *args, size_t nargsf,
                                  PyObject *names) {
    BareUfunc *u = (BareUfunc *)self;
    Py_ssize_t given = PyVectorcall_NARGS(nargsf), k;
    PyObject *axis = NULL, *keepdims = Py_False, *out;
    PyArrayObject *x;
    int type, ndim, dim, i, first;
    npy_intp shape[NPY_MAXDIMS], *own, lead = 1, n, trail = 1, item, run, j, steps[3], count;
    char *places[3], *from, *to;
    const BareLoop *loop;

    if (given < 1 || given > 5 || !bare_is_dense(args[0])) goto ufunc;
    if (given > 1) axis = args[1];
    if (given > 2 && args[2] != Py_None) goto ufunc;
    if (given > 3 && args[3] != Py_None) goto ufunc;
    if (given > 4) keepdims = args[4];
    for (k = 0; names != NULL && k < PyTuple_GET_SIZE(names); k++) {
        PyObject *name = PyTuple_GET_ITEM(names, k);
        if (PyUnicode_CompareWithASCIIString(name, "axis") == 0 && axis == NULL)
            axis = args[given + k];
        else if (PyUnicode_CompareWithASCIIString(name, "keepdims") == 0)
            keepdims = args[given + k];
        else goto ufunc;
    }
    if (!PyBool_Check(keepdims)) goto ufunc;
    x = (PyArrayObject *)args[0];
    type = PyArray_TYPE(x);
    if (type != NPY_FLOAT && type != NPY_DOUBLE && type != NPY_LONG) goto ufunc;
    loop = &u->loops[type];
    if (loop->run == NULL || loop->made != type || u->begins == -2) goto ufunc;
    n = PyArray_SIZE(x);
    if (n == 0 || n > BARE_MOST) goto ufunc;
    ndim = PyArray_NDIM(x);
    own = PyArray_DIMS(x);
    item = PyArray_ITEMSIZE(x);
    if (axis == Py_None) {
        for (i = 0; i < ndim; i++) shape[i] = 1;
        if (keepdims == Py_False) ndim = 0;
    } else {
        dim = 0;
        if (axis != NULL && !bare_int(axis, &dim)) goto ufunc;
        if (dim < 0) dim += ndim;
        if (dim < 0 || dim >= ndim) goto ufunc;
        for (i = 0; i < dim; i++) lead *= shape[i] = own[i];
        n = own[dim];
        if (keepdims == Py_True) shape[dim] = 1;
        for (i = dim + 1; i < ndim; i++) trail *= shape[i - (keepdims == Py_False)] = own[i];
        if (keepdims == Py_False) ndim--;
    }
    out = PyArray_EMPTY(ndim, shape, type, 0);
    if (out == NULL) return NULL;
    to = PyArray_BYTES((PyArrayObject *)out);
    from = PyArray_BYTES(x);
    steps[0] = steps[2] = trail == 1 ? 0 : item;
    steps[1] = item;
    for (run = 0; run < lead; run++, from += n * trail * item, to += trail * item) {
        first = u->begins < 0;
        if (first == 0) memset(to, 0, trail * item);
        else memcpy(to, from, trail * item);
        for (j = first; j < n; j += trail == 1 ? n : 1) {
            places[0] = places[2] = to;
            places[1] = from + j * trail * item;
            count = trail == 1 ? n - first : trail;
            loop->run(places, &count, steps, loop->data);
        }
    }
    return out;

ufunc:
    return PyObject_Vectorcall(u->head.instead, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

static void bare_dealloc(PyObject *self) {
    Py_XDECREF(((BareCall *)self)->instead);
    Py_TYPE(self)->tp_free(self);
}

#define BARE_CLASS(struct, name, doc)                                  \
    {                                                                  \
        PyVarObject_HEAD_INIT(NULL, 0)                                 \
        .tp_name = "skimp._kernels.loops." name,                       \
        .tp_basicsize = sizeof(struct),                                \
        .tp_dealloc = bare_dealloc,                                    \
        .tp_vectorcall_offset = offsetof(BareCall, call),              \
        .tp_call = PyVectorcall_Call,                                  \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,   \
        .tp_doc = doc,                                                 \
    }

static PyTypeObject bare_class = BARE_CLASS(
    BareUfunc, "ufunc", "A ufunc of NumPy's, whose loops small arrays are handed to straight.");

static int bare_begin(void) {
    if (bare_class.tp_dict != NULL) return 0;
    return _import_array() < 0 || _import_umath() < 0 ? -1 : PyType_Ready(&bare_class);
}

static int bare_begins(PyObject *ufunc) {
    PyObject *identity = PyObject_GetAttrString(ufunc, "identity");
    int begins = -2;
    if (identity == NULL) PyErr_Clear();
    else if (identity == Py_None) /* of several dims it may be in any order */
        begins = ((PyUFuncObject *)ufunc)->identity != PyUFunc_None ? -1 : -2;
    else if (PyLong_CheckExact(identity) && PyObject_Not(identity)) begins = 0;
    Py_XDECREF(identity);
    return begins;
}

/* Its loops for operands of one type, by the type. */
static void bare_loops(const PyUFuncObject *from, BareLoop *loops) {
    int i, k, nargs = from->nargs;
    memset(loops, 0, sizeof(BareLoop) * BARE_TYPES);
    for (i = from->ntypes - 1; i >= 0; i--) { /* the first of a type is the one that counts */
        const char *types = from->types + i * nargs;
        for (k = 1; k < from->nin && types[k] == types[0]; k++) {}
        if (k < from->nin || types[0] < 0 || types[0] >= BARE_TYPES || types[nargs - 1] < 0 ||
            types[nargs - 1] >= BARE_TYPES)
            continue;
        loops[(int)types[0]].run = from->functions[i];
        loops[(int)types[0]].data = from->data ? from->data[i] : NULL;
        loops[(int)types[0]].made = types[nargs - 1];
    }
}

/* What is called as `instead`, by a ufunc's loops; `instead` itself where it has more operands, or
   more than one result. */
static PyObject *bare_made(PyObject *ufunc, PyObject *instead, vectorcallfunc call) {
    PyUFuncObject *from = (PyUFuncObject *)ufunc;
    BareUfunc *u;
    if (bare_begin() < 0) return NULL;
    if (Py_TYPE(ufunc) != &PyUFunc_Type || from->nin > BARE_OPERANDS || from->nout != 1 ||
        from->core_enabled)
        return Py_NewRef(instead);
    u = PyObject_New(BareUfunc, &bare_class);
    if (u == NULL) return NULL;
    u->head.call = call;
    u->nin = from->nin;
    u->cost = 0;
    u->begins = bare_begins(ufunc);
    u->head.instead = Py_NewRef(instead);
    bare_loops(from, u->loops);
    return (PyObject *)u;
}

static PyObject *bare_ufunc(PyObject *ufunc) { return bare_made(ufunc, ufunc, bare_call); }

static PyObject *bare_reduce(PyObject *ufunc, PyObject *reduce) {
    return bare_made(ufunc, reduce, bare_reduce_call);
}

/* Teams share what is long; nothing where it is no ufunc of this kind. */
static int bare_shared(PyObject *ufunc, double cost) {
    if (Py_IS_TYPE(ufunc, &bare_class)) ((BareUfunc *)ufunc)->cost = cost;
    return 0;
}

/* Whether it has written ufunc(*arrays, *numbers), of tuples, into `out`; -1 with an error. */
static int bare_done(PyObject *ufunc, PyObject *arrays, PyObject *out, PyObject *numbers) {
    PyObject *args[BARE_OPERANDS], *made;
    Py_ssize_t i, many, beside;
    if (!Py_IS_TYPE(ufunc, &bare_class) || !PyTuple_CheckExact(numbers) ||
        !(PyTuple_CheckExact(arrays) || PyList_CheckExact(arrays)))
        return 0;
    many = PySequence_Fast_GET_SIZE(arrays);
    beside = PyTuple_GET_SIZE(numbers);
    if (many + beside != ((BareUfunc *)ufunc)->nin) return 0;
    for (i = 0; i < many; i++) args[i] = PySequence_Fast_GET_ITEM(arrays, i);
    for (i = 0; i < beside; i++) args[many + i] = PyTuple_GET_ITEM(numbers, i);
    made = bare_tried((BareUfunc *)ufunc, args, out);
    Py_XDECREF(made);
    return made ? 1 : PyErr_Occurred() ? -1 : 0;
}
