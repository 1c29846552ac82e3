/* NumPy's ufuncs on small arrays: their loops, without what finds them and makes room anew at each
   call, which takes longer than the loop. `bare_ufunc(ufunc)` is called as the ufunc is, and does
   what it would, in the same calls of the same loop, for operands of one type that lie row by row,
   one of the result's shape, the others too, or numbers, or, of two, of fewer dims or with dims of
   1; all else it leaves to the ufunc. Results of no dims are arrays, and nobody is told of floating point
   errors. */

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <string.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
#include <numpy/ufuncobject.h>

#define BARE_OPERANDS 3
#define BARE_TYPES NPY_OBJECT /* those before it are numbers */
#define BARE_MOST 4096        /* elements: more are done without the interpreter's lock */
#define BARE_EXACT (1 << 24)  /* whole numbers up to it are floats */

typedef struct {
    PyUFuncGenericFunction run;
    void *data;
    int made;
} BareLoop;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *ufunc;
    int nin;
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
        if (type == NPY_FLOAT) to->number.f = (float)PyFloat_AS_DOUBLE(a);
        else if (type == NPY_DOUBLE) to->number.d = PyFloat_AS_DOUBLE(a);
        else return 0;
    } else if (PyLong_CheckExact(a)) {
        int overflow;
        long whole = PyLong_AsLongAndOverflow(a, &overflow);
        if (overflow || whole < -BARE_EXACT || whole > BARE_EXACT) return 0;
        if (type == NPY_FLOAT) to->number.f = (float)whole;
        else if (type == NPY_DOUBLE) to->number.d = (double)whole;
        else if (type == NPY_LONG) to->number.l = whole;
        else return 0;
    } else {
        return 0;
    }
    to->data = (char *)&to->number;
    to->size = 1;
    to->ndim = 0;
    return 1;
}

static inline int bare_is_alike(const BareOperand *a, const BareOperand *b) {
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof(npy_intp)) == 0;
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
    if (memcmp(shape, whole->shape + ndim - own, own * sizeof(npy_intp)) == 0) {
        *between = 0;
        return whole->size / part->size;
    }
    *within = 0;
    *between = 1;
    if (part->ndim != ndim) return 0;
    while (ndim && part->shape[ndim - 1] == 1) ndim--;
    if (memcmp(part->shape, whole->shape, ndim * sizeof(npy_intp)) != 0) return 0;
    while (ndim) n *= whole->shape[--ndim];
    return n;
}

static PyObject *bare_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    BareUfunc *u = (BareUfunc *)self;
    Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    int nin = u->nin, type, i, typed = 0, whole = 0;
    PyObject *out = NULL;
    PyArrayObject *array;
    BareOperand in[BARE_OPERANDS];
    npy_intp item, size, n, runs = 1, within[BARE_OPERANDS], between[BARE_OPERANDS];
    npy_intp steps[BARE_OPERANDS + 1];
    char *places[BARE_OPERANDS + 1];
    const BareLoop *loop;

    if (names == NULL) {
        if (given == nin + 1) out = args[nin];
        else if (given != nin) goto ufunc;
    } else {
        if (given != nin || PyTuple_GET_SIZE(names) != 1 ||
            PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "out") != 0)
            goto ufunc;
        out = args[nin];
    }
    if (out == Py_None) out = NULL;

    while (!PyArray_CheckExact(args[typed]))
        if (++typed == nin) goto ufunc;
    array = (PyArrayObject *)args[typed];
    type = PyArray_TYPE(array);
    if (type < 0 || type >= BARE_TYPES) goto ufunc;
    loop = &u->loops[type];
    if (loop->run == NULL) goto ufunc;
    item = PyArray_ITEMSIZE(array);
    for (i = 0; i < nin; i++) {
        if (!bare_take(args[i], type, &in[i])) goto ufunc;
        if (in[i].size > in[whole].size ||
            (in[i].size == in[whole].size && in[i].ndim > in[whole].ndim))
            whole = i;
    }
    n = size = in[whole].size;
    if (size == 0 || size > BARE_MOST) goto ufunc;
    for (i = 0; i < nin; i++) {
        within[i] = 1;
        between[i] = -1; /* as far as a run goes */
        if (i == whole || bare_is_alike(&in[i], &in[whole])) continue;
        if (in[i].ndim > in[whole].ndim || (nin == 3 && in[i].size != 1)) goto ufunc;
        if (in[i].size == 1) {
            within[i] = between[i] = 0;
            continue;
        }
        given = bare_runs(&in[whole], &in[i], &within[i], &between[i]);
        if (given == 0 || (runs != 1 && given != runs)) goto ufunc;
        runs = given;
        n = size / runs;
    }

    if (out == NULL) {
        out = PyArray_EMPTY(in[whole].ndim, in[whole].shape, loop->made, 0);
        if (out == NULL) return NULL;
        array = (PyArrayObject *)out;
    } else {
        array = (PyArrayObject *)out;
        if (!bare_is_dense(out) || PyArray_TYPE(array) != loop->made ||
            !PyArray_ISWRITEABLE(array) || PyArray_NDIM(array) != in[whole].ndim ||
            memcmp(PyArray_DIMS(array), in[whole].shape, in[whole].ndim * sizeof(npy_intp)) != 0)
            goto ufunc;
        for (i = 0; i < nin; i++) /* each element is read before it is written over */
            if ((PyArray_BYTES(array) != in[i].data || in[i].size != size ||
                 PyArray_ITEMSIZE(array) != item) &&
                PyArray_BYTES(array) + PyArray_NBYTES(array) > in[i].data &&
                in[i].data + in[i].size * item > PyArray_BYTES(array))
                goto ufunc;
        Py_INCREF(out);
    }

    for (i = 0; i < nin; i++) {
        places[i] = in[i].data;
        steps[i] = within[i] * item;
        between[i] = (between[i] < 0 ? n : between[i]) * item;
    }
    places[nin] = PyArray_BYTES(array);
    steps[nin] = PyArray_ITEMSIZE(array);
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
    if (PyErr_Occurred()) {
        Py_DECREF(out);
        return NULL;
    }
    return out;

ufunc:
    return PyObject_Vectorcall(u->ufunc, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

static void bare_dealloc(PyObject *self) {
    Py_XDECREF(((BareUfunc *)self)->ufunc);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject bare_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "skimp._kernels.loops.ufunc",
    .tp_basicsize = sizeof(BareUfunc),
    .tp_dealloc = bare_dealloc,
    .tp_vectorcall_offset = offsetof(BareUfunc, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "A ufunc of NumPy's, whose loops small arrays are handed to straight.",
};

/* A function that does what the ufunc does; the ufunc itself where it has more operands, or more than
   one result. */
static PyObject *bare_ufunc(PyObject *ufunc) {
    PyUFuncObject *from = (PyUFuncObject *)ufunc;
    BareUfunc *u;
    int i, k, nargs;
    if (bare_type.tp_dict == NULL) {
        if (_import_array() < 0 || _import_umath() < 0 || PyType_Ready(&bare_type) < 0) return NULL;
    }
    if (Py_TYPE(ufunc) != &PyUFunc_Type || from->nin > BARE_OPERANDS || from->nout != 1 ||
        from->core_enabled) {
        Py_INCREF(ufunc);
        return ufunc;
    }
    u = PyObject_New(BareUfunc, &bare_type);
    if (u == NULL) return NULL;
    memset(u->loops, 0, sizeof(u->loops));
    u->call = bare_call;
    u->nin = from->nin;
    Py_INCREF(ufunc);
    u->ufunc = ufunc;
    nargs = from->nargs;
    for (i = from->ntypes - 1; i >= 0; i--) { /* the first of a type is the one that counts */
        const char *types = from->types + i * nargs;
        for (k = 1; k < from->nin && types[k] == types[0]; k++) {}
        if (k < from->nin || types[0] < 0 || types[0] >= BARE_TYPES || types[nargs - 1] < 0 ||
            types[nargs - 1] >= BARE_TYPES)
            continue;
        u->loops[(int)types[0]].run = from->functions[i];
        u->loops[(int)types[0]].data = from->data ? from->data[i] : NULL;
        u->loops[(int)types[0]].made = types[nargs - 1];
    }
    return (PyObject *)u;
}
