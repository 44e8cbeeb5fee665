// What a processor without AVX-512 does at most; see roof.c.
#include "common.h"

#define HELD(v) ({ __asm__ volatile("" : "+x"(v)); })
#define ACCUMULATORS 12

KERNEL roofRead2(const uint8_t *p, int64_t n, uint8_t *out) {
  __m256i a[8];
  UNROLL for (int i = 0; i < 8; i++) a[i] = _mm256_setzero_si256();
  const int64_t q = n / 4;
  ROLLED for (int64_t i = 0; i < q; i += 64) {
    UNROLL for (int s = 0; s < 4; s++) {
      const uint8_t *at = p + times(q, s) + i;
      _mm_prefetch((const char *)at + 1024, _MM_HINT_T0);
      a[2 * s] = _mm256_xor_si256(a[2 * s], _mm256_loadu_si256((const __m256i *)at));
      a[2 * s + 1] = _mm256_xor_si256(a[2 * s + 1], _mm256_loadu_si256((const __m256i *)(at + 32)));
    }
  }
  UNROLL for (int i = 1; i < 8; i++) a[0] = _mm256_xor_si256(a[0], a[i]);
  _mm256_storeu_si256((__m256i *)out, a[0]);
}

KERNEL roofFloat2(int64_t steps) {
  __m256 a[ACCUMULATORS], x = _mm256_set1_ps(1e-30f), y = x;
  HELD(x), HELD(y);
  UNROLL for (int i = 0; i < ACCUMULATORS; i++) a[i] = _mm256_setzero_ps();
  ROLLED for (; steps > 0; steps--)
    UNROLL for (int i = 0; i < ACCUMULATORS; i++) {
      a[i] = _mm256_fmadd_ps(x, y, a[i]);
      HELD(a[i]);
    }
}
