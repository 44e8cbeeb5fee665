// AVX-512: interleaves the blocks of 16 rows, a band, and widens them: see interleave.go. Needs F,
// BW, DQ and VL, and BMI2.
#include "wide.h"

// Bands interleaves blocks of up to 16 rows, stride bytes apart, whose codes take size bytes,
// and adds flip to each code without carry.
KERNEL avx512Bands(uint8_t *dst, const uint8_t *src, int64_t stride, int64_t rows, int64_t size, int64_t blocks, int64_t flip) {
  const __mmask16 m = low(rows);
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i at = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)stride)), flips = _mm512_set1_epi8((char)flip);
  ROLLED for (; blocks > 0; blocks--) {
    __m512i d = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), m, at, src, 1);
    _mm256_mask_storeu_epi16(dst, m, _mm512_cvtepi32_epi16(d));
    dst += 2 * rows, src += 2;
    ROLLED for (int64_t left = size; left > 0; left -= 4) {
      __m512i c = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), m, at, src, 1);
      _mm512_mask_storeu_epi32(dst, m, _mm512_xor_si512(c, flips));
      dst += 4 * rows, src += 4;
    }
  }
}

// Unband widens one row: blocks begin each bytes apart with scales at w, and codes of four
// columns lie step bytes apart.
KERNEL avx512UnbandQ8(uint8_t *dst, const uint8_t *w, const uint8_t *codes, int64_t step, int64_t each, int64_t blocks) {
  const __m256i at = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32((int)step));
  ROLLED for (; blocks > 0; blocks--) {
    const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(*(const short *)w));
    __m256i c = _mm256_xor_si256(_mm256_i32gather_epi32((const int *)codes, at, 1), _mm256_set1_epi8((char)0x80));
    _mm512_storeu_ps(dst, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(c))), d));
    _mm512_storeu_ps(dst + 64, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(c, 1))), d));
    dst += 128, w += each, codes += each;
  }
}

KERNEL avx512UnbandQ4(uint8_t *dst, const uint8_t *w, const uint8_t *codes, int64_t step, int64_t each, int64_t blocks) {
  const __m128i at = _mm_mullo_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32((int)step));
  const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  ROLLED for (; blocks > 0; blocks--) {
    const __m512 table = _mm512_mul_ps(values, _mm512_cvtph_ps(_mm256_set1_epi16(*(const short *)w)));
    __m512i c = _mm512_cvtepu8_epi32(_mm_i32gather_epi32((const int *)codes, at, 1));
    _mm512_storeu_ps(dst, _mm512_permutexvar_ps(c, table));
    _mm512_storeu_ps(dst + 64, _mm512_permutexvar_ps(_mm512_srli_epi32(c, 4), table));
    dst += 128, w += each, codes += each;
  }
}
