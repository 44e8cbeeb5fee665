// AVX-512 BF16: operands of products in bfloat16, and of products in float32 as sums of
// bfloat16: x = x0 + x1 + x2, each part the nearest to what those before it leave.
#include "wide.h"

#define PART_ARGS uint8_t *dst, int64_t apart, const uint8_t *x, int64_t xs, int64_t width, int64_t n

// residual is what rounded halves leave of x. Nothing is left of what is not finite.
INLINE __m512 residual(__m512 x, __m256i rounded) {
  const __m512 inf = _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000));
  const __m512 h = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
  return _mm512_maskz_sub_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(h), inf, _CMP_LT_OQ), x, h);
}

#define LOW(v) _mm512_castsi512_si256(v)
#define HIGH(v) _mm512_extracti64x4_epi64(v, 1)

// put writes the parts of a and b, each a line of 32 halves: those of a, then those of b,
// or in pairs. It returns where the next line begins.
INLINE uint8_t *put(int parts, int pairs, uint8_t *to, int64_t apart, __m512 a, __m512 b) {
  UNROLL for (int p = 0; p < parts; p++) {
    const __m512i v = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    __m512i line = v;
    if (pairs) line = _mm512_or_si512(_mm512_cvtepu16_epi32(LOW(v)), _mm512_slli_epi32(_mm512_cvtepu16_epi32(HIGH(v)), 16));
    _mm512_storeu_si512(to, line);
    if (p < parts - 1) {
      a = residual(a, LOW(v)), b = residual(b, HIGH(v));
      to += apart;
      OPAQUE(to);
    }
  }
  return to - times(apart, parts - 1) + 64;
}

// columns takes up to 16 rows of x, n numbers each, in blocks of 32: of each row the pairs
// of a block. Parts are apart bytes apart. The lines of rows that are not there stay.
INLINE void columns(int parts, PART_ARGS) {
  ROLLED for (; n > 0; OPAQUE(n)) {
    const __mmask16 first = low(n > 16 ? 16 : n), second = low(n > 32 ? 16 : n > 16 ? n - 16 : 0);
    const uint8_t *row = x;
    uint8_t *to = dst;
    int64_t left = width;
    ROLLED for (; left > 0; left--) {
      to = put(parts, 0, to, apart, _mm512_maskz_loadu_ps(first, row), _mm512_maskz_loadu_ps(second, row + 64));
      row += xs;
      OPAQUE(left);
    }
    dst += 1024, x += 128, n -= 32;
  }
}

// lines takes n rows of x of up to 16 numbers: of each pair of rows the pairs of their
// numbers.
INLINE void lines(int parts, PART_ARGS) {
  const __mmask16 m = low(width);
  ROLLED for (; n > 0; OPAQUE(n)) {
    uint8_t *to = dst;
    int64_t left = n < 32 ? n : 32, pairs = 16;
    ROLLED for (; pairs > 0; pairs--) {
      const __mmask16 m0 = left > 0 ? m : 0, m1 = left > 1 ? m : 0;
      to = put(parts, 1, to, apart, _mm512_maskz_loadu_ps(m0, x), _mm512_maskz_loadu_ps(m1, x + xs));
      x += times(xs, 2), left -= 2;
      OPAQUE(left);
    }
    dst += 1024, n -= 32;
  }
}

KERNEL avx512ColumnParts1(PART_ARGS) { columns(1, dst, apart, x, xs, width, n); }
KERNEL avx512ColumnParts3(PART_ARGS) { columns(3, dst, apart, x, xs, width, n); }
KERNEL avx512LineParts1(PART_ARGS) { lines(1, dst, apart, x, xs, width, n); }
KERNEL avx512LineParts3(PART_ARGS) { lines(3, dst, apart, x, xs, width, n); }

// HalfColumns is columns of numbers in bfloat16, of one part.
KERNEL avx512HalfColumns(uint8_t *dst, const uint8_t *x, int64_t xs, int64_t width, int64_t n) {
  ROLLED for (; n > 0; OPAQUE(n)) {
    const __mmask32 m = _bzhi_u32(-1u, (uint32_t)(n > 32 ? 32 : n));
    const uint8_t *row = x;
    uint8_t *to = dst;
    int64_t left = width;
    ROLLED for (; left > 0; left--) {
      _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(m, row));
      row += xs, to += 64;
      OPAQUE(left);
    }
    dst += 1024, x += 64, n -= 32;
  }
}

// HalfLines is lines of numbers in bfloat16, of one part.
KERNEL avx512HalfLines(uint8_t *dst, const uint8_t *x, int64_t xs, int64_t width, int64_t n) {
  const __mmask16 m = low(width);
  ROLLED for (; n > 0; OPAQUE(n)) {
    int64_t left = n < 32 ? n : 32, pairs = 16;
    ROLLED for (; pairs > 0; pairs--) {
      const __mmask16 m0 = left > 0 ? m : 0, m1 = left > 1 ? m : 0;
      const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m0, x)), odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m1, x + xs));
      _mm512_storeu_si512(dst, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
      x += times(xs, 2), dst += 64, left -= 2;
      OPAQUE(left);
    }
    n -= 32;
  }
}

// TransposeParts transposes blocks of 16 lines of 16 words in place. A block of columns has a line of pairs for each
// row; it becomes a line for each pair, with all rows. A block of lines is transposed the other way round.
KERNEL avx512TransposeParts(uint8_t *dst, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    __m512i v[16];
    UNROLL for (int i = 0; i < 16; i++) v[i] = _mm512_loadu_si512(dst + 64 * i);
    transpose16(v);
    UNROLL for (int i = 0; i < 16; i++) _mm512_storeu_si512(dst + 64 * i, v[i]);
    dst += 1024;
    OPAQUE(blocks);
  }
}
