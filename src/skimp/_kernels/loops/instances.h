/* Tensors and storages as C makes them: each by its slots, whose places are asked of the classes
   once. What is rare (large results, other classes, marks, who is told) is left to the functions of
   Python that these stand for, so that each of those still says what is done. */

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>

#include "objects.h"

enum { T_ARRAY, T_STORAGE, T_DTYPE, T_LAYOUT, T_TURNED, T_MARKED, T_FILLED };
enum { S_BLOCK, S_NBYTES, S_DEFERRED, S_FILLED };
enum { H_MADE, H_TOTAL, H_FREED, H_DROPPED, H_CEILING, H_WATCHED, H_KEPT, H_ALL };
#define INSTANCES_SLOTS 24

typedef struct {
    Py_ssize_t at;
    PyObject *value;
} InstancesSlot;

static struct {
    PyTypeObject *tensor, *storage;
    Py_ssize_t of_tensor[T_FILLED], of_storage[S_FILLED], of_host[H_ALL], small_below, anywhere;
    InstancesSlot tensors[INSTANCES_SLOTS], storages[INSTANCES_SLOTS];
    int tensors_filled, storages_filled;
    PyObject *ordinary, *host, *config, *marks;
    PyObject *adopt, *ends, *zero; /* the int: there is but one */
    PyObject *rise, *of_thread, *here_name, *inference, *counter;
} instances;

#define INSTANCES_AT(object, place) (*(PyObject **)((char *)(object) + (place)))
#define TENSOR(t, slot) INSTANCES_AT(t, instances.of_tensor[slot])
#define STORAGE(s, slot) INSTANCES_AT(s, instances.of_storage[slot])
#define HOST(slot) INSTANCES_AT(instances.host, instances.of_host[slot])

/* Where instances of a class have a slot; -1 with an error. */
static Py_ssize_t instances_place(PyObject *type, const char *name) {
    PyObject *found = PyObject_GetAttrString(type, name);
    Py_ssize_t at;
    if (found == NULL) return -1;
    at = objects_slot(found);
    Py_DECREF(found);
    if (at < 0) PyErr_Format(PyExc_TypeError, "%s is no slot", name);
    return at;
}

static int instances_places(PyObject *type, Py_ssize_t *to, const char *const *names) {
    for (; *names != NULL; names++, to++)
        if ((*to = instances_place(type, *names)) < 0) return -1;
    return 0;
}

/* The slots of a class that begin with a value, from a dict; how many, or -1 with an error. */
static int instances_defaults(PyObject *type, PyObject *values, InstancesSlot *to) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    int filled = 0;
    while (PyDict_Next(values, &at, &name, &value)) {
        const char *text = PyUnicode_AsUTF8(name);
        if (filled == INSTANCES_SLOTS || text == NULL) return -1;
        if ((to[filled].at = instances_place(type, text)) < 0) return -1;
        to[filled++].value = Py_NewRef(value);
    }
    return filled;
}

static inline void instances_put(PyObject *object, Py_ssize_t place, PyObject *value) {
    PyObject *before = INSTANCES_AT(object, place);
    INSTANCES_AT(object, place) = value;
    Py_XDECREF(before);
}

static PyObject *instances_filled(PyTypeObject *type, const InstancesSlot *slots, int filled) {
    PyObject *made = type->tp_alloc(type, 0);
    int i;
    if (made == NULL) return NULL;
    for (i = 0; i < filled; i++) INSTANCES_AT(made, slots[i].at) = Py_NewRef(slots[i].value);
    return made;
}

static inline PyObject *instances_tensor(PyTypeObject *type) {
    return instances_filled(type, instances.tensors, instances.tensors_filled);
}

/* Whether some thread is in inference mode. */
static inline int instances_anywhere(void) {
    return INSTANCES_AT(instances.marks, instances.anywhere) != instances.zero &&
           PyObject_IsTrue(INSTANCES_AT(instances.marks, instances.anywhere)) == 1;
}

/* Mark a new tensor where this thread is in inference mode. */
static int instances_marked(PyObject *t) {
    PyObject *thread, *here;
    int inference;
    if (!instances_anywhere()) return 0;
    thread = PyObject_GetAttr(instances.marks, instances.of_thread);
    here = thread == NULL ? NULL : PyObject_GetAttr(thread, instances.here_name);
    Py_XDECREF(thread);
    inference = here == NULL ? -1 : PyObject_IsTrue(here);
    Py_XDECREF(here);
    if (inference <= 0) return inference;
    instances_put(t, instances.of_tensor[T_MARKED], Py_NewRef(Py_True));
    return PyObject_SetAttr(t, instances.inference, Py_True);
}

static inline PyObject *instances_plus(PyObject *number, long long more) {
    return PyLong_FromLongLong(PyLong_AsLongLong(number) + more);
}

/* Count an allocation for a storage; -1 with an error, and then nothing is counted. */
static int instances_count(PyObject *s, long long nbytes) {
    PyObject *made = instances_plus(HOST(H_MADE), 1);
    PyObject *total = instances_plus(HOST(H_TOTAL), nbytes);
    PyObject *counted = PyLong_FromLongLong(nbytes), *told;
    long long live;
    if (made == NULL || total == NULL || counted == NULL) {
        Py_XDECREF(made);
        Py_XDECREF(total);
        Py_XDECREF(counted);
        return -1;
    }
    instances_put(instances.host, instances.of_host[H_MADE], made);
    instances_put(instances.host, instances.of_host[H_TOTAL], total);
    instances_put(s, instances.of_storage[S_NBYTES], counted);
    live = PyLong_AsLongLong(total) - PyLong_AsLongLong(HOST(H_FREED));
    if (live <= PyLong_AsLongLong(HOST(H_CEILING))) return 0;
    Py_INCREF(counted); /* the storage may lose it meanwhile */
    told = PyObject_CallMethodObjArgs(instances.host, instances.rise, counted, s, NULL);
    Py_DECREF(counted);
    Py_XDECREF(told);
    return told == NULL ? -1 : 0;
}

static PyObject *instances_fresh(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyObject *array, *s, *t;
    long long nbytes;
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "expected an array and a dtype");
        return NULL;
    }
    if (PyArray_CheckExact(args[0])) array = Py_NewRef(args[0]);
    else array = PyArray_FromAny(args[0], NULL, 0, 0, NPY_ARRAY_ENSUREARRAY, NULL);
    if (array == NULL) return NULL;
    nbytes = PyArray_NBYTES((PyArrayObject *)array);
    if (nbytes >= PyLong_AsLongLong(HOST(H_KEPT)) ||
        INSTANCES_AT(instances.config, instances.small_below) == instances.zero) {
        PyObject *words[2] = {array, args[1]};
        t = PyObject_Vectorcall(instances.adopt, words, 2, NULL);
        Py_DECREF(array);
        return t;
    }
    /* both before anything is counted: to make one may run the collector, and so anything */
    t = instances_tensor(instances.tensor);
    s = t == NULL ? NULL
                  : instances_filled(instances.storage, instances.storages,
                                     instances.storages_filled);
    if (s == NULL) {
        Py_XDECREF(t);
        Py_DECREF(array);
        return NULL;
    }
    instances_put(s, instances.of_storage[S_BLOCK], Py_NewRef(array));
    TENSOR(t, T_STORAGE) = s;
    TENSOR(t, T_DTYPE) = Py_NewRef(args[1]);
    instances_put(t, instances.of_tensor[T_ARRAY], array);
    if (instances_count(s, nbytes) < 0 || instances_marked(t) < 0) Py_CLEAR(t);
    return t;
}

static PyObject *instances_blank(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyTypeObject *type = (PyTypeObject *)args[0];
    if (given != 1 || !PyType_Check(type) || !PyType_IsSubtype(type, instances.tensor)) {
        PyErr_SetString(PyExc_TypeError, "expected a class of tensors");
        return NULL;
    }
    return instances_tensor(type);
}

static PyObject *instances_bare(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyTypeObject *type = given ? (PyTypeObject *)args[0] : instances.storage;
    if (given > 1 || !PyType_Check(type) || !PyType_IsSubtype(type, instances.storage)) {
        PyErr_SetString(PyExc_TypeError, "expected a class of storages");
        return NULL;
    }
    return instances_filled(type, instances.storages, instances.storages_filled);
}

/* Whether all that an op asks of a tensor is in its slots, of which a program may empty any. */
static inline int instances_plain(PyObject *t) {
    PyTypeObject *type = Py_TYPE(t);
    int i;
    if (type != instances.tensor && PySet_Contains(instances.ordinary, (PyObject *)type) != 1)
        return 0;
    for (i = 0; i < T_FILLED; i++)
        if (TENSOR(t, i) == NULL) return 0;
    return 1;
}

/* Another tensor on the storage of `t`, of its dtype, that has no layout and no array yet. */
static inline PyObject *instances_beside(PyObject *t, PyTypeObject *type) {
    PyObject *new = instances_tensor(type);
    if (new == NULL) return NULL;
    TENSOR(new, T_STORAGE) = Py_NewRef(TENSOR(t, T_STORAGE));
    TENSOR(new, T_DTYPE) = Py_NewRef(TENSOR(t, T_DTYPE));
    return new;
}

static PyObject *instances_ghost(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyTypeObject *type = given == 2 ? (PyTypeObject *)args[1] : instances.tensor;
    PyObject *t = args[0], *new;
    if (given < 1 || given > 2 || !PyType_Check(type) ||
        !PyType_IsSubtype(type, instances.tensor)) {
        PyErr_SetString(PyExc_TypeError, "expected a tensor, and perhaps a class");
        return NULL;
    }
    if (!instances_plain(t) || TENSOR(t, T_MARKED) != Py_False)
        return PyObject_Vectorcall(self, args, (size_t)given, NULL);
    new = instances_beside(t, type);
    if (new == NULL) return NULL;
    instances_put(new, instances.of_tensor[T_ARRAY], Py_NewRef(TENSOR(t, T_ARRAY)));
    instances_put(new, instances.of_tensor[T_LAYOUT], Py_NewRef(TENSOR(t, T_LAYOUT)));
    instances_put(new, instances.of_tensor[T_TURNED], Py_NewRef(TENSOR(t, T_TURNED)));
    return new;
}

static PyObject *instances_on_array(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyArrayObject *a = given == 2 ? (PyArrayObject *)args[1] : NULL;
    PyObject *t = args[0], *new, *counter;
    if (a == NULL || !PyArray_Check(a)) {
        PyErr_SetString(PyExc_TypeError, "expected a tensor and an array");
        return NULL;
    }
    if (!instances_plain(t)) return PyObject_Vectorcall(self, args, 2, NULL);
    if (TENSOR(t, T_MARKED) != Py_False) {
        counter = PyObject_GetAttr(t, instances.counter);
        Py_XDECREF(counter); /* the tensor has it */
        if (counter == NULL) return NULL;
        if (counter != Py_None) return PyObject_Vectorcall(self, args, 2, NULL);
    }
    new = instances_beside(t, instances.tensor);
    if (new == NULL) return NULL;
    instances_put(new, instances.of_tensor[T_ARRAY], Py_NewRef((PyObject *)a));
    if (PyArray_NDIM(a) > 1 && !PyArray_IS_C_CONTIGUOUS(a))
        instances_put(new, instances.of_tensor[T_TURNED], Py_NewRef(Py_True));
    return new;
}

static PyObject *instances_wrap(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyTypeObject *type = given == 4 ? (PyTypeObject *)args[3] : instances.tensor;
    PyObject *t;
    if (given < 3 || given > 4 || !PyType_Check(type) ||
        !PyType_IsSubtype(type, instances.tensor)) {
        PyErr_SetString(PyExc_TypeError, "expected a storage, a layout, a dtype, and a class");
        return NULL;
    }
    t = instances_tensor(type);
    if (t == NULL) return NULL;
    TENSOR(t, T_STORAGE) = Py_NewRef(args[0]);
    TENSOR(t, T_DTYPE) = Py_NewRef(args[2]);
    instances_put(t, instances.of_tensor[T_LAYOUT], Py_NewRef(args[1]));
    if (instances_marked(t) < 0) Py_CLEAR(t);
    return t;
}

static PyObject *instances_alias(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyObject *new;
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "expected a tensor and a layout");
        return NULL;
    }
    if (!instances_plain(args[0]) || TENSOR(args[0], T_MARKED) != Py_False || instances_anywhere())
        return PyObject_Vectorcall(self, args, 2, NULL);
    new = instances_beside(args[0], instances.tensor);
    if (new != NULL) instances_put(new, instances.of_tensor[T_LAYOUT], Py_NewRef(args[1]));
    return new;
}

/* A storage's end: what is counted for it is free. */
static PyObject *instances_end(PyObject *s, PyObject *unused) {
    PyObject *counted = STORAGE(s, S_NBYTES), *dropped, *freed;
    long long nbytes = counted == NULL ? -1 : PyLong_AsLongLong(counted);
    if (nbytes < 0 && (counted == NULL || STORAGE(s, S_DEFERRED) == Py_None)) Py_RETURN_NONE;
    if (nbytes < 0 || HOST(H_WATCHED) != Py_False) return PyObject_CallOneArg(instances.ends, s);
    dropped = instances_plus(HOST(H_DROPPED), 1);
    freed = instances_plus(HOST(H_FREED), nbytes);
    if (dropped == NULL || freed == NULL) {
        Py_XDECREF(dropped);
        Py_XDECREF(freed);
        return NULL;
    }
    instances_put(instances.host, instances.of_host[H_DROPPED], dropped);
    instances_put(instances.host, instances.of_host[H_FREED], freed);
    Py_RETURN_NONE;
}

#define INSTANCES_FAST(name) \
    {#name, (PyCFunction)(void (*)(void))instances_##name, METH_FASTCALL, NULL}

static PyMethodDef instances_methods[] = {
    INSTANCES_FAST(fresh), INSTANCES_FAST(blank), INSTANCES_FAST(bare), INSTANCES_FAST(wrap),
    INSTANCES_FAST(alias), INSTANCES_FAST(ghost), INSTANCES_FAST(on_array),
};
static PyMethodDef instances_end_method = {"__del__", instances_end, METH_NOARGS, NULL};

/* What stands for the functions of `general`, by their names, and for a storage's `__del__`.
   `given` has what they work on. */
static PyObject *instances_made(PyObject *given) {
    static const char *const of_tensor[] = {"_np", "_storage", "_dtype", "_skimp_layout",
                                            "_skimp_turned", "_skimp_marked", NULL};
    static const char *const of_storage[] = {"block", "nbytes", "deferred", NULL};
    static const char *const of_host[] = {"made", "total", "freed", "dropped", "ceiling",
                                          "watched", "kept_below", NULL};
    PyObject *tensor, *storage, *general, *found;
    size_t i;
    if (PyArray_API == NULL && _import_array() < 0) return NULL;
    tensor = PyDict_GetItemString(given, "Tensor");
    storage = PyDict_GetItemString(given, "Storage");
    general = PyDict_GetItemString(given, "general");
    instances.tensor = (PyTypeObject *)Py_NewRef(tensor);
    instances.storage = (PyTypeObject *)Py_NewRef(storage);
    instances.ordinary = Py_NewRef(PyDict_GetItemString(given, "ordinary"));
    instances.host = Py_NewRef(PyDict_GetItemString(given, "host"));
    instances.config = Py_NewRef(PyDict_GetItemString(given, "config"));
    instances.marks = Py_NewRef(PyDict_GetItemString(given, "marks"));
    instances.adopt = Py_NewRef(PyDict_GetItemString(given, "adopt"));
    instances.ends = PyObject_GetAttrString(storage, "__del__");
    instances.zero = PyLong_FromLong(0);
    instances.rise = PyUnicode_InternFromString("rise");
    instances.of_thread = PyUnicode_InternFromString("of_thread");
    instances.here_name = PyUnicode_InternFromString("here");
    instances.inference = PyUnicode_InternFromString("_skimp_inference");
    instances.counter = PyUnicode_InternFromString("_skimp_counter");
    if (instances_places(tensor, instances.of_tensor, of_tensor) < 0 ||
        instances_places(storage, instances.of_storage, of_storage) < 0 ||
        instances_places((PyObject *)Py_TYPE(instances.host), instances.of_host, of_host) < 0)
        return NULL;
    instances.small_below =
        instances_place((PyObject *)Py_TYPE(instances.config), "small_below");
    instances.anywhere = instances_place((PyObject *)Py_TYPE(instances.marks), "anywhere");
    instances.tensors_filled = instances_defaults(
        tensor, PyDict_GetItemString(given, "tensors"), instances.tensors);
    instances.storages_filled = instances_defaults(
        storage, PyDict_GetItemString(given, "storages"), instances.storages);
    if (instances.small_below < 0 || instances.anywhere < 0 || instances.tensors_filled < 0 ||
        instances.storages_filled < 0 || PyErr_Occurred())
        return NULL;
    found = PyDict_New();
    for (i = 0; found != NULL && i < sizeof(instances_methods) / sizeof(PyMethodDef); i++) {
        const char *name = instances_methods[i].ml_name;
        PyObject *self = PyDict_GetItemString(general, name);
        PyObject *function = PyCFunction_New(instances_methods + i, self);
        if (function == NULL || PyDict_SetItemString(found, name, function) < 0) Py_CLEAR(found);
        Py_XDECREF(function);
    }
    if (found != NULL) {
        PyObject *end = PyDescr_NewMethod(instances.storage, &instances_end_method);
        if (end == NULL || PyDict_SetItemString(found, "__del__", end) < 0) Py_CLEAR(found);
        Py_XDECREF(end);
    }
    return found;
}
