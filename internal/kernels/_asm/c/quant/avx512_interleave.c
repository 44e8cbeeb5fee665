// AVX-512: interleaves the blocks of 16 rows, a band, and widens them: see interleave.go. Needs F,
// BW, DQ and VL, and BMI2.
#include "wide.h"

// ROW is the current block of row r of 16, which begin stride bytes apart. p[i] is row 3i.
#define ROW(r) (p[(r) / 3] + ((r) % 3) * stride)

typedef short scales __attribute__((vector_size(32)));

// begin_band stores the scales of 16 rows.
INLINE void begin_band(uint8_t *dst, const uint8_t *const *p, int64_t stride) {
  scales d = {};
  UNROLL for (int r = 0; r < 16; r++) d[r] = *(const short *)ROW(r);
  _mm256_storeu_si256((__m256i *)dst, (__m256i)d);
}

// quarters transposes the words of four vectors in each quarter.
INLINE void quarters(__m512i v[4]) {
  __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, c), v[1] = _mm512_unpackhi_epi64(a, c);
  v[2] = _mm512_unpacklo_epi64(b, d), v[3] = _mm512_unpackhi_epi64(b, d);
}

// band_q8 interleaves the codes of a block of 16 rows.
INLINE void band_q8(uint8_t *dst, const uint8_t *const *p, int64_t stride) {
  const __m512i flip = _mm512_set1_epi8((char)0x80);
  const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  __m512i v[8]; // rows i and i + 8
  UNROLL for (int i = 0; i < 8; i++) {
    const __m512i first = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(ROW(i) + 2)));
    v[i] = _mm512_inserti64x4(first, _mm256_loadu_si256((const __m256i *)(ROW(i + 8) + 2)), 1);
  }
  quarters(v), quarters(v + 4);
  UNROLL for (int j = 0; j < 4; j++) {
    _mm512_storeu_si512(dst + 64 * j, _mm512_xor_si512(_mm512_permutex2var_epi64(v[j], even, v[4 + j]), flip));
    _mm512_storeu_si512(dst + 64 * (4 + j), _mm512_xor_si512(_mm512_permutex2var_epi64(v[j], odd, v[4 + j]), flip));
  }
}

INLINE void band_q4(uint8_t *dst, const uint8_t *const *p, int64_t stride) {
  __m512i v[4]; // rows i, i + 4, i + 8 and i + 12
  UNROLL for (int i = 0; i < 4; i++) {
    v[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(ROW(i) + 2)));
    v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(ROW(i + 4) + 2)), 1);
    v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(ROW(i + 8) + 2)), 2);
    v[i] = _mm512_inserti32x4(v[i], _mm_loadu_si128((const __m128i *)(ROW(i + 12) + 2)), 3);
  }
  quarters(v);
  UNROLL for (int j = 0; j < 4; j++) _mm512_storeu_si512(dst + 64 * j, v[j]);
}

INLINE void bands(int bits, uint8_t *dst, const uint8_t *src, int64_t stride, int64_t blocks) {
  const uint8_t *p[6];
  UNROLL for (int i = 0; i < 6; i++) p[i] = src + times(stride, 3 * i);
  ROLLED for (; blocks > 0; blocks--) {
    // Of the next 16 rows: the hardware prefetcher begins anew with each.
    UNROLL for (int r = 0; r < 16; r++) _mm_prefetch(ROW(r) + times(stride, 16), _MM_HINT_T0);
    begin_band(dst, p, stride);
    if (bits == 8) band_q8(dst + 32, p, stride);
    else band_q4(dst + 32, p, stride);
    dst += 32 + 64 * bits;
    UNROLL for (int i = 0; i < 6; i++) {
      p[i] += 2 + 4 * bits;
      OPAQUE(p[i]);
    }
  }
}

// Bands interleaves blocks of 16 rows, stride bytes apart.
KERNEL avx512BandsQ8(uint8_t *dst, const uint8_t *src, int64_t stride, int64_t blocks) { bands(8, dst, src, stride, blocks); }
KERNEL avx512BandsQ4(uint8_t *dst, const uint8_t *src, int64_t stride, int64_t blocks) { bands(4, dst, src, stride, blocks); }

// LastBand interleaves blocks of fewer rows, whose codes take size bytes, and adds flip to each code without carry.
KERNEL avx512LastBand(uint8_t *dst, const uint8_t *src, int64_t stride, int64_t rows, int64_t size, int64_t blocks, int64_t flip) {
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
