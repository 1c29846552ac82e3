/* NumPy's own inner loops over arrays that lie in one run, block by block and shared by a team,
   without the interpreter's lock. They give an element the same bits however a run is cut
   (docs/notes/eval.md), so this does. */
#pragma once
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <fenv.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>
#include "streams.h"
#include "turns.h"

enum {
    PASS_ARGS = 4,
    PASS_STEPS = 64,
    PASS_OPERANDS = 96,
    PASS_LINE = 64,
    PASS_BLOCK = 1 << 11 /* elements that are written past the cache together */
};

typedef struct {
    char *start;
    npy_intp step; /* in bytes; 0: one number */
    npy_intp apart; /* of a register, from thread to thread; 0: of what lies in memory */
} PassOperand;

typedef struct {
    PyUFuncGenericFunction loop;
    void *data;
    int many;
    int args[PASS_ARGS];
} PassStep;

typedef struct {
    PassOperand operands[PASS_OPERANDS];
    PassStep steps[PASS_STEPS];
    int many;
    int streamed; /* the operand that is written past the cache; 0: none */
    int back; /* whether blocks come from the last to the first */
    int read[PASS_OPERANDS], reads; /* those that lie in memory beside it */
} Passes;

/* The bytes of an element whose loops ask nothing of Python; 0 of other types. */
static npy_intp pass_item(int type) {
    return type == NPY_FLOAT ? 4 : type == NPY_DOUBLE ? 8 : type == NPY_BOOL ? 1 : 0;
}

/* Whether it is an array of n elements in one run, or of no dims; or a register, of enough. */
static int pass_operand(PassOperand *p, PyObject *o, npy_intp n, npy_intp room) {
    if (!PyArray_CheckExact(o)) return 0;
    PyArrayObject *a = (PyArrayObject *)o;
    npy_intp item = pass_item(PyArray_TYPE(a));
    if (!item || !PyArray_ISCARRAY_RO(a)) return 0;
    p->start = PyArray_BYTES(a);
    p->apart = room * item;
    p->step = PyArray_NDIM(a) ? item : 0;
    return !p->step || PyArray_SIZE(a) == n;
}

/* The loop for these types, the first as NumPy takes it; whether there is one. */
static int pass_step(PassStep *s, PyObject *tuple, PyObject *operands) {
    if (!PyTuple_CheckExact(tuple) || PyTuple_GET_SIZE(tuple) < 2 ||
        Py_TYPE(PyTuple_GET_ITEM(tuple, 0)) != &PyUFunc_Type)
        return 0;
    PyUFuncObject *u = (PyUFuncObject *)PyTuple_GET_ITEM(tuple, 0);
    int types[PASS_ARGS];
    s->many = (int)PyTuple_GET_SIZE(tuple) - 1;
    if (s->many > PASS_ARGS || s->many != u->nargs || u->nout != 1) return 0;
    for (int i = 0; i < s->many; i++) {
        PyObject *number = PyTuple_GET_ITEM(tuple, i + 1);
        if (!PyLong_CheckExact(number)) return 0;
        s->args[i] = (int)PyLong_AsLong(number);
        if (s->args[i] < 0 || s->args[i] >= PyTuple_GET_SIZE(operands)) return 0;
        types[i] = PyArray_TYPE((PyArrayObject *)PyTuple_GET_ITEM(operands, s->args[i]));
    }
    for (int k = 0; k < u->ntypes; k++) {
        int i = 0;
        while (i < s->many && u->types[k * s->many + i] == types[i]) i++;
        if (i < s->many) continue;
        s->loop = u->functions[k];
        s->data = u->data ? u->data[k] : NULL;
        return 1;
    }
    return 0;
}

/* Whether a result's memory is an operand's, other than element for element. */
static int pass_crosses(const PassOperand *out, const PassOperand *in, npy_intp n) {
    if (in->apart || (in->start == out->start && in->step == out->step)) return 0;
    npy_intp length = in->step ? in->step * n : 16;
    return in->start < out->start + out->step * n && out->start < in->start + length;
}

/* A block that was made goes to its place, while what the next one reads comes. */
static void pass_stream(const Passes *p, const char *made, npy_intp first, npy_intp n) {
    const npy_intp item = p->operands[p->streamed].step, bytes = n * item;
    char *to = p->operands[p->streamed].start + first * item;
    npy_intp at = 0;
    for (; at + STREAM_LINE <= bytes; at += STREAM_LINE) {
        for (int k = 0; k < p->reads; k++) {
            const PassOperand *o = &p->operands[p->read[k]];
            stream_ask(o->start + (first + n + at / item) * o->step);
        }
        stream_line(to + at, made + at);
    }
    memcpy(to + at, made + at, bytes - at);
}

/* The steps over elements first to first + n, in this thread's registers; the result that is
   written past the cache is `made` first, where that is given. */
static void pass_block(const Passes *p, npy_intp first, npy_intp n, int thread, char *made) {
    char *at[PASS_ARGS];
    npy_intp steps[PASS_ARGS];
    for (int k = 0; k < p->many; k++) {
        const PassStep *s = &p->steps[k];
        for (int i = 0; i < s->many; i++) {
            const PassOperand *o = &p->operands[s->args[i]];
            at[i] = o->start + (o->apart ? o->apart * thread : o->step * first);
            if (made != NULL && s->args[i] == p->streamed) at[i] = made;
            steps[i] = o->step;
        }
        s->loop(at, &n, steps, s->data);
    }
}

static void pass_run(const Passes *p, npy_intp first, npy_intp last, npy_intp block, int thread) {
    char made[PASS_BLOCK * 8] __attribute__((aligned(STREAM_LINE)));
    npy_intp blocks = first < last ? (last - first + block - 1) / block : 0;
    for (npy_intp k = 0; k < blocks; k++) {
        npy_intp at = first + (p->back ? blocks - 1 - k : k) * block;
        npy_intp n = last - at < block ? last - at : block;
        pass_block(p, at, n, thread, p->streamed ? made : NULL);
        if (p->streamed) pass_stream(p, made, at, n);
    }
    if (p->streamed) stream_end();
}

/* Whether a lone result is written past the cache: not over what is read, which is there anyway, nor
   in shorter blocks, of which some would not begin with a line. */
static void pass_choose(Passes *p, npy_intp n, npy_intp block, int many, int registers, int outs) {
    const PassOperand *out = &p->operands[outs];
    p->streamed = p->reads = 0;
    if (!outs || many != outs + 1 || block < PASS_BLOCK || !stream_pays(out->start, out->step * n))
        return;
    for (int i = 0; i < registers; i++) {
        if (p->operands[i].start == out->start) return;
        if (p->operands[i].step) p->read[p->reads++] = i;
    }
    p->streamed = outs;
}

/* The bytes of operands that lie in memory, those from `registers` to `outs` not. */
static int64_t pass_bytes(const Passes *p, npy_intp n, int many, int registers, int outs) {
    int64_t bytes = 0;
    for (int i = 0; i < many; i++)
        if (i < registers || i >= outs) bytes += p->operands[i].step * n;
    return bytes;
}

/* Runs them, by so many threads, without the interpreter's lock. */
static void passes_go(Passes *p, npy_intp n, npy_intp block, int many, int registers, int outs,
                      int threads) {
    pass_choose(p, n, block, many, registers, outs);
    if (p->streamed) block = PASS_BLOCK;
    p->back = !p->streamed && turns_back(pass_bytes(p, n, many, registers, outs), threads);
    if (p->back && block > TURNS_BLOCK) block = TURNS_BLOCK;
    if (threads < 2) {
        pass_run(p, 0, n, block, 0);
    } else {
        npy_intp each = (n / threads / PASS_LINE + 1) * PASS_LINE;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int t = 0; t < threads; t++)
            pass_run(p, t * each, (t + 1) * each < n ? (t + 1) * each : n, block, t);
    }
    feclearexcept(FE_ALL_EXCEPT);
}

/* What is told of steps, operands and registers (`passes_ran`); whether all is of this kind. */
static int pass_read(Passes *p, PyObject *steps, PyObject *operands, npy_intp n, npy_intp block,
                     int registers, int outs, int threads) {
    if (!PyArray_API && _import_array() < 0) return -1;
    if (!PyUFunc_API && _import_umath() < 0) return -1;
    if (!PyTuple_CheckExact(steps) || !PyTuple_CheckExact(operands)) return 0;
    npy_intp many = PyTuple_GET_SIZE(operands);
    p->many = (int)PyTuple_GET_SIZE(steps);
    if (many > PASS_OPERANDS || p->many > PASS_STEPS || PyTuple_GET_SIZE(steps) > PASS_STEPS)
        return 0;
    for (int i = 0; i < many; i++) {
        int own = i >= registers && i < outs;
        if (!pass_operand(&p->operands[i], PyTuple_GET_ITEM(operands, i),
                          own ? block * threads : n, own ? block : 0))
            return 0;
    }
    for (int k = 0; k < p->many; k++)
        if (!pass_step(&p->steps[k], PyTuple_GET_ITEM(steps, k), operands)) return 0;
    return 1;
}

/* Steps (ufunc, operands' numbers, of which the last is written) over n elements, `block` of them
   at a time. From `registers` to `outs` operands are registers of a block for each thread. Whether
   it is done (or would be, if that is what is asked): nothing is where types or layouts are others.
*/
static int passes_ran(PyObject *steps, PyObject *operands, npy_intp n, npy_intp block,
                      int registers, int outs, int threads, int asked) {
    Passes p;
    int read = pass_read(&p, steps, operands, n, block, registers, outs, threads);
    if (read < 1) return read;
    int many = (int)PyTuple_GET_SIZE(operands);
    for (int i = outs; i < many; i++) {
        PyArrayObject *out = (PyArrayObject *)PyTuple_GET_ITEM(operands, i);
        if (!p.operands[i].step || !PyArray_ISWRITEABLE(out)) return 0;
        for (int k = 0; k < many; k++)
            if (k != i && pass_crosses(&p.operands[i], &p.operands[k], n)) return 0;
    }
    if (asked) return 1;
    Py_BEGIN_ALLOW_THREADS
    passes_go(&p, n, block, (int)many, registers, outs, threads);
    Py_END_ALLOW_THREADS
    return 1;
}

typedef float (*PassSum)(const float *, npy_intp, npy_intp);

typedef struct {
    npy_intp rows, n; /* rows of n elements, */
    npy_intp pieces; /* of which each is so many pieces, and a block one of them; */
    npy_intp together; /* or so many rows, of one piece each */
    int summed; /* the register that is added up */
    PassSum sum;
} PassRows;

/* The sums of pieces that blocks first to last make. */
static void pass_sums(const Passes *p, const PassRows *r, npy_intp first, npy_intp last,
                      npy_intp block, float *room, int thread) {
    const PassOperand *o = &p->operands[r->summed];
    const float *made = (const float *)(o->start + o->apart * thread);
    for (npy_intp k = first; k < last; k++) {
        npy_intp one = p->back ? first + last - 1 - k : k;
        npy_intp row = r->pieces > 1 ? one / r->pieces : one * r->together;
        npy_intp at = r->pieces > 1 ? one % r->pieces * block : 0;
        npy_intp many = r->rows - row < r->together ? r->rows - row : r->together;
        npy_intp n = r->n - at < block ? r->n - at : block;
        pass_block(p, row * r->n + at, many * n, thread, NULL);
        for (npy_intp i = 0; i < many; i++)
            room[row * r->pieces + at / block + i] = r->sum(made, i * n, n);
    }
}

/* Steps likewise, of which one of the registers (all operands from `registers` on) is added up:
   `room` = the sums of pieces of a block's length of each of the rows. Whether it is done. */
static int passes_summed(PyObject *steps, PyObject *operands, npy_intp rows, npy_intp n,
                         npy_intp block, int registers, int summed, float *room, int threads,
                         PassSum sum) {
    Passes p;
    npy_intp pieces = (n + block - 1) / block, together = pieces > 1 ? 1 : block / n;
    PassRows r = {rows, n, pieces, together, summed, sum};
    npy_intp blocks = pieces > 1 ? rows * pieces : (rows + together - 1) / together;
    int many = PyTuple_CheckExact(operands) ? (int)PyTuple_GET_SIZE(operands) : 0;
    int read = pass_read(&p, steps, operands, rows * n, block, registers, many, threads);
    if (read < 1) return read;
    if (summed < registers || summed >= many ||
        PyArray_TYPE((PyArrayObject *)PyTuple_GET_ITEM(operands, summed)) != NPY_FLOAT)
        return 0;
    p.back = turns_back(pass_bytes(&p, rows * n, registers, registers, registers), threads);
    Py_BEGIN_ALLOW_THREADS
    if (threads < 2) {
        pass_sums(&p, &r, 0, blocks, block, room, 0);
    } else {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int t = 0; t < threads; t++)
            pass_sums(&p, &r, t * blocks / threads, (t + 1) * blocks / threads, block, room, t);
    }
    feclearexcept(FE_ALL_EXCEPT);
    Py_END_ALLOW_THREADS
    return 1;
}
