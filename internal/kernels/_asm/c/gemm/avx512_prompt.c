// AVX-512: panels from rows of weights, and sums of products of panels. See prompt.go.
#include "wide.h"

// columns16 stores turned words as 16 columns, of which n are there.
INLINE void columns16(uint8_t *dst, __m512i v[16], int64_t n) {
  transpose16(v);
  UNROLL for (int i = 0; i < 16; i++) {
    if (n > i) _mm512_storeu_si512(dst + 64 * i, v[i]);
  }
}

// columns32 stores turned pairs of bfloat16 as 32 columns of float32, of which n are there.
INLINE void columns32(uint8_t *dst, __m512i v[16], int64_t n) {
  const __m512i high = _mm512_set1_epi32((int)0xffff0000);
  transpose16(v);
  UNROLL for (int i = 0; i < 16; i++) {
    if (n > 2 * i) _mm512_storeu_si512(dst + 128 * i, _mm512_slli_epi32(v[i], 16));
    if (n > 2 * i + 1) _mm512_storeu_si512(dst + 128 * i + 64, _mm512_and_si512(v[i], high));
  }
}

INLINE __m512i words(int f, const uint8_t *p, __mmask16 m) {
  if (f == F16) return (__m512i)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
  return (__m512i)_mm512_maskz_loadu_ps(m, p);
}

// widen_columns fills a panel: dst[k][i] = w[i][k], zeros from row rows on. Whole cache lines
// are fetched ahead bytes further on.
INLINE void widen_columns(int f, uint8_t *dst, const uint8_t *w, int64_t ws, int64_t rows, int64_t n, int64_t ahead) {
  const int each = f == BF16 ? 32 : 16; // columns of a block
  if (f == BF16 && rows >= 16) {
    ROLLED for (; n >= 32; n -= 32, OPAQUE(n)) {
      __m512i v[16];
      const uint8_t *row = w;
      UNROLL for (int i = 0; i < 16; i++) {
        v[i] = _mm512_loadu_si512(row);
        _mm_prefetch(row + ahead, _MM_HINT_T1);
        row += ws;
        OPAQUE(row);
      }
      columns32(dst, v, 32);
      dst += 2048, w += 64;
    }
  }
  ROLLED for (; n > 0; n -= each, OPAQUE(n)) {
    __m512i v[16];
    const uint8_t *row = w;
    const __mmask32 part = _bzhi_u32(0xffffffff, (uint32_t)(n > each ? each : n));
    UNROLL for (int i = 0; i < 16; i++) {
      const __mmask32 is = rows > i ? part : 0;
      v[i] = f == BF16 ? _mm512_maskz_loadu_epi16(is, row) : words(f, row, (__mmask16)is);
      _mm_prefetch(row + ahead, _MM_HINT_T1);
      row += ws;
      OPAQUE(row);
    }
    if (f == BF16) columns32(dst, v, n);
    else columns16(dst, v, n);
    dst += 64 * each, w += each * size_of(f);
  }
}

#define COLUMNS_ARGS uint8_t *dst, const uint8_t *w, int64_t ws, int64_t rows, int64_t n, int64_t ahead
KERNEL avx512WidenColumnsBF16(COLUMNS_ARGS) { widen_columns(BF16, dst, w, ws, rows, n, ahead); }
KERNEL avx512WidenColumnsF16(COLUMNS_ARGS) { widen_columns(F16, dst, w, ws, rows, n, ahead); }
KERNEL avx512WidenColumnsF32(COLUMNS_ARGS) { widen_columns(F32, dst, w, ws, rows, n, ahead); }

// sum_panels computes c[i][j] = sum over k of a[k][i] b[k][j] in ascending order of k, for rows in
// panels of R that lie as bytes apart, and up to 32 columns in two panels bs bytes apart. With
// add the sums go on from what c has.
INLINE void sum_panels(int R, const uint8_t *a, int64_t as, const uint8_t *b, int64_t bs, uint8_t *c, int64_t cs, int64_t n, int64_t rows, int64_t cols, int64_t add) {
  const __mmask16 m0 = low(cols > 16 ? 16 : cols), m1 = low(cols > 16 ? cols - 16 : 0);
  ROLLED for (; rows > 0; rows -= R) {
    __m512 acc[14][2];
    uint8_t *to = c;
    UNROLL for (int r = 0; r < R; r++) {
      acc[r][0] = acc[r][1] = _mm512_setzero_ps();
      if (add && rows > r) {
        acc[r][0] = _mm512_maskz_loadu_ps(m0, to);
        acc[r][1] = _mm512_maskz_loadu_ps(m1, to + 64);
      }
      to += cs;
      OPAQUE(to);
    }
    UNROLL for (int r = 0; r < R; r++) {
      _mm_prefetch(to, _MM_HINT_T0);
      _mm_prefetch(to + 64, _MM_HINT_T0);
      to += cs;
      OPAQUE(to);
    }
    const uint8_t *x = a;
    int64_t left = n;
    ROLLED for (; left > 0; left--) {
      OPAQUE(x), OPAQUE(b);
      const __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + bs);
      UNROLL for (int r = 0; r < R; r++) {
        const __m512 v = _mm512_set1_ps(((const float *)x)[r]);
        acc[r][0] = _mm512_fmadd_ps(v, b0, acc[r][0]);
        acc[r][1] = _mm512_fmadd_ps(v, b1, acc[r][1]);
      }
      x += 64, b += 64;
    }
    b -= times(n, 64);
    UNROLL for (int r = 0; r < R; r++) {
      if (rows > r) {
        _mm512_mask_storeu_ps(c, m0, acc[r][0]);
        _mm512_mask_storeu_ps(c + 64, m1, acc[r][1]);
      }
      c += cs;
      OPAQUE(c);
    }
    a += as;
  }
}

#define SUM_ARGS const uint8_t *a, int64_t as, const uint8_t *b, int64_t bs, uint8_t *c, int64_t cs, int64_t n, int64_t rows, int64_t cols, int64_t add
KERNEL avx512SumPanels(SUM_ARGS) { sum_panels(14, a, as, b, bs, c, cs, n, rows, cols, add); }
KERNEL avx512SumPanels8(SUM_ARGS) { sum_panels(8, a, as, b, bs, c, cs, n, rows, cols, add); }
KERNEL avx512SumPanels4(SUM_ARGS) { sum_panels(4, a, as, b, bs, c, cs, n, rows, cols, add); }
KERNEL avx512SumPanels2(SUM_ARGS) { sum_panels(2, a, as, b, bs, c, cs, n, rows, cols, add); }
