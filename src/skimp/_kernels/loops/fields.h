/* Fields of tensors, storages, dtypes and nodes, by their places, where they are slots, which is
   looked up once for a class and again if it changes; by their names where they are not. */

#pragma once
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <string.h>
#include <numpy/arrayobject.h>
#include "objects.h"

/* Fields of tensors, storages and dtypes. */
enum {
    F_NP, F_LAYOUT, F_STORAGE, F_DTYPE, F_RG, F_NODE, F_INDEX, F_BASE, F_STALE, F_MARKED, F_COUNTER,
    F_INHERITS, F_ACCUMULATE, F_INFERENCE, F_VERSION, F_SAVED, F_CATEGORY, F_ALL
};
static const char *const fields_names[] = {
    "_np", "_skimp_layout", "_storage", "_dtype", "_rg", "_skimp_node", "_skimp_index", "_base",
    "_skimp_stale", "_skimp_marked", "_skimp_counter", "_skimp_inherits", "_skimp_accumulate",
    "_skimp_inference", "version", "saved", "category",
};
/* Slots of nodes; the last two are of those of ops, and of leaves. */
enum {
    N_EDGES, N_SAVED, N_NUMBER, N_OUTPUTS, N_SHAPE, N_DTYPE, N_CODE, N_LASTI, N_EXTRA, N_PLAN,
    N_SPANS, N_VARIABLE, N_ALL
};
static const char *const fields_slots[] = {
    "_skimp_edges", "_skimp_saved", "_skimp_number", "_skimp_outputs", "_skimp_shape",
    "_skimp_dtype", "_skimp_code", "_skimp_lasti", "_skimp_extra", "_skimp_plan", "_skimp_spans",
    "variable",
};
/* What is given once (`nodes_bind`). */
enum {
    G_TENSOR, G_OF_OP, G_OF_LEAF, G_GUARDED, G_NUMBER, G_NODE_OF_VIEW, G_KEEP, G_META_OF, G_GHOST,
    G_OUTSIDE, G_INSIDE, G_USERS, G_NUMBERS, G_FRAME, G_AGAIN_FROM, G_ALL
};
#define FIELDS_TYPES 16

typedef struct {
    PyTypeObject *type;
    unsigned int tag;
    Py_ssize_t at[F_ALL];
} FieldsType;

static PyObject *fields_given, *fields_name[F_ALL];
static Py_ssize_t fields_at[N_ALL];
static FieldsType fields_types[FIELDS_TYPES];

#define GIVEN(which) PyTuple_GET_ITEM(fields_given, which)
#define SLOT(object, place) (*(PyObject **)((char *)(object) + (place)))
#define NODE(node, slot) SLOT(node, fields_at[slot])

/* Where instances of a type have a slot of this name; -1 where it is none. */
static Py_ssize_t fields_place(PyTypeObject *type, PyObject *name) {
    return objects_slot(_PyType_Lookup(type, name));
}

/* The places of a type's fields, which are looked up again where the type has changed. */
static const Py_ssize_t *fields_of(PyTypeObject *type) {
    FieldsType *known = fields_types + ((size_t)type >> 6) % FIELDS_TYPES;
    int i;
    if (known->type == type && known->tag == type->tp_version_tag && known->tag != 0 &&
        PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG))
        return known->at;
    for (i = 0; i < F_ALL; i++) known->at[i] = fields_place(type, fields_name[i]);
    known->type = type;
    known->tag = type->tp_version_tag;
    return known->at;
}

static PyObject *fields_get(PyObject *x, int field) {
    Py_ssize_t at = fields_of(Py_TYPE(x))[field];
    if (at > 0 && SLOT(x, at) != NULL) return Py_NewRef(SLOT(x, at));
    return PyObject_GetAttr(x, fields_name[field]);
}

static int fields_set(PyObject *x, int field, PyObject *value) {
    Py_ssize_t at = fields_of(Py_TYPE(x))[field];
    PyObject *before;
    if (at <= 0) return PyObject_SetAttr(x, fields_name[field], value);
    before = SLOT(x, at);
    SLOT(x, at) = Py_NewRef(value);
    Py_XDECREF(before);
    return 0;
}

/* Whether a field is true; -1 with an error. */
static int fields_is(PyObject *x, int field) {
    PyObject *found = fields_get(x, field);
    int is = found == NULL ? -1 : PyObject_IsTrue(found);
    Py_XDECREF(found);
    return is;
}

/* Whether a field is None; -1 with an error. */
static int fields_lacks(PyObject *x, int field) {
    PyObject *found = fields_get(x, field);
    int lacks = found == NULL ? -1 : found == Py_None;
    Py_XDECREF(found);
    return lacks;
}

static inline int fields_is_tensor(PyObject *x) {
    PyTypeObject *tensor = (PyTypeObject *)GIVEN(G_TENSOR);
    return Py_TYPE(x) == tensor || PyType_IsSubtype(Py_TYPE(x), tensor);
}

static inline PyObject *fields_next(void) {
    PyObject *number = GIVEN(G_NUMBER);
    return Py_TYPE(number)->tp_iternext(number);
}

/* The shape as a plain tuple. */
static PyObject *fields_shape(PyObject *x) {
    PyObject *a = fields_get(x, F_NP), *shape, *layout;
    if (a == NULL) return NULL;
    if (PyArray_Check(a)) {
        int i, n = PyArray_NDIM((PyArrayObject *)a);
        shape = PyTuple_New(n);
        for (i = 0; shape != NULL && i < n; i++) {
            PyObject *size = PyLong_FromSsize_t(PyArray_DIM((PyArrayObject *)a, i));
            if (size == NULL) Py_CLEAR(shape);
            else PyTuple_SET_ITEM(shape, i, size);
        }
    } else {
        layout = fields_get(x, F_LAYOUT);
        shape = layout == NULL ? NULL : PyObject_GetAttrString(layout, "shape");
        Py_XDECREF(layout);
    }
    Py_DECREF(a);
    return shape;
}

/* Fill a slot of a new node; -1 with an error, which `value` is NULL for. */
static inline int fields_fill(PyObject *node, int slot, PyObject *value) {
    NODE(node, slot) = value;
    return value == NULL ? -1 : 0;
}

/* Be told what is given once; -1 with an error. */
static int fields_bind(PyObject *given) {
    PyObject *name;
    int i;
    if (PyArray_API == NULL && _import_array() < 0) return -1;
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != G_ALL) {
        PyErr_Format(PyExc_TypeError, "expected a tuple of %d", G_ALL);
        return -1;
    }
    for (i = 0; i < F_ALL; i++)
        if (fields_name[i] == NULL &&
            (fields_name[i] = PyUnicode_InternFromString(fields_names[i])) == NULL)
            return -1;
    for (i = 0; i < N_ALL; i++) {
        PyObject *type = PyTuple_GET_ITEM(given, i == N_VARIABLE ? G_OF_LEAF : G_OF_OP);
        if ((name = PyUnicode_InternFromString(fields_slots[i])) == NULL) return -1;
        fields_at[i] = fields_place((PyTypeObject *)type, name);
        Py_DECREF(name);
        if (fields_at[i] < 0) {
            PyErr_Format(PyExc_TypeError, "%s is no slot", fields_slots[i]);
            return -1;
        }
    }
    memset(fields_types, 0, sizeof(fields_types));
    Py_XSETREF(fields_given, Py_NewRef(given));
    return 0;
}
