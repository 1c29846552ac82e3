/* What `sharing` and `teams` decide before and after a work, in one call: how many threads run it. What
   is rare (who sleeps is to be woken, who was late has them rest) is Python's, which shares the account.
*/
#pragma once
#include <Python.h>
#include <math.h>
#include "objects.h"

enum { SHARE_MOST = 24 }; /* arguments of a loop */

static struct {
    PyObject *account, *config; /* instances whose slots are read, */
    Py_ssize_t saved, until, awake, threads; /* at these places */
    PyObject *busy;             /* a list, not empty while helpers share work */
    PyObject *here, *told;      /* locals of the thread */
    PyObject *worth, *done, *team, *clock;
    Py_ssize_t from;
    double late, near, spin, most;
} shares;
static PyObject *share_apart, *share_size, *share_told; /* names, and what holds all of it */

static inline PyObject **share_slot(PyObject *o, Py_ssize_t place) {
    return (PyObject **)((char *)o + place);
}

static inline double share_read(Py_ssize_t place) {
    PyObject *found = *share_slot(shares.account, place);
    return found && PyFloat_CheckExact(found) ? PyFloat_AS_DOUBLE(found) : INFINITY;
}

static int share_write(Py_ssize_t place, double value) {
    PyObject *made = PyFloat_FromDouble(value), **slot = share_slot(shares.account, place), *old;
    if (!made) return -1;
    old = *slot;
    *slot = made;
    Py_XDECREF(old);
    return 0;
}

/* What a function of Python's gives, as a number; -1 with an error. */
static double share_number(PyObject *found) {
    double value = found ? PyFloat_AsDouble(found) : -1;
    Py_XDECREF(found);
    return value;
}

static double share_now(void) { return share_number(PyObject_CallNoArgs(shares.clock)); }

static long share_long(PyObject *found) {
    long value = found ? PyLong_AsLong(found) : -1;
    Py_XDECREF(found);
    return value;
}

static long share_threads(void) {
    PyObject *found = *share_slot(shares.config, shares.threads);
    return found && PyLong_CheckExact(found) ? PyLong_AsLong(found) : 1;
}

/* When work begins that takes one thread so long, and how many threads run it; -1 with an error. */
static int share_begin(Py_ssize_t elements, double seconds, double *began) {
    long threads, size;
    PyObject *apart;
    *began = 0;
    if (!shares.account || elements < shares.from || (threads = share_threads()) < 2 ||
        PyList_GET_SIZE(shares.busy))
        return 1;
    if (!(apart = PyObject_GetAttr(shares.here, share_apart))) return -1;
    Py_DECREF(apart); /* True and False stay */
    if (apart != Py_False) return 1;
    if ((*began = share_now()) < 0 && PyErr_Occurred()) return -1;
    if (*began < share_read(shares.until)) {
        *began = 0;
        return 1;
    }
    if (seconds >= shares.late || *began >= share_read(shares.awake)) {
        PyObject *told = PyFloat_FromDouble(seconds);
        if (!told) return -1;
        *began = share_number(PyObject_CallOneArg(shares.worth, told));
        Py_DECREF(told);
        if (*began < 0 && PyErr_Occurred()) return -1;
        if (*began == 0) return 1;
    }
    size = share_long(PyObject_GetAttr(shares.told, share_size));
    if (size < 0 && PyErr_Occurred()) return -1;
    return (int)(size == threads ? threads : share_long(PyObject_CallNoArgs(shares.team)));
}

/* Enters it; -1 with an error. */
static int share_end(double began, double seconds) {
    double now, took;
    PyObject *told, *found;
    if (seconds < shares.late) {
        if ((now = share_now()) < 0 && PyErr_Occurred()) return -1;
        took = now - began;
        if (took <= 2 * seconds + shares.near && !isinf(share_read(shares.until))) {
            double saved = share_read(shares.saved) + fmin(seconds, took) / 2;
            if (share_write(shares.awake, now + shares.spin) < 0) return -1;
            return share_write(shares.saved, fmin(saved, shares.most));
        }
    }
    if (!(told = Py_BuildValue("dd", began, seconds))) return -1;
    found = PyObject_Call(shares.done, told, NULL);
    Py_DECREF(told);
    Py_XDECREF(found);
    return found ? 0 : -1;
}

/* loop(*args, threads) of (loop, elements, cost, *args). */
static PyObject *share_called(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    PyObject *all[SHARE_MOST + 1], *found, *number;
    Py_ssize_t elements, i, rest = given - 3;
    double seconds, began;
    int threads;
    (void)self;
    if (rest < 0 || rest >= SHARE_MOST) {
        PyErr_Format(PyExc_TypeError, "call: expected a loop, elements, a cost and up to %d more",
                     SHARE_MOST - 1);
        return NULL;
    }
    elements = PyLong_AsSsize_t(args[1]);
    seconds = PyFloat_AsDouble(args[2]);
    if (PyErr_Occurred()) return NULL;
    seconds *= (double)elements;
    if ((threads = share_begin(elements, seconds, &began)) < 0) return NULL;
    if (!(number = PyLong_FromLong(threads))) return NULL;
    for (i = 0; i < rest; i++) all[i] = args[3 + i];
    all[rest] = number;
    found = PyObject_Vectorcall(args[0], all, rest + 1, NULL);
    Py_DECREF(number);
    if (found && began != 0 && share_end(began, seconds) < 0) Py_CLEAR(found);
    return found;
}

static PyMethodDef share_method = {
    "call", (PyCFunction)(void (*)(void))share_called, METH_FASTCALL, NULL,
};

/* Where instances of an object's class have a slot; -1 with an error. */
static Py_ssize_t share_place(PyObject *o, const char *name) {
    PyObject *found = PyObject_GetAttrString((PyObject *)Py_TYPE(o), name);
    Py_ssize_t place = objects_slot(found);
    Py_XDECREF(found);
    if (place < 0 && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "expected a slot for %s", name);
    return place;
}

static PyObject *share_prepared(PyObject *told, PyObject *limits) {
    PyObject *account, *config, *busy, *here, *size, *worth, *done, *team, *clock;
    if (!PyArg_ParseTuple(told, "OOO!OOOOOO", &account, &config, &PyList_Type, &busy, &here, &size,
                          &worth, &done, &team, &clock) ||
        !PyArg_ParseTuple(limits, "ndddd", &shares.from, &shares.late, &shares.near, &shares.spin,
                          &shares.most) ||
        (shares.saved = share_place(account, "saved")) < 0 ||
        (shares.until = share_place(account, "until")) < 0 ||
        (shares.awake = share_place(account, "awake")) < 0 ||
        (shares.threads = share_place(config, "threads")) < 0 ||
        !(share_apart = PyUnicode_InternFromString("apart")) ||
        !(share_size = PyUnicode_InternFromString("size")))
        return NULL;
    Py_XSETREF(share_told, Py_NewRef(told)); /* and all that it holds */
    shares.account = account, shares.config = config, shares.busy = busy;
    shares.here = here, shares.told = size, shares.clock = clock;
    shares.worth = worth, shares.done = done, shares.team = team;
    return PyCFunction_New(&share_method, NULL);
}
