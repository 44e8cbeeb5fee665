// AVX2: products of rows of GGUF blocks with tokens of 8-bit blocks, see rows.go. Needs AVX2, FMA and F16C.
#include "common.h"
#include "rows.h"

// round32 rounds 32 activations to codes and returns their scale. The sums of 16 codes each are sums.
INLINE float round32(uint8_t *dst, const uint8_t *src, int sums[2]) {
  __m256i m = _mm256_setzero_si256();
  UNROLL for (int i = 0; i < 4; i++) m = _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(eight_at(src + 32 * i)), _mm256_set1_epi32(0x7fffffff)));
  __m128i q = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  q = _mm_max_epi32(q, _mm_unpackhi_epi64(q, q));
  q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 1));
  const uint32_t top = (uint32_t)_mm_cvtsi128_si32(q);
  float by = 0, d = __builtin_bit_cast(float, 0x7fc00000);
  if (top < 0x7f800000) {
    const float largest = __builtin_bit_cast(float, top);
    d = largest / 127;
    if (largest > 0x1p-100f) by = 127 / largest;
  }
  __m256i v[4];
  UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(eight_at(src + 32 * i), _mm256_set1_ps(by)));
  UNROLL for (int i = 0; i < 2; i++) {
    const __m256i both = _mm256_add_epi32(v[2 * i], v[2 * i + 1]);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
    sums[i] = _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 1)));
  }
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  _mm256_storeu_si256((__m256i *)dst, _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  return d;
}

KERNEL avx2RowsNarrow(uint8_t *dst, const uint8_t *src, int64_t blocks) {
  while (blocks > 0) {
    uint8_t *scale = dst + SCALES, *sums16 = dst + SUMS16;
    ROLLED for (int64_t some = blocks < 8 ? blocks : 8; some > 0; some--) {
      int sums[2];
      const float d = round32(dst, src, sums);
      *(float *)scale = d;
      *(float *)(scale + SUMS - SCALES) = d * (float)(sums[0] + sums[1]);
      *(int16_t *)sums16 = (int16_t)sums[0], *(int16_t *)(sums16 + 2) = (int16_t)sums[1];
      dst += 32, src += 128, scale += 4, sums16 += 4;
      OPAQUE(dst), OPAQUE(scale), OPAQUE(sums16), OPAQUE(src);
    }
    dst += STEP - 256, blocks -= 8;
  }
}

#define PREFIX(name, rows) avx2Rows##name##x##rows
#define MUL(name, f) MUL_ONE(name, f, 2) MUL_ONE(name, f, 1)
ALL_FORMATS
