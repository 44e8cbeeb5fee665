// AVX-512 BF16: rounding to pairs of bfloat16.
#include "wide.h"

// Narrow rounds to the nearest bfloat16, ties to even.
KERNEL avx512bf16Narrow(uint8_t *dst, const uint8_t *src, int64_t n) {
  ROLLED for (; n >= 16; n -= 16) {
    _mm256_storeu_si256((__m256i *)dst, (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(src)));
    dst += 32, src += 64;
  }
  if (n > 0) {
    const __mmask16 m = low(n);
    _mm256_mask_storeu_epi16(dst, m, (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(m, src)));
  }
}
