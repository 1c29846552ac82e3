/* Calls and attributes of modules, by the slots of their classes. CPython writes such a slot anew
   where a class, or one that it inherits from, is given another `__call__`, `__getattr__` or
   `__getattribute__`: so what a program puts there later is what runs. Later Pythons look for
   attributes that are not there without an exception, and remember the others. */

#include <Python.h>

#define SLOTS_MOST 8 /* arguments by position; calls of more are made in Python */
#define SLOTS_HOOKS 4
#define SLOTS_TABLES 3

static PyObject *slots_call = NULL;      /* `__call__` in Python */
static PyObject *slots_attribute = NULL; /* `__getattr__` in Python */
static PyObject *slots_shared = NULL;    /* the hooks of all modules: a tuple of dicts */
static PyObject *slots_hooks[SLOTS_HOOKS], *slots_tables[SLOTS_TABLES], *slots_forward;

#if PY_VERSION_HEX < 0x030C0000

/* A module's own dict, borrowed; NULL without one. */
static PyObject *slots_own(PyObject *self) {
    PyObject **found = _PyObject_GetDictPtr(self);
    return found == NULL ? NULL : *found;
}

/* Whether no hook is to be called; below 0 with an error. */
static int slots_bare(PyObject *own) {
    Py_ssize_t i;
    for (i = 0; i < PyTuple_GET_SIZE(slots_shared); i++)
        if (PyDict_GET_SIZE(PyTuple_GET_ITEM(slots_shared, i))) return 0;
    for (i = 0; i < SLOTS_HOOKS; i++) {
        PyObject *hooks = PyDict_GetItemWithError(own, slots_hooks[i]);
        if (hooks == NULL) return PyErr_Occurred() ? -1 : 0;
        if (!PyDict_Check(hooks) || PyDict_GET_SIZE(hooks)) return 0;
    }
    return 1;
}

static PyObject *slots_found(PyObject *self, PyObject *name) {
    PyObject *own, *found = _PyObject_GenericGetAttrWithDict(self, name, NULL, 1);
    int i;
    if (found != NULL || PyErr_Occurred()) return found;
    own = slots_own(self);
    for (i = 0; own != NULL && i < SLOTS_TABLES; i++) {
        PyObject *table = PyDict_GetItemWithError(own, slots_tables[i]);
        if (table == NULL && PyErr_Occurred()) return NULL;
        if (table == NULL) continue;
        if (!PyDict_CheckExact(table)) break; /* Python asks it */
        found = PyDict_GetItemWithError(table, name);
        if (found != NULL) return Py_NewRef(found);
        if (PyErr_Occurred()) return NULL;
    }
    return PyObject_CallFunctionObjArgs(slots_attribute, self, name, NULL);
}

static PyObject *slots_called(PyObject *self, PyObject *args, PyObject *words) {
    PyObject *given[SLOTS_MOST + 1], *found, *forward, *own = slots_own(self);
    Py_ssize_t i, count = PyTuple_GET_SIZE(args);
    int bare = own == NULL ? 0 : slots_bare(own);
    if (bare < 0) return NULL;
    if (!bare) { /* in Python */
        PyObject *method = PyMethod_New(slots_call, self);
        if (method == NULL) return NULL;
        found = PyObject_Call(method, args, words);
        Py_DECREF(method);
        return found;
    }
    forward = _PyType_Lookup(Py_TYPE(self), slots_forward);
    if (forward != NULL && PyFunction_Check(forward) && count <= SLOTS_MOST &&
        Py_TYPE(self)->tp_getattro == slots_found) { /* else the class is asked for it */
        PyObject *instead = PyDict_GetItemWithError(own, slots_forward);
        if (instead == NULL) {
            if (PyErr_Occurred()) return NULL;
            given[0] = self;
            for (i = 0; i < count; i++) given[i + 1] = PyTuple_GET_ITEM(args, i);
            Py_INCREF(forward);
            found = PyObject_VectorcallDict(forward, given, count + 1, words);
            Py_DECREF(forward);
            return found;
        }
    }
    forward = PyObject_GetAttr(self, slots_forward);
    if (forward == NULL) return NULL;
    found = PyObject_Call(forward, args, words);
    Py_DECREF(forward);
    return found;
}

/* What a class has under this name. */
static PyObject *slots_of(PyTypeObject *kind, const char *text) {
    PyObject *name = PyUnicode_InternFromString(text), *found;
    if (name == NULL) return NULL;
    found = _PyType_Lookup(kind, name);
    Py_DECREF(name);
    return found;
}

#endif

static PyObject *slots_prepare(PyObject *call, PyObject *attribute, PyObject *shared) {
    static const char *hooks[SLOTS_HOOKS] = {"_backward_hooks", "_backward_pre_hooks",
                                             "_forward_hooks", "_forward_pre_hooks"};
    static const char *tables[SLOTS_TABLES] = {"_parameters", "_modules", "_buffers"};
    int i;
    for (i = 0; i < SLOTS_HOOKS; i++)
        if ((slots_hooks[i] = PyUnicode_InternFromString(hooks[i])) == NULL) return NULL;
    for (i = 0; i < SLOTS_TABLES; i++)
        if ((slots_tables[i] = PyUnicode_InternFromString(tables[i])) == NULL) return NULL;
    if ((slots_forward = PyUnicode_InternFromString("forward")) == NULL) return NULL;
    for (i = 0; i < PyTuple_GET_SIZE(shared); i++)
        if (!PyDict_Check(PyTuple_GET_ITEM(shared, i))) {
            PyErr_SetString(PyExc_TypeError, "expected a tuple of dicts");
            return NULL;
        }
    Py_XSETREF(slots_call, Py_NewRef(call));
    Py_XSETREF(slots_attribute, Py_NewRef(attribute));
    Py_XSETREF(slots_shared, Py_NewRef(shared));
    return Py_NewRef(Py_None);
}

static PyObject *slots_fill(PyObject *kind) {
    if (!PyType_Check(kind)) {
        PyErr_Format(PyExc_TypeError, "expected a class, not %s", Py_TYPE(kind)->tp_name);
        return NULL;
    }
#if PY_VERSION_HEX < 0x030C0000
    PyTypeObject *cls = (PyTypeObject *)kind;
    if (slots_call == NULL || !PyType_HasFeature(cls, Py_TPFLAGS_HEAPTYPE)) Py_RETURN_NONE;
    if (slots_of(cls, "__call__") == slots_call) cls->tp_call = slots_called;
    if (slots_of(cls, "__getattr__") == slots_attribute &&
        slots_of(cls, "__getattribute__") == slots_of(&PyBaseObject_Type, "__getattribute__"))
        cls->tp_getattro = slots_found;
#endif
    Py_RETURN_NONE;
}
