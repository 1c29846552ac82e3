/* New arrays that begin with a line of the cache: NumPy's begin anywhere that 16 divides, and what is
   written over the ends of lines takes up to twice as long. They own their memory as NumPy's do, and
   a handler of NumPy's kind takes it back. */
#ifndef SKIMP_LINES
#define SKIMP_LINES
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <numpy/arrayobject.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum {
    LINES_LINE = 64,
    LINES_LEAST = 1 << 14, /* bytes: of shorter ones it makes no difference */
    LINES_HUGE = 1 << 22,  /* from here on NumPy asks for huge pages */
    LINES_PAGE = 4096,
    LINES_DOMAIN = 389047 /* NumPy's, of tracemalloc */
};

/* What stands before the memory, in the 16 to 64 bytes that are left out. */
typedef struct {
    void *whole;
    size_t size;
} LinesHead;

static void *lines_malloc(void *context, size_t size) {
    (void)context;
    char *whole = size > SIZE_MAX - LINES_LINE ? NULL : malloc(size + LINES_LINE), *start;
    if (!whole) return NULL;
    start = whole + LINES_LINE - (uintptr_t)whole % LINES_LINE;
    ((LinesHead *)start)[-1] = (LinesHead){whole, size};
#ifdef MADV_HUGEPAGE
    if (size >= LINES_HUGE) {
        const uintptr_t page = ((uintptr_t)start / LINES_PAGE + 1) * LINES_PAGE;
        madvise((void *)page, (uintptr_t)start + size - page, MADV_HUGEPAGE);
    }
#endif
    return start;
}

static void lines_free(void *context, void *start, size_t size) {
    (void)context, (void)size;
    if (start) free(((LinesHead *)start)[-1].whole);
}

static void *lines_calloc(void *context, size_t many, size_t each) {
    void *start = each && many > SIZE_MAX / each ? NULL : lines_malloc(context, many * each);
    return start ? memset(start, 0, many * each) : NULL;
}

static void *lines_realloc(void *context, void *start, size_t size) {
    void *other = lines_malloc(context, size);
    if (!other || !start) return other;
    const size_t had = ((LinesHead *)start)[-1].size;
    memcpy(other, start, had < size ? had : size);
    lines_free(context, start, had);
    return other;
}

static PyDataMem_Handler lines_handler = {
    "skimp_lines", 1, {NULL, lines_malloc, lines_calloc, lines_realloc, lines_free},
};
static PyObject *lines_capsule = NULL;

/* A new array, of a type that holds no objects. */
static PyObject *lines_empty(int ndim, npy_intp const *shape, int type, npy_intp nbytes) {
    PyObject *made;
    void *start;
    if (nbytes < LINES_LEAST) return PyArray_EMPTY(ndim, (npy_intp *)shape, type, 0);
    if (!lines_capsule && !(lines_capsule = PyCapsule_New(&lines_handler, "mem_handler", NULL)))
        return NULL;
    if (!(start = lines_malloc(NULL, nbytes))) /* or NumPy says how much that was */
        return PyArray_EMPTY(ndim, (npy_intp *)shape, type, 0);
    made = PyArray_New(&PyArray_Type, ndim, (npy_intp *)shape, type, NULL, start, 0,
                       NPY_ARRAY_CARRAY, NULL);
    if (!made) {
        lines_free(NULL, start, nbytes);
        return NULL;
    }
    PyArray_ENABLEFLAGS((PyArrayObject *)made, NPY_ARRAY_OWNDATA);
    Py_INCREF(lines_capsule);
    ((PyArrayObject_fields *)made)->mem_handler = lines_capsule;
    PyTraceMalloc_Track(LINES_DOMAIN, (uintptr_t)start, nbytes);
    return made;
}

/* What NumPy's `empty` makes of a tuple of sizes and a type. */
static PyObject *lines_called(PyObject *self, PyObject *const *args, Py_ssize_t given,
                              PyObject *names) {
    npy_intp shape[NPY_MAXDIMS], nbytes;
    int ndim;
    PyArray_Descr *type;
    if (names || given != 2 || !PyTuple_CheckExact(args[0]) || !PyArray_DescrCheck(args[1]))
        goto numpy;
    type = (PyArray_Descr *)args[1];
    ndim = (int)PyTuple_GET_SIZE(args[0]);
    if (type->type_num < 0 || type->type_num >= NPY_OBJECT || !PyArray_ISNBO(type->byteorder) ||
        ndim > NPY_MAXDIMS)
        goto numpy;
    nbytes = PyDataType_ELSIZE(type);
    for (int i = 0; i < ndim; i++) {
        PyObject *one = PyTuple_GET_ITEM(args[0], i);
        int overflow = 0;
        if (!PyLong_CheckExact(one)) goto numpy;
        shape[i] = PyLong_AsLongAndOverflow(one, &overflow);
        if (overflow || shape[i] < 0 || (shape[i] && nbytes > NPY_MAX_INTP / shape[i])) goto numpy;
        nbytes *= shape[i];
    }
    return lines_empty(ndim, shape, type->type_num, nbytes);

numpy:
    return PyObject_Vectorcall(self, args, given, names);
}

static PyMethodDef lines_method = {
    "empty", (PyCFunction)(void (*)(void))lines_called, METH_FASTCALL | METH_KEYWORDS, NULL,
};

static PyObject *lines_function(PyObject *empty) {
    if (!PyArray_API && _import_array() < 0) return NULL;
    return PyCFunction_New(&lines_method, empty);
}
#endif
