# The types of arithmetic.py, for Cython alone.
cimport cython
from libc.math cimport sqrt as root

cdef extern from *:
    """
    #include <math.h>
    #include <string.h>
    #define SKIMP_DATA(x) ((float*) (x).data)
    #ifdef FP_FAST_FMAF /* else of products that are exact in double, whatever it takes */
    #define SKIMP_ONCE(a, b, c) fmaf(a, b, c)
    #else
    #define SKIMP_ONCE(a, b, c) ((float) ((double) (a) * (b) + (c)))
    #endif
    #define SKIMP_SINGLE(x) ((float) (x))
    static inline int skimp_whole_of(float x) { int k; memcpy(&k, &x, sizeof k); return k; }
    static inline float skimp_float_of(int k) { float x; memcpy(&x, &k, sizeof x); return x; }
    #define SKIMP_TABLE(n) ((float**) PyMem_Calloc(n, sizeof(float*)))
    #define SKIMP_SIZES(n) ((Py_ssize_t*) PyMem_Calloc(n, sizeof(Py_ssize_t)))
    #define SKIMP_ROOM(n) ((unsigned int*) PyMem_Malloc((n) * sizeof(unsigned int)))
    #define SKIMP_BITS(x) ((unsigned int*) (x).data)
    #define SKIMP_PAST(table, k) ((table) + (k))
    #define SKIMP_LACKS(x) ((x) == NULL)
    #define SKIMP_DOUBLES(x) ((double*) (x).data)
    #define SKIMP_PLACES(x) ((long long*) (x).data)
    #define SKIMP_BYTES(x) ((unsigned char*) (x).data)
    #ifdef FP_FAST_FMAF
    #define SKIMP_FUSED(a, b, c) fmaf(a, b, c)
    #else
    #define SKIMP_FUSED(a, b, c) ((a) * (b) + (c))
    #endif
    """
    const float* _of "SKIMP_DATA" (const float[::1] x) noexcept nogil
    const long long* _places "SKIMP_PLACES" (const long long[::1] x) noexcept nogil
    const unsigned char* _bytes "SKIMP_BYTES" (const unsigned char[::1] x) noexcept nogil
    bint _lacks "SKIMP_LACKS" (const float* x) noexcept nogil
    double* _doubles "SKIMP_DOUBLES" (double[::1] x) noexcept nogil
    float* _into "SKIMP_DATA" (float[::1] x) noexcept nogil
    float _fused "SKIMP_FUSED" (float a, float b, float c) noexcept nogil
    float log "logf" (float x) noexcept nogil
    float sqrt "sqrtf" (float x) noexcept nogil
    float** _table "SKIMP_TABLE" (Py_ssize_t n) except NULL
    Py_ssize_t* _sizes "SKIMP_SIZES" (Py_ssize_t n) except NULL
    void _released "PyMem_Free" (void* table) noexcept
    float** _past "SKIMP_PAST" (float** table, Py_ssize_t k) noexcept nogil
    float* _read "SKIMP_DATA" (const float[::1] x) noexcept nogil
    unsigned int* _room "SKIMP_ROOM" (Py_ssize_t n) except NULL
    unsigned int* _behind "SKIMP_PAST" (unsigned int* room, Py_ssize_t k) noexcept nogil
    unsigned int* _bits "SKIMP_BITS" (const unsigned int[::1] x) noexcept nogil
    const unsigned int _MATRIX "0x9908B0DFU"
    const unsigned int _MASK "0x9D2C5680U"
    const unsigned int _OTHER_MASK "0xEFC60000U"
    float _once "SKIMP_ONCE" (float a, float b, float c) noexcept nogil
    float _single "SKIMP_SINGLE" (int x) noexcept nogil
    float _rounded "SKIMP_SINGLE" (float x) noexcept nogil
    int _whole_of "skimp_whole_of" (float x) noexcept nogil
    float _float_of "skimp_float_of" (int bits) noexcept nogil

cdef extern from "rows.h":
    object rows_aligned(object x)
    bint rows_is_alike(object x, object like)
    bint rows_is_size(object x, Py_ssize_t n)
    bint rows_are_classes(object x, object of)
    long long* rows_places(object x)
    bint rows_is_row(object x, Py_ssize_t n)
    Py_ssize_t rows_width(object x, object dim) except -1
    int rows_around(object x, object dim, Py_ssize_t* around) except -1
    object rows_first(object x, object dim, Py_ssize_t k)
    object rows_places_like(object x)
    object rows_new(Py_ssize_t n)
    object rows_new_places(Py_ssize_t n)
    unsigned int* rows_words(object x, Py_ssize_t at, Py_ssize_t n) except NULL
    object rows_like(object x)
    object rows_kept(object x, int dims, int ones)
    Py_ssize_t rows_size(object x)
    float* rows_floats(object x)
    float* rows_row(object x)
    object rows_per_row(object x)
