// Packs of bfloat16 from weights in bands: see bands.go and rounded.go. Needs AVX-512 BF16, BW,
// DQ and VL.
#include "wide.h"

// A row of a pack is 64 bytes of each block, which begin PACK bytes apart.
enum { PACK = 1024 };

INLINE void store(uint8_t *dst, __m512i first, __m512i second, __m512 d) {
  __m512 a = _mm512_mul_ps(_mm512_cvtepi32_ps(first), d), b = _mm512_mul_ps(_mm512_cvtepi32_ps(second), d);
  _mm512_storeu_si512(dst, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

// PackBand rounds one row as avx512Unband widens it.
KERNEL bf16PackBandQ8(uint8_t *dst, const uint8_t *w, const uint8_t *codes, int64_t step, int64_t each, int64_t blocks) {
  const __m256i at = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32((int)step));
  ROLLED for (; blocks > 0; blocks--) {
    const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(*(const short *)w));
    __m256i c = _mm256_xor_si256(_mm256_i32gather_epi32((const int *)codes, at, 1), _mm256_set1_epi8((char)0x80));
    store(dst, _mm512_cvtepi8_epi32(_mm256_castsi256_si128(c)), _mm512_cvtepi8_epi32(_mm256_extracti128_si256(c, 1)), d);
    dst += PACK, w += each, codes += each;
  }
}

// The values of a row's codes are a table, of which both halves of a byte are indices.
KERNEL bf16PackBandQ4(uint8_t *dst, const uint8_t *w, const uint8_t *codes, int64_t step, int64_t each, int64_t blocks) {
  const __m128i at = _mm_mullo_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32((int)step));
  const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  ROLLED for (; blocks > 0; blocks--) {
    __m256i table = (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(values, _mm512_cvtph_ps(_mm256_set1_epi16(*(const short *)w))));
    __m256i c = _mm256_cvtepu8_epi16(_mm_i32gather_epi32((const int *)codes, at, 1));
    _mm256_storeu_si256((__m256i *)dst, _mm256_permutexvar_epi16(c, table));
    _mm256_storeu_si256((__m256i *)(dst + 32), _mm256_permutexvar_epi16(_mm256_srli_epi16(c, 4), table));
    dst += PACK, w += each, codes += each;
  }
}
