// AVX2: choosing a token from a row of logits. Lengths are multiples of 8.
#include "common.h"

// Max is the largest of x, or NaN where one is.
KERNEL avx2Max(const uint8_t *x, int64_t n, float *out) {
  __m256 top = _mm256_set1_ps(-__builtin_inff()), nan = _mm256_setzero_ps();
  ROLLED for (; n > 0; n -= 8) {
    const __m256 a = _mm256_loadu_ps((const float *)x);
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    top = _mm256_max_ps(top, a);
    x += 32;
  }
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  q = _mm_max_ss(q, _mm_movehdup_ps(q));
  *out = _mm256_movemask_ps(nan) ? __builtin_nanf("") : _mm_cvtss_f32(q);
}

// SubtractScale: dst = (x - c[0]) * c[1].
KERNEL avx2SubtractScale(uint8_t *dst, const uint8_t *x, int64_t n, const float *c) {
  const __m256 top = _mm256_set1_ps(c[0]), by = _mm256_set1_ps(c[1]);
  ROLLED for (; n > 0; n -= 8) {
    _mm256_storeu_ps((float *)dst, _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps((const float *)x), top), by));
    dst += 32, x += 32;
  }
}
