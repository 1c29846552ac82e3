/* Records of ops: the node of a call, its edges, and what it keeps. What is written out as text
   for each op where nothing is compiled (`_engine/autograd/recorder.py`) is read here from a
   description. What is rare is left to the functions of Python that it is given. */

#include "users.h"

/* What describes a recording (`described.in_c`). */
enum { D_LOOPS, D_OTHERS, D_CLASS, D_HEAD, D_PLACES, D_NUMBERS, D_PLANS, D_ALL };
enum { P_BITS, P_PLAN, P_WANTED, P_NAMES, P_SLOTS, P_ALL }; /* a plan of it */
enum { S_KIND, S_META, S_CONSTANT };                        /* a slot of that */
enum { K_ARG, K_RESULT, K_ARG_META, K_RESULT_META, K_CONSTANT };
enum { WANTED = 1, LISTED = 2, SHAPE = 4, STRIDES = 8, KNOWN = 16, BARE = 32 };
#define NODES_NAMES 24
#define NODES_NONE 255

static PyObject *nodes_again; /* the name of what `nodes_is_made_again` asks */
static Py_ssize_t nodes_again_from;

/* A new node of a leaf, which refers to it weakly. */
static PyObject *nodes_leaf(PyObject *t) {
    PyTypeObject *type = (PyTypeObject *)GIVEN(G_OF_LEAF);
    PyObject *made = type->tp_alloc(type, 0), *ref;
    if (made == NULL) return NULL;
    NODE(made, N_VARIABLE) = Py_NewRef(t);
    NODE(made, N_EXTRA) = Py_NewRef(Py_None);
    ref = fields_fill(made, N_NUMBER, fields_next()) < 0 ||
                  fields_fill(made, N_SHAPE, fields_shape(t)) < 0 ||
                  fields_fill(made, N_DTYPE, fields_get(t, F_DTYPE)) < 0
              ? NULL
              : PyWeakref_NewRef(made, NULL);
    if (ref == NULL || fields_set(t, F_ACCUMULATE, ref) < 0) Py_CLEAR(made);
    Py_XDECREF(ref);
    return made;
}

/* Where the gradient of a tensor goes: 1 with `*node`; 0: nowhere, as the view of a tensor that
   was made unrecorded; -1 with an error. */
static int nodes_end(PyObject *x, PyObject **node) {
    int plain = fields_lacks(x, F_BASE);
    if (plain == 0) { /* a view, of what nobody wrote to? */
        PyObject *s = fields_get(x, F_STORAGE), *version = NULL, *stale = NULL;
        if (s != NULL) version = fields_get(s, F_VERSION);
        if (version != NULL) stale = fields_get(x, F_STALE);
        plain = stale == NULL ? -1 : PyObject_RichCompareBool(stale, version, Py_EQ);
        Py_XDECREF(s);
        Py_XDECREF(version);
        Py_XDECREF(stale);
        if (plain > 0) plain = fields_lacks(x, F_COUNTER);
    }
    if (plain < 0) return -1;
    *node = plain ? fields_get(x, F_NODE) : PyObject_CallOneArg(GIVEN(G_NODE_OF_VIEW), x);
    if (*node == NULL) return -1;
    if (*node != Py_None) return 1;
    Py_CLEAR(*node);
    if ((plain = fields_is(x, F_INHERITS)) != 0) return plain < 0 ? -1 : 0;
    if ((*node = fields_get(x, F_ACCUMULATE)) == NULL) return -1;
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
    if ((index = fields_get(x, F_INDEX)) == NULL) {
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
                PyObject *shape = fields_shape(PyTuple_GET_ITEM(items, i));
                if (shape == NULL) Py_CLEAR(found);
                else PyList_SET_ITEM(found, i, shape);
            }
            Py_DECREF(items);
            return found;
        }
        Py_DECREF(items);
    } else if (flags & SHAPE && flags & KNOWN) {
        return fields_shape(x);
    } else if (flags & STRIDES && flags & KNOWN) { /* of a leaf it is there after the first time */
        if ((layout = fields_get(x, F_LAYOUT)) == NULL) return NULL;
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

/* `rematerialize.is_made_again`, of what is not small; -1 with an error. */
static int nodes_is_made_again(PyObject *x) {
    PyObject *a = fields_get(x, F_NP), *base, *made_by;
    int few;
    if (a == NULL) return -1;
    few = !PyArray_Check(a) || PyArray_NBYTES((PyArrayObject *)a) < nodes_again_from;
    Py_DECREF(a);
    if (few) return 0;
    if ((base = fields_get(x, F_BASE)) == NULL) return -1;
    made_by = fields_get(base == Py_None ? x : base, F_NODE);
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
    int general = fields_lacks(x, F_NP);
    if (general == 0 && (general = fields_is(x, F_MARKED)) > 0) {
        int plain = fields_lacks(x, F_COUNTER);
        general = plain <= 0 ? 1 + 2 * plain : fields_is(x, F_INFERENCE);
    }
    if (general == 0 && of == NULL) general = nodes_is_made_again(x);
    if (general != 0) return general < 0 ? -1 : nodes_keep(saved, at, node, x, of);
    if ((s = fields_get(x, F_STORAGE)) == NULL) return -1;
    version = fields_set(s, F_SAVED, Py_True) < 0 ? NULL : fields_get(s, F_VERSION);
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
    } else if (kind == K_RESULT || fields_is_tensor(x)) {
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

/* Make the node the history of one output; -1 with an error. */
static int nodes_history(PyObject *out, PyObject *node, long index) {
    PyObject *number = PyLong_FromLong(index);
    int done = number == NULL || fields_set(out, F_RG, Py_True) < 0 ||
                       fields_set(out, F_NODE, node) < 0 || fields_set(out, F_INDEX, number) < 0
                   ? -1
                   : 0;
    Py_XDECREF(number);
    return done;
}

/* Whether a tensor's type has derivatives; -1 with an error. */
static int nodes_differentiable(PyObject *t) {
    PyObject *dtype = fields_get(t, F_DTYPE), *category;
    long found;
    if (dtype == NULL) return -1;
    category = fields_get(dtype, F_CATEGORY);
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
            PyObject *shape = fields_shape(t), *dtype = fields_get(t, F_DTYPE);
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
    return fields_fill(node, N_OUTPUTS, metas);
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
            int needs = fields_is_tensor(t) ? fields_is(t, F_RG) : 0;
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
        if (fields_is_tensor(x)) {
            if ((needs = fields_is(x, F_RG)) < 0) return -1;
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
                if ((needs = fields_is_tensor(t) ? fields_is(t, F_RG) : 0) < 0) return -1;
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
        PyObject *passed = fields_next();
        if (passed == NULL) return -1;
        Py_DECREF(passed);
    }
    if (fields_fill(node, N_NUMBER, fields_next()) < 0) return -1;
    if (fields_fill(node, N_SHAPE, fields_shape(first)) < 0) return -1;
    if (fields_fill(node, N_DTYPE, fields_get(first, F_DTYPE)) < 0) return -1;
    return users_line(node);
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
    if (fields_bind(given) < 0) return NULL;
    nodes_again_from = PyLong_AsSsize_t(GIVEN(G_AGAIN_FROM));
    if (nodes_again_from == -1 && PyErr_Occurred()) return NULL;
    if (nodes_again == NULL && (nodes_again = PyUnicode_InternFromString("_skimp_again")) == NULL)
        return NULL;
    if (users_one == NULL && (users_one = PyLong_FromLong(1)) == NULL) return NULL;
    Py_RETURN_NONE;
}

/* What records the calls of an op that is described so. */
static PyObject *nodes_recording(PyObject *described) {
    if (!PyTuple_Check(described) || PyTuple_GET_SIZE(described) != D_ALL) {
        PyErr_Format(PyExc_TypeError, "expected a tuple of %d", D_ALL);
        return NULL;
    }
    return PyCFunction_New(&nodes_method, described);
}
