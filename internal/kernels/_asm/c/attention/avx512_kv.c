// AVX-512 kernels of keys and values in pages. Needs F, BW, DQ and VL, and BMI2.
#include "wide.h"

// UnpackRowsQ8 widens rows of blocks of q8_0, each element one product.
KERNEL avx512UnpackRowsQ8(uint8_t *dst, int64_t ds, const uint8_t *src, int64_t ss, int64_t rows, int64_t blocks) {
  ROLLED for (; rows > 0; rows--) {
    uint8_t *to = dst;
    const uint8_t *from = src;
    ROLLED for (int64_t left = blocks; left > 0; left--, OPAQUE(left)) {
      const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(*(const short *)from));
      UNROLL for (int h = 0; h < 2; h++)
        _mm512_storeu_ps(to + 64 * h, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(from + 2 + 16 * h)))), d));
      to += 128, from += 34;
    }
    dst += ds, src += ss;
  }
}
