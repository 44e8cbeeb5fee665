// AVX2: unpacks codes of four bits that are numbers of a table's 16 values, and signed bytes; see tables.go. Needs AVX2
// and F16C. AVX-512 has no faster way: the values take more time to store than to look up.
#include "common.h"
#include "rounded.h"

INLINE __m256 eight(const uint8_t *p) { return _mm256_loadu_ps((const float *)p); }
INLINE __m256 every(const uint8_t *p) { return _mm256_broadcast_ss((const float *)p); }

// table unpacks groups of columns, a multiple of 8, of which each has a scale and a zero: rounded((value - zero) * scale).
// Even columns are in the low half of a byte, or in the high one where high is set.
INLINE void table(int high, int to, uint8_t *dst, const uint8_t *codes, const uint8_t *values, const uint8_t *scales, const uint8_t *zeros, int64_t groups, int64_t columns) {
  const __m256i down = high ? _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24) : _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i up = _mm256_sub_epi32(_mm256_set1_epi32(28), down); // the highest bit of a code becomes a sign
  const __m256 first = eight(values), second = eight(values + 32);
  ROLLED for (; groups > 0; groups--) {
    const __m256 zero = every(zeros), scale = every(scales);
    const __m256 a = rounded(to, _mm256_mul_ps(_mm256_sub_ps(first, zero), scale));
    const __m256 b = rounded(to, _mm256_mul_ps(_mm256_sub_ps(second, zero), scale));
    ROLLED for (int64_t left = columns; left > 0; left -= 8) {
      const __m256i c = _mm256_set1_epi32(*(const int *)codes);
      const __m256i at = _mm256_srlv_epi32(c, down);
      const __m256 v = _mm256_blendv_ps(_mm256_permutevar8x32_ps(a, at), _mm256_permutevar8x32_ps(b, at), _mm256_castsi256_ps(_mm256_sllv_epi32(c, up)));
      _mm256_storeu_ps((float *)dst, v);
      codes += 4, dst += 32;
    }
    scales += 4, zeros += 4;
  }
}

#define TABLE(name, high, to)                                                                                                                                      \
  KERNEL avx2Table##name(uint8_t *dst, const uint8_t *codes, const uint8_t *values, const uint8_t *scales, const uint8_t *zeros, int64_t groups, int64_t columns) { \
    table(high, to, dst, codes, values, scales, zeros, groups, columns);                                                                                            \
  }
TABLE(Low, 0, EXACT) TABLE(High, 1, EXACT) TABLE(HighBF16, 1, TO_BF16) TABLE(HighF16, 1, TO_F16)

// by has the scale, what it is multiplied by after rounding, and the zero and what codes are xored with as integers. n is a multiple of 8.
KERNEL avx2UnpackInt8(uint8_t *dst, const uint8_t *codes, int64_t n, const uint8_t *by) {
  const __m256 scale = every(by), factor = every(by + 4);
  const __m256i zero = _mm256_set1_epi32(*(const int *)(by + 8));
  const __m128i flip = _mm_set1_epi8((char)by[12]);
  ROLLED for (; n > 0; n -= 8) {
    const __m256i c = _mm256_sub_epi32(_mm256_cvtepi8_epi32(_mm_xor_si128(_mm_loadl_epi64((const __m128i *)codes), flip)), zero);
    _mm256_storeu_ps((float *)dst, _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(c), scale), factor));
    codes += 8, dst += 32;
  }
}
