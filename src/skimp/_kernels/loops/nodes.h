/* Records of ops: the node of a call, its edges, and what it keeps. What is written out as text
   for each op where nothing is compiled (`_engine/autograd/recorder.py`) is read here from a
   description: fields of tensors and nodes by their places, where they are slots, and by their
   names where they are not. What is rare is left to the functions of Python that it is given. */

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <string.h>
#include <numpy/arrayobject.h>
#include "objects.h"
#if PY_VERSION_HEX < 0x030C0000 /* CPython 3.11, whose frames are read without objects */
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <internal/pycore_frame.h>
#define NODES_FRAMES 1
#endif

/* Fields of tensors, storages and dtypes. */
enum {
    F_NP, F_LAYOUT, F_STORAGE, F_DTYPE, F_RG, F_NODE, F_INDEX, F_BASE, F_STALE, F_MARKED, F_COUNTER,
    F_INHERITS, F_ACCUMULATE, F_INFERENCE, F_VERSION, F_SAVED, F_CATEGORY, F_ALL
};
static const char *const nodes_names[] = {
    "_np", "_skimp_layout", "_storage", "_dtype", "_rg", "_skimp_node", "_skimp_index", "_base",
    "_skimp_stale", "_skimp_marked", "_skimp_counter", "_skimp_inherits", "_skimp_accumulate",
    "_skimp_inference", "version", "saved", "category",
};
/* Slots of nodes; the last two are of those of ops, and of leaves. */
enum {
    N_EDGES, N_SAVED, N_NUMBER, N_OUTPUTS, N_SHAPE, N_DTYPE, N_CODE, N_LASTI, N_EXTRA, N_PLAN,
    N_SPANS, N_VARIABLE, N_ALL
};
static const char *const nodes_slots[] = {
    "_skimp_edges", "_skimp_saved", "_skimp_number", "_skimp_outputs", "_skimp_shape",
    "_skimp_dtype", "_skimp_code", "_skimp_lasti", "_skimp_extra", "_skimp_plan", "_skimp_spans",
    "variable",
};
/* What is given once (`nodes_bind`). */
enum {
    G_TENSOR, G_OF_OP, G_OF_LEAF, G_GUARDED, G_NUMBER, G_NODE_OF_VIEW, G_KEEP, G_META_OF, G_GHOST,
    G_OUTSIDE, G_INSIDE, G_USERS, G_NUMBERS, G_FRAME, G_ALL
};
/* What describes a recording (`recorder.described`). */
enum { D_LOOPS, D_OTHERS, D_CLASS, D_HEAD, D_PLACES, D_NUMBERS, D_PLANS, D_ALL };
enum { P_BITS, P_PLAN, P_WANTED, P_NAMES, P_SLOTS, P_ALL }; /* a plan of it */
enum { S_KIND, S_META, S_CONSTANT };                        /* a slot of that */
enum { K_ARG, K_RESULT, K_ARG_META, K_RESULT_META, K_CONSTANT };
enum { WANTED = 1, LISTED = 2, SHAPE = 4, STRIDES = 8, KNOWN = 16, BARE = 32 };
#define NODES_TYPES 16
#define NODES_NAMES 24
#define NODES_NONE 255
#define NODES_AGAIN_FROM (1 << 15) /* bytes (`rematerialize.AGAIN_FROM`) */

typedef struct {
    PyTypeObject *type;
    unsigned int tag;
    Py_ssize_t at[F_ALL];
} NodesType;

static PyObject *nodes_given, *nodes_name[F_ALL], *nodes_one, *nodes_again;
static Py_ssize_t nodes_at[N_ALL];
static NodesType nodes_types[NODES_TYPES];

#define GIVEN(which) PyTuple_GET_ITEM(nodes_given, which)
#define SLOT(object, place) (*(PyObject **)((char *)(object) + (place)))
#define NODE(node, slot) SLOT(node, nodes_at[slot])

/* Where instances of a type have a slot of this name; -1 where it is none. */
static Py_ssize_t nodes_place(PyTypeObject *type, PyObject *name) {
    return objects_slot(_PyType_Lookup(type, name));
}

/* The places of a type's fields, which are looked up again where the type has changed. */
static const Py_ssize_t *nodes_fields(PyTypeObject *type) {
    NodesType *known = nodes_types + ((size_t)type >> 6) % NODES_TYPES;
    int i;
    if (known->type == type && known->tag == type->tp_version_tag && known->tag != 0 &&
        PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG))
        return known->at;
    for (i = 0; i < F_ALL; i++) known->at[i] = nodes_place(type, nodes_name[i]);
    known->type = type;
    known->tag = type->tp_version_tag;
    return known->at;
}

static PyObject *nodes_get(PyObject *x, int field) {
    Py_ssize_t at = nodes_fields(Py_TYPE(x))[field];
    if (at > 0 && SLOT(x, at) != NULL) return Py_NewRef(SLOT(x, at));
    return PyObject_GetAttr(x, nodes_name[field]);
}

static int nodes_set(PyObject *x, int field, PyObject *value) {
    Py_ssize_t at = nodes_fields(Py_TYPE(x))[field];
    PyObject *before;
    if (at <= 0) return PyObject_SetAttr(x, nodes_name[field], value);
    before = SLOT(x, at);
    SLOT(x, at) = Py_NewRef(value);
    Py_XDECREF(before);
    return 0;
}

/* Whether a field is true; -1 with an error. */
static int nodes_is(PyObject *x, int field) {
    PyObject *found = nodes_get(x, field);
    int is = found == NULL ? -1 : PyObject_IsTrue(found);
    Py_XDECREF(found);
    return is;
}

/* Whether a field is None; -1 with an error. */
static int nodes_lacks(PyObject *x, int field) {
    PyObject *found = nodes_get(x, field);
    int lacks = found == NULL ? -1 : found == Py_None;
    Py_XDECREF(found);
    return lacks;
}

static inline int nodes_is_tensor(PyObject *x) {
    PyTypeObject *tensor = (PyTypeObject *)GIVEN(G_TENSOR);
    return Py_TYPE(x) == tensor || PyType_IsSubtype(Py_TYPE(x), tensor);
}

static inline PyObject *nodes_next(void) {
    PyObject *number = GIVEN(G_NUMBER);
    return Py_TYPE(number)->tp_iternext(number);
}

/* The shape as a plain tuple. */
static PyObject *nodes_shape(PyObject *x) {
    PyObject *a = nodes_get(x, F_NP), *shape, *layout;
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
        layout = nodes_get(x, F_LAYOUT);
        shape = layout == NULL ? NULL : PyObject_GetAttrString(layout, "shape");
        Py_XDECREF(layout);
    }
    Py_DECREF(a);
    return shape;
}

/* Fill a slot of a new node; -1 with an error, which `value` is NULL for. */
static inline int nodes_fill(PyObject *node, int slot, PyObject *value) {
    NODE(node, slot) = value;
    return value == NULL ? -1 : 0;
}

/* A new node of a leaf, which refers to it weakly. */
static PyObject *nodes_leaf(PyObject *t) {
    PyTypeObject *type = (PyTypeObject *)GIVEN(G_OF_LEAF);
    PyObject *made = type->tp_alloc(type, 0), *ref;
    if (made == NULL) return NULL;
    NODE(made, N_VARIABLE) = Py_NewRef(t);
    NODE(made, N_EXTRA) = Py_NewRef(Py_None);
    ref = nodes_fill(made, N_NUMBER, nodes_next()) < 0 ||
                  nodes_fill(made, N_SHAPE, nodes_shape(t)) < 0 ||
                  nodes_fill(made, N_DTYPE, nodes_get(t, F_DTYPE)) < 0
              ? NULL
              : PyWeakref_NewRef(made, NULL);
    if (ref == NULL || nodes_set(t, F_ACCUMULATE, ref) < 0) Py_CLEAR(made);
    Py_XDECREF(ref);
    return made;
}

/* Where the gradient of a tensor goes: 1 with `*node`; 0: nowhere, as the view of a tensor that
   was made unrecorded; -1 with an error. */
static int nodes_end(PyObject *x, PyObject **node) {
    int plain = nodes_lacks(x, F_BASE);
    if (plain == 0) { /* a view, of what nobody wrote to? */
        PyObject *s = nodes_get(x, F_STORAGE), *version = NULL, *stale = NULL;
        if (s != NULL) version = nodes_get(s, F_VERSION);
        if (version != NULL) stale = nodes_get(x, F_STALE);
        plain = stale == NULL ? -1 : PyObject_RichCompareBool(stale, version, Py_EQ);
        Py_XDECREF(s);
        Py_XDECREF(version);
        Py_XDECREF(stale);
        if (plain > 0) plain = nodes_lacks(x, F_COUNTER);
    }
    if (plain < 0) return -1;
    *node = plain ? nodes_get(x, F_NODE) : PyObject_CallOneArg(GIVEN(G_NODE_OF_VIEW), x);
    if (*node == NULL) return -1;
    if (*node != Py_None) return 1;
    Py_CLEAR(*node);
    if ((plain = nodes_is(x, F_INHERITS)) != 0) return plain < 0 ? -1 : 0;
    if ((*node = nodes_get(x, F_ACCUMULATE)) == NULL) return -1;
    if (*node != Py_None) {
        PyObject *ref = *node;
        *node = PyObject_CallNoArgs(ref);
        Py_DECREF(ref);
        if (*node == NULL) return -1;
        if (*node != Py_None) return 1;
    }
    Py_DECREF(*node);
    return (*node = nodes_leaf(x)) == NULL ? -1 : 1;
}

/* Put an edge, or one to nowhere (`x` NULL), into a list or a tuple; as `nodes_end`. */
static int nodes_edge(PyObject *to, Py_ssize_t at, PyObject *x) {
    PyObject *node, *index;
    int found;
    if (x == NULL) {
        PyTuple_SET_ITEM(to, at, Py_NewRef(Py_None));
        PyTuple_SET_ITEM(to, at + 1, PyLong_FromLong(0));
        return 1;
    }
    if ((found = nodes_end(x, &node)) <= 0) return found;
    if ((index = nodes_get(x, F_INDEX)) == NULL) {
        Py_DECREF(node);
        return -1;
    }
    PyTuple_SET_ITEM(to, at, node);
    PyTuple_SET_ITEM(to, at + 1, index);
    return 1;
}

/* A list as it was when its edges were counted: what is run meanwhile may change it. */
static PyObject *nodes_listed(PyObject *x) {
    return PyTuple_CheckExact(x) ? Py_NewRef(x) : PySequence_Tuple(x);
}

/* Whether all types of a list's items are in a set. */
static int nodes_all(PyObject *x, PyObject *types) {
    Py_ssize_t i;
    int all = 1;
    for (i = 0; all > 0 && i < PySequence_Fast_GET_SIZE(x); i++)
        all = PySet_Contains(types, (PyObject *)Py_TYPE(PySequence_Fast_GET_ITEM(x, i)));
    return all;
}

/* What is known of a tensor by a slot, not saved. */
static PyObject *nodes_meta(PyObject *x, int flags, PyObject *meta) {
    PyObject *found, *layout;
    if (flags & SHAPE && flags & LISTED) {
        PyObject *items = nodes_listed(x);
        Py_ssize_t i, n;
        if (items == NULL) return NULL;
        for (i = 0, n = PyTuple_GET_SIZE(items); i < n; i++)
            if (Py_TYPE(PyTuple_GET_ITEM(items, i)) != (PyTypeObject *)GIVEN(G_TENSOR)) break;
        if (i == n) {
            found = PyList_New(n);
            for (i = 0; found != NULL && i < n; i++) {
                PyObject *shape = nodes_shape(PyTuple_GET_ITEM(items, i));
                if (shape == NULL) Py_CLEAR(found);
                else PyList_SET_ITEM(found, i, shape);
            }
            Py_DECREF(items);
            return found;
        }
        Py_DECREF(items);
    } else if (flags & SHAPE && flags & KNOWN) {
        return nodes_shape(x);
    } else if (flags & STRIDES && flags & KNOWN) { /* of a leaf it is there after the first time */
        if ((layout = nodes_get(x, F_LAYOUT)) == NULL) return NULL;
        found = layout == Py_None ? NULL : PyObject_GetAttrString(layout, "strides");
        Py_DECREF(layout);
        if (found != NULL || PyErr_Occurred()) return found;
    }
    return PyObject_CallFunctionObjArgs(GIVEN(G_META_OF), x, meta, NULL);
}

/* Put what `saving.save` says into a list of what is saved. */
static int nodes_keep(PyObject *saved, Py_ssize_t at, PyObject *node, PyObject *x, PyObject *of) {
    PyObject *pair = PyObject_CallFunctionObjArgs(GIVEN(G_KEEP), node, x, of, NULL);
    if (pair == NULL) return -1;
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        Py_DECREF(pair);
        PyErr_SetString(PyExc_TypeError, "expected what is saved, and its version");
        return -1;
    }
    PyList_SET_ITEM(saved, at, Py_NewRef(PyTuple_GET_ITEM(pair, 0)));
    PyList_SET_ITEM(saved, at + 1, Py_NewRef(PyTuple_GET_ITEM(pair, 1)));
    Py_DECREF(pair);
    return 0;
}

/* Whether what made `x`, or made what it is a view of, has a rule by which it is made again; -1 with
   an error. */
static int nodes_is_made_again(PyObject *x) {
    PyObject *a = nodes_get(x, F_NP), *base, *made_by;
    int few;
    if (a == NULL) return -1;
    few = !PyArray_Check(a) || PyArray_NBYTES((PyArrayObject *)a) < NODES_AGAIN_FROM;
    Py_DECREF(a);
    if (few) return 0;
    if ((base = nodes_get(x, F_BASE)) == NULL) return -1;
    made_by = nodes_get(base == Py_None ? x : base, F_NODE);
    Py_DECREF(base);
    if (made_by == NULL) return -1;
    few = _PyType_Lookup(Py_TYPE(made_by), nodes_again) != Py_True;
    Py_DECREF(made_by);
    return !few;
}

/* Save a tensor: a small plain one here, any other by `saving.save`; `of`: which result it is. */
static int nodes_save(PyObject *saved, Py_ssize_t at, PyObject *node, PyObject *x, PyObject *of,
                      int bare) {
    PyObject *s, *version, *kept;
    int general = nodes_lacks(x, F_NP);
    if (general == 0 && (general = nodes_is(x, F_MARKED)) > 0) {
        int plain = nodes_lacks(x, F_COUNTER);
        general = plain <= 0 ? 1 + 2 * plain : nodes_is(x, F_INFERENCE);
    }
    if (general == 0 && of == NULL) general = nodes_is_made_again(x);
    if (general != 0) return general < 0 ? -1 : nodes_keep(saved, at, node, x, of);
    if ((s = nodes_get(x, F_STORAGE)) == NULL) return -1;
    version = nodes_set(s, F_SAVED, Py_True) < 0 ? NULL : nodes_get(s, F_VERSION);
    Py_DECREF(s);
    if (version == NULL) return -1;
    kept = of != NULL && !bare ? PyObject_CallOneArg(GIVEN(G_GHOST), x) : Py_NewRef(x);
    if (kept == NULL) {
        Py_DECREF(version);
        return -1;
    }
    PyList_SET_ITEM(saved, at, kept);
    PyList_SET_ITEM(saved, at + 1, version);
    return 0;
}

/* Put what a slot holds of `x` into a list of what is saved. */
static int nodes_slot(PyObject *saved, Py_ssize_t at, PyObject *node, PyObject *x, int kind,
                      int flags, PyObject *slot) {
    PyObject *of = kind == K_RESULT ? PyTuple_GET_ITEM(slot, S_CONSTANT) : NULL, *value;
    if (kind == K_ARG_META || kind == K_RESULT_META) {
        value = nodes_meta(x, flags, PyTuple_GET_ITEM(slot, S_META));
    } else if (kind == K_CONSTANT) {
        value = Py_NewRef(PyTuple_GET_ITEM(slot, S_CONSTANT));
    } else if (kind == K_RESULT || nodes_is_tensor(x)) {
        return nodes_save(saved, at, node, x, of, flags & BARE);
    } else {
        if (PyList_Check(x) || PyTuple_Check(x)) {
            int numbers = nodes_all(x, GIVEN(G_NUMBERS));
            if (numbers <= 0) return numbers < 0 ? -1 : nodes_keep(saved, at, node, x, NULL);
        }
        value = Py_NewRef(x);
    }
    if (value == NULL) return -1;
    PyList_SET_ITEM(saved, at, value);
    PyList_SET_ITEM(saved, at + 1, Py_NewRef(Py_None));
    return 0;
}

#ifdef NODES_FRAMES
static _PyInterpreterFrame *nodes_whole(_PyInterpreterFrame *frame) {
    while (frame != NULL && _PyFrame_IsIncomplete(frame)) frame = frame->previous;
    return frame;
}

/* The user's code and the place in it: 1 if it was found in frames of known files; 0 if not; -1
   with an error. An object for a frame would be made anew in each call of a user's function. */
static int nodes_seen(PyObject *node) {
    _PyInterpreterFrame *frame = nodes_whole(PyThreadState_Get()->cframe->current_frame);
    int known = 1;
    while (known > 0 && frame != NULL && (frame = nodes_whole(frame->previous)) != NULL) {
        PyObject *name = frame->f_code->co_filename;
        if ((known = PySet_Contains(GIVEN(G_USERS), name)) > 0) {
            NODE(node, N_CODE) = Py_NewRef((PyObject *)frame->f_code);
            return nodes_fill(node, N_LASTI,
                              PyLong_FromLong(_PyInterpreterFrame_LASTI(frame) *
                                              (long)sizeof(_Py_CODEUNIT))) < 0
                       ? -1
                       : 1;
        }
        if (known == 0) known = PySet_Contains(GIVEN(G_INSIDE), name);
    }
    return known < 0 ? -1 : 0;
}
#else
#define nodes_seen(node) 0
#endif

/* The same, of any frames. */
static int nodes_line(PyObject *node) {
    int seen = nodes_seen(node);
    PyObject *frame, *found;
    if (seen != 0) return seen < 0 ? -1 : 0;
    if ((frame = PyObject_CallOneArg(GIVEN(G_FRAME), nodes_one)) == NULL) return -1;
    {
        PyObject *words[3] = {frame, GIVEN(G_INSIDE), GIVEN(G_USERS)};
        found = objects_caller(NULL, words, 3);
    }
    if (found == Py_None) {
        Py_DECREF(found);
        found = PyObject_CallOneArg(GIVEN(G_OUTSIDE), frame);
    }
    Py_DECREF(frame);
    if (found == NULL) return -1;
    NODE(node, N_CODE) = Py_NewRef(PyTuple_GET_ITEM(found, 0));
    NODE(node, N_LASTI) = Py_NewRef(PyTuple_GET_ITEM(found, 1));
    Py_DECREF(found);
    return 0;
}

/* Make the node the history of one output; -1 with an error. */
static int nodes_history(PyObject *out, PyObject *node, long index) {
    PyObject *number = PyLong_FromLong(index);
    int done = number == NULL || nodes_set(out, F_RG, Py_True) < 0 ||
                       nodes_set(out, F_NODE, node) < 0 || nodes_set(out, F_INDEX, number) < 0
                   ? -1
                   : 0;
    Py_XDECREF(number);
    return done;
}

/* Whether a tensor's type has derivatives; -1 with an error. */
static int nodes_differentiable(PyObject *t) {
    PyObject *dtype = nodes_get(t, F_DTYPE), *category;
    long found;
    if (dtype == NULL) return -1;
    category = nodes_get(dtype, F_CATEGORY);
    Py_DECREF(dtype);
    if (category == NULL) return -1;
    found = PyLong_AsLong(category);
    Py_DECREF(category);
    return found == -1 && PyErr_Occurred() ? -1 : found > 1;
}

/* The same for each output of a tuple, and what it is like. */
static int nodes_histories(PyObject *outs, PyObject *node, const unsigned char *unlike) {
    Py_ssize_t i, n = PyTuple_GET_SIZE(outs);
    PyObject *metas = PyTuple_New(n);
    for (i = 0; metas != NULL && i < n; i++) {
        PyObject *t = PyTuple_GET_ITEM(outs, i), *pair = PyTuple_New(2);
        int yes = pair == NULL ? -1 : nodes_differentiable(t);
        if (yes >= 0) {
            PyObject *shape = nodes_shape(t), *dtype = nodes_get(t, F_DTYPE);
            PyTuple_SET_ITEM(pair, 0, shape);
            PyTuple_SET_ITEM(pair, 1, dtype);
            if (shape == NULL || dtype == NULL) yes = -1;
        }
        if (yes > 0 && !unlike[i]) yes = nodes_history(t, node, (long)i);
        if (yes < 0) {
            Py_XDECREF(pair);
            Py_CLEAR(metas);
        } else {
            PyTuple_SET_ITEM(metas, i, pair);
        }
    }
    return nodes_fill(node, N_OUTPUTS, metas);
}

/* The edges of a plan, by the arguments' places: 1 with `*found`, else as `nodes_end`. */
static int nodes_edges(PyObject *node, PyObject *plan, PyObject *places, PyObject *const *args,
                       PyObject **found) {
    const unsigned char *wanted = (unsigned char *)PyBytes_AS_STRING(PyTuple_GET_ITEM(plan, P_WANTED));
    const unsigned char *place = (unsigned char *)PyBytes_AS_STRING(places);
    PyObject *lists[NODES_NAMES] = {NULL}, *spans = NULL;
    Py_ssize_t n = PyBytes_GET_SIZE(places), i, k, at = 0, all = 0;
    int done = 1;
    for (i = 0; i < n; i++, all++)
        if (wanted[i] & LISTED) {
            if ((lists[i] = nodes_listed(args[place[i]])) == NULL) done = -1;
            else all += PyTuple_GET_SIZE(lists[i]) - 1;
        }
    *found = done < 0 ? NULL : PyTuple_New(2 * all);
    if (*found == NULL) done = -1;
    for (i = 0; done > 0 && i < n; i++) {
        PyObject *size;
        if (!(wanted[i] & LISTED)) {
            done = nodes_edge(*found, at, wanted[i] & WANTED ? args[place[i]] : NULL);
            at += 2;
            continue;
        }
        for (k = 0; done > 0 && k < PyTuple_GET_SIZE(lists[i]); k++, at += 2) {
            PyObject *t = PyTuple_GET_ITEM(lists[i], k);
            int needs = nodes_is_tensor(t) ? nodes_is(t, F_RG) : 0;
            done = needs < 0 ? -1 : nodes_edge(*found, at, needs ? t : NULL);
        }
        if (spans == NULL) spans = PyDict_New();
        size = PyLong_FromSsize_t(PyTuple_GET_SIZE(lists[i]));
        if (spans == NULL || size == NULL ||
            PyDict_SetItem(spans, PyTuple_GET_ITEM(PyTuple_GET_ITEM(plan, P_NAMES), i), size) < 0)
            done = -1;
        Py_XDECREF(size);
    }
    for (i = 0; i < n; i++) Py_XDECREF(lists[i]);
    NODE(node, N_SPANS) = spans;
    if (done <= 0) Py_CLEAR(*found);
    return done;
}

/* Which arguments need gradients, as a number: below 0 with an error; `*other`: who records the
   call instead, as one of them is a number or a list that no plan knows. */
static long long nodes_bits(PyObject *self, PyObject *const *args, PyObject **other) {
    PyObject *places = PyTuple_GET_ITEM(self, D_PLACES);
    const unsigned char *place = (unsigned char *)PyBytes_AS_STRING(places);
    const unsigned char *listed = (unsigned char *)PyBytes_AS_STRING(PyTuple_GET_ITEM(self, D_HEAD));
    Py_ssize_t n = PyBytes_GET_SIZE(places), i, k;
    long long bits = 0;
    for (i = 0; i < n; i++) {
        PyObject *x, *number;
        int needs;
        if (place[i] == NODES_NONE) continue;
        x = args[place[i]];
        if (nodes_is_tensor(x)) {
            if ((needs = nodes_is(x, F_RG)) < 0) return -1;
            if (needs) bits |= 1LL << i;
            continue;
        }
        if (PyList_Check(x) || PyTuple_Check(x)) {
            if (!listed[i]) {
                *other = Py_NewRef(PyTuple_GET_ITEM(self, D_LOOPS));
                return 0;
            }
            bits |= 1LL << (n + i);
            for (k = 0; k < PySequence_Fast_GET_SIZE(x); k++) {
                PyObject *t = PySequence_Fast_GET_ITEM(x, k);
                if ((needs = nodes_is_tensor(t) ? nodes_is(t, F_RG) : 0) < 0) return -1;
                if (needs) bits |= 1LL << i;
            }
        }
        number = PyTuple_GET_ITEM(PyTuple_GET_ITEM(self, D_NUMBERS), i);
        if (number != Py_None && x != Py_None && !(PyList_Check(x) || PyTuple_Check(x))) {
            *other = PyObject_GetAttrString(number, "record");
            return *other == NULL ? -1 : 0;
        }
    }
    return bits;
}

/* The node of a call, without its histories: 1 with `*made`; 0: it is for the loops. */
static int nodes_made(PyObject *self, PyObject *plan, PyObject *const *args, PyObject *const *outs,
                      PyObject **made) {
    PyTypeObject *type = (PyTypeObject *)PyTuple_GET_ITEM(self, D_CLASS);
    PyObject *slots = PyTuple_GET_ITEM(plan, P_SLOTS), *saved, *node = type->tp_alloc(type, 0);
    Py_ssize_t n = PyTuple_GET_SIZE(slots), i;
    int done;
    if ((*made = node) == NULL) return -1;
    NODE(node, N_EXTRA) = Py_NewRef(Py_None);
    NODE(node, N_PLAN) = Py_NewRef(PyTuple_GET_ITEM(plan, P_PLAN));
    done = nodes_edges(node, plan, PyTuple_GET_ITEM(self, D_PLACES), args, &saved);
    if (done <= 0) return done;
    NODE(node, N_EDGES) = saved;
    saved = n ? PyList_New(2 * n) : PyTuple_New(0);
    if (saved == NULL) return -1;
    for (i = 0; i < n; i++) {
        PyObject *slot = PyTuple_GET_ITEM(slots, i);
        const unsigned char *told = (unsigned char *)PyBytes_AS_STRING(PyTuple_GET_ITEM(slot, S_KIND));
        int kind = told[0], at = told[2];
        PyObject *x = kind == K_RESULT || kind == K_RESULT_META ? outs[at]
                      : kind == K_CONSTANT                      ? NULL
                                                                : args[at];
        if (nodes_slot(saved, 2 * i, node, x, kind, told[1], slot) < 0) {
            Py_DECREF(saved);
            return -1;
        }
    }
    NODE(node, N_SAVED) = saved;
    return 1;
}

/* The rest of a node: its number, what the first output is like, the user's line. */
static int nodes_finished(PyObject *node, PyObject *first, int folded) {
    while (folded--) {
        PyObject *passed = nodes_next();
        if (passed == NULL) return -1;
        Py_DECREF(passed);
    }
    if (nodes_fill(node, N_NUMBER, nodes_next()) < 0) return -1;
    if (nodes_fill(node, N_SHAPE, nodes_shape(first)) < 0) return -1;
    if (nodes_fill(node, N_DTYPE, nodes_get(first, F_DTYPE)) < 0) return -1;
    return nodes_line(node);
}

static PyObject *nodes_record(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyObject *head = PyTuple_GET_ITEM(self, D_HEAD), *plans = PyTuple_GET_ITEM(self, D_PLANS);
    Py_ssize_t n = PyBytes_GET_SIZE(PyTuple_GET_ITEM(self, D_PLACES)), i;
    const unsigned char *told = (unsigned char *)PyBytes_AS_STRING(head) + n;
    int alone = told[0] == NODES_NONE, wide = told[1], folded = told[2], done;
    PyObject *other = NULL, *node = NULL, *out, *const *outs;
    long long bits;
    if (given != wide + 1) {
        PyErr_Format(PyExc_TypeError, "expected an output and %d arguments, not %zd", wide, given);
        return NULL;
    }
    out = args[0];
    if (PyList_GET_SIZE(GIVEN(G_GUARDED)) ||
        !(alone ? Py_TYPE(out) == (PyTypeObject *)GIVEN(G_TENSOR) : PyTuple_Check(out)))
        return PyObject_Vectorcall(PyTuple_GET_ITEM(self, D_LOOPS), args, given, NULL);
    if (!alone && PyTuple_GET_SIZE(out) != told[0])
        return PyObject_Vectorcall(PyTuple_GET_ITEM(self, D_OTHERS), args, given, NULL);
    outs = alone ? args : &PyTuple_GET_ITEM(out, 0);
    if (alone && (done = nodes_differentiable(out)) <= 0)
        return done < 0 ? NULL : Py_NewRef(Py_None);
    bits = nodes_bits(self, args + 1, &other);
    if (bits < 0) return NULL;
    if (other != NULL) {
        out = PyObject_Vectorcall(other, args, given, NULL);
        Py_DECREF(other);
        return out;
    }
    if (!(bits & ((1LL << n) - 1))) return Py_NewRef(Py_None);
    for (i = 0; i < PyTuple_GET_SIZE(plans); i++) {
        PyObject *plan = PyTuple_GET_ITEM(plans, i);
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(plan, P_BITS)) != bits) continue;
        done = nodes_made(self, plan, args + 1, outs, &node);
        if (done == 0) break;
        if (alone && node != NULL) NODE(node, N_OUTPUTS) = Py_NewRef(Py_None);
        if (done < 0 || nodes_finished(node, outs[0], folded) < 0 ||
            (alone ? nodes_history(out, node, 0)
                   : nodes_histories(out, node, told + 3)) < 0) {
            Py_XDECREF(node);
            return NULL;
        }
        Py_DECREF(node);
        return Py_NewRef(Py_None);
    }
    Py_XDECREF(node);
    return PyObject_Vectorcall(PyTuple_GET_ITEM(self, D_LOOPS), args, given, NULL);
}

static PyMethodDef nodes_method = {
    "record", (PyCFunction)(void (*)(void))nodes_record, METH_FASTCALL, NULL,
};

/* Be told what all recordings use. */
static PyObject *nodes_bind(PyObject *given) {
    PyObject *name;
    int i;
    if (PyArray_API == NULL && _import_array() < 0) return NULL;
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != G_ALL) {
        PyErr_Format(PyExc_TypeError, "expected a tuple of %d", G_ALL);
        return NULL;
    }
    for (i = 0; i < F_ALL; i++)
        if (nodes_name[i] == NULL &&
            (nodes_name[i] = PyUnicode_InternFromString(nodes_names[i])) == NULL)
            return NULL;
    for (i = 0; i < N_ALL; i++) {
        PyObject *type = PyTuple_GET_ITEM(given, i == N_VARIABLE ? G_OF_LEAF : G_OF_OP);
        if ((name = PyUnicode_InternFromString(nodes_slots[i])) == NULL) return NULL;
        nodes_at[i] = nodes_place((PyTypeObject *)type, name);
        Py_DECREF(name);
        if (nodes_at[i] < 0) {
            PyErr_Format(PyExc_TypeError, "%s is no slot", nodes_slots[i]);
            return NULL;
        }
    }
    if (nodes_again == NULL && (nodes_again = PyUnicode_InternFromString("_skimp_again")) == NULL)
        return NULL;
    if (nodes_one == NULL && (nodes_one = PyLong_FromLong(1)) == NULL) return NULL;
    memset(nodes_types, 0, sizeof(nodes_types));
    Py_XSETREF(nodes_given, Py_NewRef(given));
    return Py_NewRef(Py_None);
}

/* What records the calls of an op that is described so. */
static PyObject *nodes_recording(PyObject *described) {
    if (!PyTuple_Check(described) || PyTuple_GET_SIZE(described) != D_ALL) {
        PyErr_Format(PyExc_TypeError, "expected a tuple of %d", D_ALL);
        return NULL;
    }
    return PyCFunction_New(&nodes_method, described);
}
