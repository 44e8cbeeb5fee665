// AVX-512: choosing a token from a row of logits.
#include "wide.h"

// Max is the largest of x, or NaN where one is.
KERNEL avx512Max(const uint8_t *x, int64_t n, float *out) {
  __m512 top = _mm512_set1_ps(-__builtin_inff()), other = top;
  __mmask16 nan = 0;
  ROLLED for (; n >= 32; n -= 32) {
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 64);
    nan |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    top = _mm512_max_ps(top, a), other = _mm512_max_ps(other, b);
    x += 128;
  }
  ROLLED for (; n > 0; n -= 16) {
    __m512 a = _mm512_mask_loadu_ps(top, low(n), x);
    nan |= _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    top = _mm512_max_ps(top, a);
    x += 64;
  }
  const float best = _mm512_reduce_max_ps(_mm512_max_ps(top, other));
  *out = nan ? __builtin_nanf("") : best;
}

// SubtractScale: dst = (x - c[0]) * c[1].
KERNEL avx512SubtractScale(uint8_t *dst, const uint8_t *x, int64_t n, const float *c) {
  const __m512 top = _mm512_set1_ps(c[0]), by = _mm512_set1_ps(c[1]);
  ROLLED for (; n > 0; n -= 16) {
    const __mmask16 m = low(n < 16 ? n : 16);
    _mm512_mask_storeu_ps(dst, m, _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, x), top), by));
    dst += 64, x += 64;
  }
}
