// The peak rates of a processor without AVX-512; see avx512_roof.c.
#include "common.h"

#define WIDTH 32
#include "roofread.h"

#define HELD(v) ({ __asm__ volatile("" : "+x"(v)); })
#define ACCUMULATORS 12

KERNEL roofRead2x8(const uint8_t *p, int64_t n, uint8_t *out) { read_all(p, n, out); }
KERNEL roofRead2x1(const uint8_t *p, int64_t n, uint8_t *out) { read_as_one_stream(p, n, out); }

KERNEL roofStream2(uint8_t *p, int64_t n, int64_t with) {
  const __m256i v = _mm256_set1_epi8((char)with);
  ROLLED for (; n > 0; n -= 64, p += 64) _mm256_stream_si256((__m256i *)p, v), _mm256_stream_si256((__m256i *)(p + 32), v);
  _mm_sfence();
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
