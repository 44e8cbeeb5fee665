// AVX2 kernels of keys and values in pages. Needs AVX2, FMA and F16C.
#include "common.h"

// UnpackRowsQ8 widens rows of blocks of q8_0, each element one product.
KERNEL avx2UnpackRowsQ8(uint8_t *dst, int64_t ds, const uint8_t *src, int64_t ss, int64_t rows, int64_t blocks) {
  ROLLED for (; rows > 0; rows--) {
    uint8_t *to = dst;
    const uint8_t *from = src;
    ROLLED for (int64_t left = blocks; left > 0; left--, OPAQUE(left)) {
      const __m256 d = _mm256_cvtph_ps(_mm_set1_epi16(*(const short *)from));
      UNROLL for (int i = 0; i < 4; i++)
        _mm256_storeu_ps((float *)to + 8 * i, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(from + 2 + 8 * i)))), d));
      to += 128, from += 34;
    }
    dst += ds, src += ss;
  }
}
