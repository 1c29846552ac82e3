/* A product by BLAS, whose function comes as an address. */
#include <stdint.h>
#include <string.h>

typedef void (*WideGemm)(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t,
                         const float *, int64_t, float, float *, int64_t);
typedef void (*Gemm)(int, int, int, int32_t, int32_t, int32_t, float, const float *, int32_t,
                     const float *, int32_t, float, float *, int32_t);

static inline void products_gemm(size_t gemm, int wide, int turned_a, int turned_b, int64_t rows,
                                 int64_t columns, int64_t depth, float by, const float *a,
                                 int64_t pitch_a, const float *b, int64_t pitch_b, int adds,
                                 float *out, int64_t pitch)
{
    enum { ROWS = 101, AS_IT_IS = 111 };
    if (wide)
        ((WideGemm) gemm)(ROWS, AS_IT_IS + turned_a, AS_IT_IS + turned_b, rows, columns, depth, by,
                          a, pitch_a, b, pitch_b, adds, out, pitch);
    else
        ((Gemm) gemm)(ROWS, AS_IT_IS + turned_a, AS_IT_IS + turned_b, (int32_t) rows,
                      (int32_t) columns, (int32_t) depth, by, a, (int32_t) pitch_a, b,
                      (int32_t) pitch_b, adds, out, (int32_t) pitch);
}

static inline void products_clear(float *x, int64_t pitch, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        memset(x + r * pitch, 0, (size_t) columns * sizeof *x);
}

/* The transpose of so many rows, written by lines of the cache. */
static inline void products_turn(const float *x, int64_t pitch, int64_t rows, int64_t columns,
                                 float *out)
{
    enum { LINE = 16 };
    for (int64_t first = 0; first < rows; first += LINE) {
        int64_t last = first + LINE < rows ? first + LINE : rows;
        for (int64_t c = 0; c < columns; c++)
            for (int64_t r = first; r < last; r++)
                out[c * rows + r] = x[r * pitch + c];
    }
}
