// AVX-512 BF16: operands of products in bfloat16, and of products in float32 as sums of
// bfloat16: x = x0 + x1 + x2, each part the nearest to what those before it leave.
#include "wide.h"

#define PART_ARGS uint8_t *dst, const uint8_t *x, int64_t xs, int64_t width, int64_t n, int64_t turn

// part is part p of x. Nothing is left of what is not finite.
INLINE __m512 rest(__m512 x, int p) {
  const __m512 inf = _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000));
  UNROLL for (int i = 0; i < p; i++) {
    const __m512i h = _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)), 16);
    x = _mm512_maskz_sub_ps(_mm512_cmp_ps_mask(_mm512_abs_ps((__m512)h), inf, _CMP_LT_OQ), x, (__m512)h);
  }
  return x;
}

// store writes 16 lines of 16 words, turned where turn is not 0.
INLINE void store(uint8_t *dst, __m512i v[16], int64_t turn) {
  if (turn) turn16(v);
  UNROLL for (int i = 0; i < 16; i++) _mm512_storeu_si512(dst + 64 * i, v[i]);
}

// columns takes up to 16 rows of x, n numbers each, in blocks of 32: of each row the pairs
// of a block, or turned, of each pair that of all rows. Part p of it.
INLINE void columns(int p, PART_ARGS) {
  ROLLED for (; n > 0; OPAQUE(n)) {
    const __mmask16 first = low(n > 16 ? 16 : n), second = low(n > 32 ? 16 : n > 16 ? n - 16 : 0);
    const uint8_t *row = x;
    uint8_t *to = dst;
    int64_t left = width;
    ROLLED for (; left > 0; left--) {
      const __m512 a = rest(_mm512_maskz_loadu_ps(first, row), p), b = rest(_mm512_maskz_loadu_ps(second, row + 64), p);
      _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(b, a));
      row += xs, to += 64;
      OPAQUE(left);
    }
    for (left = 16 - width; left > 0; left--) {
      _mm512_storeu_si512(to, _mm512_setzero_si512());
      to += 64;
      OPAQUE(left);
    }
    if (turn) {
      __m512i v[16];
      UNROLL for (int i = 0; i < 16; i++) v[i] = _mm512_loadu_si512(dst + 64 * i);
      store(dst, v, 1);
    }
    dst += 1024, x += 128, n -= 32;
  }
}

// lines takes n rows of x of up to 16 numbers: of each pair of rows the pairs of their
// numbers, or turned, of each number the pairs of a block of 32 rows.
INLINE void lines(int p, PART_ARGS) {
  const __mmask16 m = low(width);
  ROLLED for (; n > 0; OPAQUE(n)) {
    uint8_t *to = dst;
    int64_t left = n < 32 ? n : 32, pairs = 16;
    ROLLED for (; pairs > 0; pairs--) {
      const __mmask16 m0 = left > 0 ? m : 0, m1 = left > 1 ? m : 0;
      const __m512 a = rest(_mm512_maskz_loadu_ps(m0, x), p), b = rest(_mm512_maskz_loadu_ps(m1, x + xs), p);
      const __m512i even = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(a)), odd = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(b));
      _mm512_storeu_si512(to, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
      x += times(xs, 2), to += 64, left -= 2;
      OPAQUE(left);
    }
    if (turn) {
      __m512i v[16];
      UNROLL for (int i = 0; i < 16; i++) v[i] = _mm512_loadu_si512(dst + 64 * i);
      store(dst, v, 1);
    }
    dst += 1024, n -= 32;
  }
}

KERNEL avx512PartColumns0(PART_ARGS) { columns(0, dst, x, xs, width, n, turn); }
KERNEL avx512PartColumns1(PART_ARGS) { columns(1, dst, x, xs, width, n, turn); }
KERNEL avx512PartColumns2(PART_ARGS) { columns(2, dst, x, xs, width, n, turn); }
KERNEL avx512PartLines0(PART_ARGS) { lines(0, dst, x, xs, width, n, turn); }
KERNEL avx512PartLines1(PART_ARGS) { lines(1, dst, x, xs, width, n, turn); }
KERNEL avx512PartLines2(PART_ARGS) { lines(2, dst, x, xs, width, n, turn); }
