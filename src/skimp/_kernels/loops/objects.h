/* What is asked of an array, or of the frames that call, several times for each op: each is an
   attribute that CPython looks up anew, and often an object, where C reads a field. */

#pragma once
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <string.h>
#include <structmember.h>
#include <numpy/arrayobject.h>

/* Where instances have the slot of a class's descriptor; -1: it is none. */
static inline Py_ssize_t objects_slot(PyObject *found) {
    PyMemberDef *member;
    if (found == NULL || !Py_IS_TYPE(found, &PyMemberDescr_Type)) return -1;
    member = ((PyMemberDescrObject *)found)->d_member;
    return member->type == T_OBJECT_EX ? member->offset : -1;
}

static PyArrayObject *objects_array(PyObject *a) {
    if (PyArray_Check(a)) return (PyArrayObject *)a;
    PyErr_Format(PyExc_TypeError, "expected an array, not %s", Py_TYPE(a)->tp_name);
    return NULL;
}

static PyObject *objects_address(PyObject *self, PyObject *a) {
    PyArrayObject *array = objects_array(a);
    return array == NULL ? NULL : PyLong_FromVoidPtr(PyArray_DATA(array));
}

static PyObject *objects_addresses(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyObject *found = PyList_New(given);
    Py_ssize_t i;
    for (i = 0; found != NULL && i < given; i++) {
        PyObject *at = objects_address(self, args[i]);
        if (at == NULL) Py_CLEAR(found);
        else PyList_SET_ITEM(found, i, at);
    }
    return found;
}

static PyObject *objects_dense(PyObject *self, PyObject *a) {
    PyArrayObject *array = objects_array(a);
    return array == NULL ? NULL : PyBool_FromLong(PyArray_IS_C_CONTIGUOUS(array));
}

static PyObject *objects_floats(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    Py_ssize_t i;
    for (i = 0; i < given; i++) {
        PyArrayObject *array = objects_array(args[i]);
        if (array == NULL) return NULL;
        if (PyArray_TYPE(array) != NPY_FLOAT || !PyArray_IS_C_CONTIGUOUS(array)) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

/* (code, place) of a frame. */
static PyObject *objects_place(PyFrameObject *frame, PyCodeObject *code) {
    PyObject *found, *at = PyLong_FromLong(PyFrame_GetLasti(frame));
    if (at == NULL) return NULL;
    found = PyTuple_Pack(2, (PyObject *)code, at);
    Py_DECREF(at);
    return found;
}

static PyObject *objects_caller(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyFrameObject *frame, *back;
    PyObject *found = NULL;
    int known = 0; /* whether a set has the file; below 0 with an error */
    if (given != 3 || !PyFrame_Check(args[0]) || !PySet_Check(args[1]) || !PySet_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "expected a frame and two sets");
        return NULL;
    }
    for (frame = (PyFrameObject *)Py_NewRef(args[0]); frame != NULL; frame = back) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        back = NULL;
        known = PySet_Contains(args[2], code->co_filename); /* most are called by the user */
        if (known > 0) {
            found = objects_place(frame, code);
            known = found == NULL ? -1 : 1;
        } else if (known == 0) {
            known = PySet_Contains(args[1], code->co_filename);
            if (known > 0) back = PyFrame_GetBack(frame);
        }
        Py_DECREF(code);
        Py_DECREF(frame);
    }
    return known < 0 || found != NULL ? found : Py_NewRef(Py_None);
}

/* An array on the memory of one, with these sizes and strides. */
static PyObject *objects_view(PyArrayObject *of, int ndim, npy_intp *shape, npy_intp *strides,
                              PyObject *base) {
    PyArray_Descr *descr = PyArray_DESCR(of);
    PyObject *made;
    Py_INCREF(descr);
    made = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides, PyArray_DATA(of),
                                PyArray_FLAGS(of) & NPY_ARRAY_WRITEABLE, NULL);
    if (made == NULL) return NULL;
    Py_INCREF(base);
    if (PyArray_SetBaseObject((PyArrayObject *)made, base) == 0) return made;
    Py_DECREF(made);
    return NULL;
}

static PyObject *objects_kept_by(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyArrayObject *a;
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "expected an array and its base");
        return NULL;
    }
    if ((a = objects_array(args[0])) == NULL) return NULL;
    return objects_view(a, PyArray_NDIM(a), PyArray_DIMS(a), PyArray_STRIDES(a), args[1]);
}

static PyObject *objects_expanded(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS], most, size = 1;
    PyArrayObject *a;
    PyObject *sizes;
    Py_ssize_t ndim, own, i;
    if (given != 3 || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "expected an array, sizes, and how many elements at most");
        return NULL;
    }
    if ((a = objects_array(args[0])) == NULL) return NULL;
    most = PyLong_AsSsize_t(args[2]);
    if (most == -1 && PyErr_Occurred()) return NULL;
    sizes = args[1];
    if (PyTuple_GET_SIZE(sizes) == 1 && PyTuple_Check(PyTuple_GET_ITEM(sizes, 0)))
        sizes = PyTuple_GET_ITEM(sizes, 0);
    ndim = PyTuple_GET_SIZE(sizes);
    own = PyArray_NDIM(a);
    if (!PyArray_IS_C_CONTIGUOUS(a) || ndim == 0 || ndim < own || ndim > NPY_MAXDIMS)
        Py_RETURN_NONE;
    for (i = 0; i < ndim; i++) {
        PyObject *item = PyTuple_GET_ITEM(sizes, i);
        int overflow = 0;
        npy_intp n = PyLong_CheckExact(item) ? PyLong_AsLongAndOverflow(item, &overflow) : 0;
        npy_intp have = i < ndim - own ? 1 : PyArray_DIM(a, i - (ndim - own));
        if (n == -1 && !overflow && i >= ndim - own) n = have;
        if (n < 1 || overflow || n > most / size) Py_RETURN_NONE;
        if (n == have && i >= ndim - own) strides[i] = PyArray_STRIDE(a, i - (ndim - own));
        else if (have == 1) strides[i] = 0;
        else Py_RETURN_NONE;
        shape[i] = n;
        size *= n;
    }
    if (size >= most) Py_RETURN_NONE;
    return objects_view(a, (int)ndim, shape, strides, args[0]);
}

#define OBJECTS_FAST(name) \
    {#name, (PyCFunction)(void (*)(void))objects_##name, METH_FASTCALL, NULL}
#define OBJECTS_ONE(name) {#name, objects_##name, METH_O, NULL}

static PyMethodDef objects_methods[] = {
    OBJECTS_ONE(address), OBJECTS_FAST(addresses), OBJECTS_ONE(dense),
    OBJECTS_FAST(floats), OBJECTS_FAST(caller), OBJECTS_FAST(kept_by), OBJECTS_FAST(expanded),
};

/* The function of C of this name. */
static PyObject *objects_function(PyObject *name) {
    size_t i;
    if (PyArray_API == NULL && _import_array() < 0) return NULL;
    for (i = 0; i < sizeof(objects_methods) / sizeof(objects_methods[0]); i++)
        if (PyUnicode_CompareWithASCIIString(name, objects_methods[i].ml_name) == 0)
            return PyCFunction_New(objects_methods + i, NULL);
    PyErr_SetObject(PyExc_KeyError, name);
    return NULL;
}
