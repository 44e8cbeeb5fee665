// Sums and scaled sums of vectors. Included by the variants.
#include "loops.h"

// AddScaled: y += c·x.
KERNEL F(AddScaled)(float *restrict y, const float *restrict x, int64_t n, const float *c) {
  const float by = c[0];
  EACH(i, n) y[i] += by * x[i];
}

// Sum: y = a + b.
KERNEL F(Sum)(float *restrict y, const float *restrict a, const float *restrict b, int64_t n) {
  EACH(i, n) y[i] = a[i] + b[i];
}

// ScaleShift: x = x·c0 − c1.
KERNEL F(ScaleShift)(float *restrict x, int64_t n, const float *c) {
  const float by = c[0], shift = c[1];
  EACH(i, n) x[i] = x[i] * by - shift;
}

// Round: x to the nearest bfloat16, ties to even, NaNs quiet.
KERNEL F(Round)(uint32_t *restrict x, int64_t n) {
  EACH(i, n) {
    const uint32_t b = x[i], up = (b + 0x7fff + (b >> 16 & 1)) & 0xffff0000;
    x[i] = (b & 0x7fffffff) > 0x7f800000 ? (b | 0x400000) & 0xffff0000 : up;
  }
}

// Dot: s = Σ a·b.
KERNEL F(Dot64)(const float *a, const float *b, int64_t n, double *s) {
  ANY_ORDER
  double sum = 0;
  EACH(i, n) sum += (double)a[i] * (double)b[i];
  *s = sum;
}
