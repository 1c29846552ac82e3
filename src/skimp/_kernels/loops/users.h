/* The user's line, which each node is told: CPython 3.11's frames are read without making objects of
   them. */

#pragma once
#include "fields.h"
#if PY_VERSION_HEX < 0x030C0000 /* CPython 3.11 */
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <internal/pycore_frame.h>
#define USERS_FRAMES 1
#endif

static PyObject *users_one;

#ifdef USERS_FRAMES
static _PyInterpreterFrame *users_whole(_PyInterpreterFrame *frame) {
    while (frame != NULL && _PyFrame_IsIncomplete(frame)) frame = frame->previous;
    return frame;
}

/* The user's code and the place in it: 1 if it was found in frames of known files; 0 if not; -1
   with an error. An object for a frame would be made anew in each call of a user's function. */
static int users_seen(PyObject *node) {
    _PyInterpreterFrame *frame = users_whole(PyThreadState_Get()->cframe->current_frame);
    int known = 1;
    while (known > 0 && frame != NULL && (frame = users_whole(frame->previous)) != NULL) {
        PyObject *name = frame->f_code->co_filename;
        if ((known = PySet_Contains(GIVEN(G_USERS), name)) > 0) {
            NODE(node, N_CODE) = Py_NewRef((PyObject *)frame->f_code);
            return fields_fill(node, N_LASTI,
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
#define users_seen(node) 0
#endif

/* The same, of any frames. */
static int users_line(PyObject *node) {
    int seen = users_seen(node);
    PyObject *frame, *found;
    if (seen != 0) return seen < 0 ? -1 : 0;
    if ((frame = PyObject_CallOneArg(GIVEN(G_FRAME), users_one)) == NULL) return -1;
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
