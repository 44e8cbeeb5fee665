// What the variants share. Every KERNEL becomes a Go function of the same name; it must
// not use the stack, which the generator checks. Strides are in bytes. f is the format
// of the weights: a constant everywhere, so that the branches on it vanish.
#include <immintrin.h>
#include <stdint.h>

#define KERNEL __attribute__((preserve_none)) void
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")
// OPAQUE keeps the compiler from spreading one pointer over many registers.
#define OPAQUE(p) ({ __asm__ volatile("" : "+r"(p)); })
#define ROLLED _Pragma("clang loop unroll(disable)")

enum { BF16, F16, F32 };

INLINE int64_t size_of(int f) { return f == F32 ? 4 : 2; }

// times is a product that is made where it stands, not kept over outer loops.
INLINE int64_t times(int64_t a, int n) {
  OPAQUE(a);
  return a * n;
}

// The polynomial of exp on |r| <= ln 2 / 2 and the reduction; see exp32 in go.go.
#define LOG2E 1.44269504088896340736f
#define LN2_HI 0.693359375f
#define LN2_LO -2.12194440054690582767e-4f

#define MUL_ARGS const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t n, int64_t rows
#define MIX_ARGS uint8_t *y, int64_t ys, const uint8_t *p, int64_t ps, int64_t step, const uint8_t *v, int64_t vs, int64_t keys, int64_t cols
