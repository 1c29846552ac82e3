/* What is asked of an array, or of the frames that call, several times for each op: each is an
   attribute that CPython looks up anew, and often an object, where C reads a field. */

#pragma once
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <string.h>
#include <numpy/arrayobject.h>

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

#define OBJECTS_FAST(name) \
    {#name, (PyCFunction)(void (*)(void))objects_##name, METH_FASTCALL, NULL}
#define OBJECTS_ONE(name) {#name, objects_##name, METH_O, NULL}

static PyMethodDef objects_methods[] = {
    OBJECTS_ONE(address), OBJECTS_FAST(addresses), OBJECTS_ONE(dense),
    OBJECTS_FAST(floats), OBJECTS_FAST(caller),
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
