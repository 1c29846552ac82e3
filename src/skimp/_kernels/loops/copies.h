/* Copies between arrays of one type and other strides, where elements of the last dim lie one after
   the other in both: runs of memory, moved as they are, which threads share. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <string.h>
#include <numpy/arrayobject.h>
#include "streams.h"

enum { COPY_DIMS = 16, COPY_PART = 1 << 14, COPY_FREE = 1 << 16 };

typedef struct {
    int many; /* dims around a run, from the outermost */
    npy_intp sizes[COPY_DIMS], from[COPY_DIMS], to[COPY_DIMS]; /* the strides of both, in bytes */
    npy_intp run; /* bytes */
    npy_intp parts; /* that a run is moved in */
    npy_intp units; /* parts of all runs */
    const char *source;
    char *out;
    int streamed; /* past the cache, where all is one run */
} Copies;

/* Parts from one on up to another; the places of runs are counted as a clock does. */
static void copies_run(const Copies *c, npy_intp first, npy_intp last) {
    npy_intp at[COPY_DIMS], part = first % c->parts, rest = first / c->parts;
    const char *source = c->source;
    char *out = c->out;
    for (int d = c->many - 1; d >= 0; d--) {
        at[d] = rest % c->sizes[d];
        rest /= c->sizes[d];
        source += at[d] * c->from[d];
        out += at[d] * c->to[d];
    }
    for (npy_intp u = first; u < last; u++) {
        npy_intp start = part * COPY_PART;
        npy_intp n = c->run - start < COPY_PART ? c->run - start : COPY_PART;
        if (c->streamed) stream_copy(out + start, source + start, n);
        else memcpy(out + start, source + start, (size_t)n);
        if (++part < c->parts) continue;
        part = 0;
        for (int d = c->many - 1; d >= 0; d--) {
            source += c->from[d];
            out += c->to[d];
            if (++at[d] < c->sizes[d]) break;
            source -= c->from[d] * c->sizes[d];
            out -= c->to[d] * c->sizes[d];
            at[d] = 0;
        }
    }
}

/* How far an array reaches behind its first element, in bytes; 0 where a stride leads back. */
static npy_intp copies_reach(int many, const npy_intp *sizes, const npy_intp *strides,
                             npy_intp run) {
    for (int d = 0; d < many; d++) {
        if (strides[d] < 0) return 0;
        run += (sizes[d] - 1) * strides[d];
    }
    return run;
}

/* What is to be moved; whether these are arrays that this takes. */
static int copies_plan(Copies *c, PyObject *source, PyObject *out) {
    if (!PyArray_CheckExact(source) || !PyArray_CheckExact(out)) return 0;
    PyArrayObject *a = (PyArrayObject *)source, *b = (PyArrayObject *)out;
    int dims = PyArray_NDIM(b), lead = dims - PyArray_NDIM(a);
    npy_intp item = PyArray_ITEMSIZE(b), size = PyArray_SIZE(b);
    if (!PyArray_ISWRITEABLE(b) || PyDataType_REFCHK(PyArray_DESCR(b)) || !size || !item ||
        !PyArray_EquivTypes(PyArray_DESCR(a), PyArray_DESCR(b)) || dims < 1 || dims > COPY_DIMS ||
        lead < 0)
        return 0;
    c->many = 0;
    for (int d = 0; d < dims; d++) {
        npy_intp n = PyArray_DIM(b, d), to = PyArray_STRIDE(b, d), from = 0;
        if (d >= lead && PyArray_DIM(a, d - lead) != 1) {
            if (PyArray_DIM(a, d - lead) != n) return 0;
            from = PyArray_STRIDE(a, d - lead);
        }
        if (n == 1) continue;
        int k = c->many - 1;
        if (k >= 0 && c->from[k] == from * n && c->to[k] == to * n) {
            c->sizes[k] *= n; /* this dim and the one around it are one */
        } else {
            c->sizes[++k] = n;
            c->many = k + 1;
        }
        c->from[k] = from;
        c->to[k] = to;
    }
    c->run = item;
    if (c->many) {
        int k = c->many - 1;
        if (c->from[k] != item || c->to[k] != item) return 0;
        c->run = item * c->sizes[k];
        c->many = k;
    }
    c->parts = (c->run + COPY_PART - 1) / COPY_PART;
    c->units = size * item / c->run * c->parts;
    c->source = PyArray_BYTES(a);
    c->out = PyArray_BYTES(b);
    c->streamed = !c->many && stream_pays(c->out, c->run);
    npy_intp read = copies_reach(c->many, c->sizes, c->from, c->run);
    npy_intp written = copies_reach(c->many, c->sizes, c->to, c->run);
    return read && written && (c->source + read <= c->out || c->out + written <= c->source);
}

/* out[...] = source, by so many threads; whether it is done, as nothing is where their elements lie
   or are otherwise, or they may share memory; or whether it would be, if that is what is asked. */
static int copies_moved(PyObject *source, PyObject *out, int threads, int asked) {
    Copies c;
    if (!PyArray_API && _import_array() < 0) return -1;
    if (!copies_plan(&c, source, out)) return 0;
    if (asked) return 1;
    if (c.run / c.parts * c.units < COPY_FREE) {
        copies_run(&c, 0, c.units);
        return 1;
    }
    Py_BEGIN_ALLOW_THREADS
    if (threads < 2) {
        copies_run(&c, 0, c.units);
    } else {
        npy_intp each = (c.units + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int t = 0; t < threads; t++)
            if (t * each < c.units)
                copies_run(&c, t * each, (t + 1) * each < c.units ? (t + 1) * each : c.units);
    }
    Py_END_ALLOW_THREADS
    return 1;
}
