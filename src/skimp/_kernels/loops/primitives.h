/* oneDNN's primitives, called straight, once their memory is told where it lies: by `ctypes` each
   takes a microsecond. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>

enum { PRIMITIVES_PLACES = 16 };

/* A part of a plan (`primitives.py`); returns what comes behind it, or NULL where oneDNN could not. */
static const long long *primitives_part(const long long *p, int (*put)(void *, void *),
                                        int (*execute)(void *, void *, int, const void *),
                                        const size_t *places) {
    long long spots = *p++, calls = *p++;
    for (; spots > 0; spots--, p += 3)
        if (put((void *)(size_t)p[0], (void *)(places[p[1]] + (size_t)p[2]))) return NULL;
    for (; calls > 0; calls--, p += 4)
        if (execute((void *)(size_t)p[0], (void *)(size_t)p[1], (int)p[2],
                    (const void *)(size_t)p[3]))
            return NULL;
    return p;
}

/* Whether all was computed; signals are looked at between parts. */
static int primitives_executed(PyObject *plan, PyObject *where) {
    const long long *p = (const long long *)PyBytes_AS_STRING(plan);
    const long long *end = p + PyBytes_GET_SIZE(plan) / (Py_ssize_t)sizeof(long long);
    int (*put)(void *, void *) = (int (*)(void *, void *))(size_t)p[0];
    int (*execute)(void *, void *, int, const void *) =
        (int (*)(void *, void *, int, const void *))(size_t)p[1];
    size_t places[PRIMITIVES_PLACES];
    Py_ssize_t i, many = PySequence_Fast_GET_SIZE(where);
    if (many > PRIMITIVES_PLACES) {
        PyErr_Format(PyExc_ValueError, "expected up to %d addresses, not %zd", PRIMITIVES_PLACES,
                     many);
        return -1;
    }
    for (i = 0; i < many; i++) {
        places[i] = PyLong_AsSize_t(PySequence_Fast_GET_ITEM(where, i));
        if (places[i] == (size_t)-1 && PyErr_Occurred()) return -1;
    }
    for (p += 2; p < end;) {
        Py_BEGIN_ALLOW_THREADS
        p = primitives_part(p, put, execute, places);
        Py_END_ALLOW_THREADS
        if (p == NULL) return 0;
        if (p < end && PyErr_CheckSignals() < 0) return -1;
    }
    return 1;
}
