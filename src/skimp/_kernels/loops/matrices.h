/* Products of matrices by oneDNN, called straight: `ctypes` converts thirteen arguments in 1.5 us. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>

typedef int (*MatricesProduct)(char, char, long long, long long, long long, float, const char *,
                               long long, const char *, long long, float, char *, long long);

/* A plan's words, and those of each part behind them (`matrices.py`). */
enum { MAT_PRODUCT, MAT_THREADS, MAT_A, MAT_B, MAT_N, MAT_PITCH_A, MAT_PITCH_B, MAT_PITCH, MAT_WORDS };
enum { MAT_ROWS, MAT_DEEP, MAT_FROM_A, MAT_FROM_B, MAT_TO, MAT_ADDED, MAT_EACH };

/* Make a plan's parts, of what begins at these addresses, by so many threads, or as many as were
   told before if it is 0; added to the result to `add`. Signals are looked at between parts: -1 where
   one raised. */
static int matrices_multiplied(PyObject *plan, size_t a, size_t b, size_t out, int threads,
                               int add) {
    const long long *p = (const long long *)PyBytes_AS_STRING(plan);
    const long long *end = p + PyBytes_GET_SIZE(plan) / (Py_ssize_t)sizeof(long long);
    MatricesProduct product = (MatricesProduct)(size_t)p[MAT_PRODUCT];
    void (*put)(int) = (void (*)(int))(size_t)p[MAT_THREADS];
    const long long *one;
    if (put && threads) put(threads);
    for (one = p + MAT_WORDS; one < end;) {
        Py_BEGIN_ALLOW_THREADS
        product((char)p[MAT_A], (char)p[MAT_B], one[MAT_ROWS], p[MAT_N], one[MAT_DEEP], 1.0f,
                (const char *)(a + (size_t)one[MAT_FROM_A]), p[MAT_PITCH_A],
                (const char *)(b + (size_t)one[MAT_FROM_B]), p[MAT_PITCH_B],
                add || one[MAT_ADDED] ? 1.0f : 0.0f, (char *)(out + (size_t)one[MAT_TO]),
                p[MAT_PITCH]);
        Py_END_ALLOW_THREADS
        one += MAT_EACH;
        if (one < end && PyErr_CheckSignals() < 0) return -1;
    }
    return 0;
}
