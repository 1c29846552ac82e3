# The types of recurrence.py, for Cython alone.
cimport cython

@cython.locals(r=Py_ssize_t, k=Py_ssize_t)
cpdef lstm_carried(const float[:, :, ::1] gates, const float[:, ::1] before, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, n=Py_ssize_t, gate=Py_ssize_t, one=float)
cpdef lstm_back(const float[:, :, ::1] gates, const float[:, ::1] before, const float[:, ::1] top,
                const float[:, ::1] dh, const float[:, ::1] dc, float[:, :, ::1] room,
                float[:, ::1] d, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, new=float)
cpdef gru_shown(const float[:, :, ::1] gates, const float[:, ::1] before, float[:, ::1] out)

@cython.locals(r=Py_ssize_t, k=Py_ssize_t, n=Py_ssize_t, one=float, reset=float, update=float,
               new=float)
cpdef gru_back(const float[:, :, ::1] gates, const float[:, ::1] hidden,
               const float[:, ::1] before, const float[:, ::1] dh, float[:, ::1] room,
               float[:, ::1] d, float[:, ::1] behind, float[:, ::1] resets, float[:, ::1] out)
