/* Exponentials of float32, sixteen at once, where the processor has vectors of 512 bits: e^x is
   2^(k / 16) e^r, k whole and |r| at most ln(2) / 32. 2^(j / 16) is two numbers of a table, whose sum
   it is; ln(2) likewise, the first of which times k is exact (Cody and Waite 1980). e^r = 1 + r +
   r^2 q(r), q of degree 1, the one that is off least (1.6e-9). An element's bits are its own. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#ifdef __AVX512F__
#include <immintrin.h>

enum { EXPONENTIALS = 16, EXPONENTIALS_INVALID = 1 };

static const float exponentials_high[EXPONENTIALS] = {
    0x1.000000p+0f, 0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f, 0x1.306fe0p+0f, 0x1.3dea64p+0f,
    0x1.4bfdaep+0f, 0x1.5ab07ep+0f, 0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
    0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f,
};
static const float exponentials_low[EXPONENTIALS] = {
    0.0f, 0x1.9f3122p-25f, -0x1.c15742p-27f, 0x1.ceac48p-25f, 0x1.4636e2p-25f, 0x1.824684p-25f,
    -0x1.593abcp-25f, -0x1.5bd5ecp-27f, 0x1.9fcef4p-26f, -0x1.829fd0p-25f, 0x1.15506ep-27f,
    0x1.51f848p-27f, -0x1.a94b14p-26f, -0x1.3d56b2p-27f, -0x1.822dbcp-27f, 0x1.52486cp-27f,
};

/* Of numbers below 2^-126, which a processor makes one by one, 0 where `flush` says so; else their
   last bits are what adding 2^-126 leaves of them, 2^64 times as large. */
static inline __attribute__((always_inline)) __m512 exponentials_of(__m512 x, int flush) {
    const __m512 high = _mm512_loadu_ps(exponentials_high), low = _mm512_loadu_ps(exponentials_low);
    const __m512 magic = _mm512_set1_ps(786432.0f), least = _mm512_set1_ps(-87.33654f);
    const __mmask16 tiny = _mm512_cmp_ps_mask(x, least, _CMP_LT_OQ);
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), x); /* what is not a number stays */
    x = _mm512_max_ps(_mm512_set1_ps(-105.0f), x);
    const __m512 z = _mm512_fmadd_ps(x, _mm512_set1_ps(1.44269504f), magic);
    const __m512 k = _mm512_sub_ps(z, magic);
    const __m512i j = _mm512_castps_si512(z); /* of which four bits count */
    __m512 r = _mm512_fmadd_ps(k, _mm512_set1_ps(-0.693145751953125f), x);
    r = _mm512_fmadd_ps(k, _mm512_set1_ps(-1.4286068e-06f), r);
    __m512 q = _mm512_fmadd_ps(r, _mm512_set1_ps(0.16667052f), _mm512_set1_ps(0.5000162f));
    q = _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r);
    const __m512 t = _mm512_permutexvar_ps(j, high);
    q = _mm512_add_ps(t, _mm512_fmadd_ps(t, q, _mm512_permutexvar_ps(j, low)));
    __m512 e = _mm512_maskz_scalef_ps((__mmask16)~tiny, q, k);
    if (!flush && tiny) {
        const __m512 one = _mm512_set1_ps(0x1p-62f);
        q = _mm512_add_ps(_mm512_scalef_ps(q, _mm512_add_ps(k, _mm512_set1_ps(64.0f))), one);
        const __m512i bits = _mm512_sub_epi32(_mm512_castps_si512(q), _mm512_castps_si512(one));
        e = _mm512_mask_mov_ps(e, tiny, _mm512_castsi512_ps(bits));
    }
    return _mm512_abs_ps(e); /* what is not a number has no sign, as NumPy's */
}

static inline __attribute__((always_inline)) void exponentials_run(const float *x, npy_intp n,
                                                                   float *out, int flush) {
    npy_intp i = 0;
    for (; n - i >= 4 * EXPONENTIALS; i += 4 * EXPONENTIALS)
        for (int u = 0; u < 4 * EXPONENTIALS; u += EXPONENTIALS)
            _mm512_storeu_ps(out + i + u, exponentials_of(_mm512_loadu_ps(x + i + u), flush));
    for (; i < n; i += EXPONENTIALS) {
        __mmask16 own = n - i < EXPONENTIALS ? (__mmask16)((1u << (n - i)) - 1) : 0xffff;
        __m512 e = exponentials_of(_mm512_maskz_loadu_ps(own, x + i), flush);
        _mm512_mask_storeu_ps(out + i, own, e);
    }
}

/* A ufunc's inner loop. A comparison with what is not a number tells the processor of it, and NumPy
   would warn: nothing invalid is done here. */
static void exponentials_loop(char **args, npy_intp const *sizes, npy_intp const *steps, void *data) {
    const unsigned int before = _mm_getcsr();
    npy_intp n = sizes[0];
    (void)data;
    if (steps[0] == sizeof(float) && steps[1] == sizeof(float)) {
        exponentials_run((const float *)args[0], n, (float *)args[1], 0);
    } else {
        char *from = args[0], *to = args[1];
        float room[EXPONENTIALS];
        while (n > 0) {
            npy_intp count = n < EXPONENTIALS ? n : EXPONENTIALS;
            for (npy_intp i = 0; i < count; i++, from += steps[0]) room[i] = *(float *)from;
            exponentials_run(room, count, room, 0);
            for (npy_intp i = 0; i < count; i++, to += steps[1]) *(float *)to = room[i];
            n -= count;
        }
    }
    if (!(before & EXPONENTIALS_INVALID)) _mm_setcsr(_mm_getcsr() & ~EXPONENTIALS_INVALID);
}

/* out = exp(x) of n numbers from `at` and `to` on, 0 below the least normal one; whether it is. */
static inline int exponentials_made(const float *x, Py_ssize_t at, Py_ssize_t n, float *out,
                                    Py_ssize_t to) {
    exponentials_run(x + at, n, out + to, 1);
    return 1;
}

/* A ufunc with the loops of NumPy's `exp`, but for this one. */
static PyObject *exponentials_ufunc(PyObject *exp) {
    PyUFuncObject *from = (PyUFuncObject *)exp, *made;
    if (!PyArray_API && _import_array() < 0) return NULL;
    if (!PyUFunc_API && _import_umath() < 0) return NULL;
    const int many = from->ntypes;
    PyUFuncGenericFunction *loops = PyMem_Calloc(many, sizeof *loops);
    void **data = PyMem_Calloc(many, sizeof *data);
    char *types = PyMem_Calloc(many, 2);
    if (!loops || !data || !types) return PyErr_NoMemory();
    for (int i = 0; i < many; i++) {
        const int own = from->types[2 * i] == NPY_FLOAT && from->types[2 * i + 1] == NPY_FLOAT;
        loops[i] = own ? exponentials_loop : from->functions[i];
        data[i] = own || !from->data ? NULL : (void *)from->data[i];
    }
    memcpy(types, from->types, 2 * many);
    made = (PyUFuncObject *)PyUFunc_FromFuncAndData( /* which keeps them */
        loops, (void *const *)data, types, many, 1, 1, PyUFunc_None, "exp", from->doc, 0);
    return (PyObject *)made;
}

#else

static inline int exponentials_made(const float *x, Py_ssize_t at, Py_ssize_t n, float *out,
                                    Py_ssize_t to) {
    (void)x, (void)at, (void)n, (void)out, (void)to;
    return 0;
}

static PyObject *exponentials_ufunc(PyObject *exp) {
    Py_INCREF(exp);
    return exp;
}

#endif
