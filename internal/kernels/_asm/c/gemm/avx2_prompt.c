// AVX2: panels from rows of weights, and sums of products of panels. See prompt.go.
#include "common.h"
#include "avx2panels.h"

INLINE __m256 load(int f, const uint8_t *p) {
  if (f == BF16) return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
  if (f == F16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
  return _mm256_loadu_ps((const float *)p);
}

// widen_columns fills a panel: dst[k][i] = w[i][k] for n columns, a multiple of 8, zeros from
// row rows on. Cache lines are fetched ahead bytes further on.
INLINE void widen_columns(int f, uint8_t *dst, const uint8_t *w, int64_t ws, int64_t rows, int64_t n, int64_t ahead) {
  ROLLED for (; n > 0; n -= 8, OPAQUE(n)) {
    __m256 v[8], t[8];
    const uint8_t *row = w;
    UNROLL for (int i = 0; i < 8; i++) {
      v[i] = _mm256_setzero_ps();
      if (rows > i) v[i] = load(f, row);
      _mm_prefetch(row + ahead, _MM_HINT_T1);
      row += ws;
      OPAQUE(row);
    }
    UNROLL for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4) {
      v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    UNROLL for (int i = 0; i < 8; i++)
      _mm256_storeu_ps((float *)(dst + 32 * i), i < 4 ? _mm256_permute2f128_ps(v[i % 4], v[i % 4 + 4], 0x20) : _mm256_permute2f128_ps(v[i % 4], v[i % 4 + 4], 0x31));
    dst += 256, w += 8 * size_of(f);
  }
}

#define COLUMNS_ARGS uint8_t *dst, const uint8_t *w, int64_t ws, int64_t rows, int64_t n, int64_t ahead
KERNEL avx2WidenColumnsBF16(COLUMNS_ARGS) { widen_columns(BF16, dst, w, ws, rows, n, ahead); }
KERNEL avx2WidenColumnsF16(COLUMNS_ARGS) { widen_columns(F16, dst, w, ws, rows, n, ahead); }
KERNEL avx2WidenColumnsF32(COLUMNS_ARGS) { widen_columns(F32, dst, w, ws, rows, n, ahead); }

// sum_panels is that of AVX-512 for panels of up to 6 rows and 8 columns.
INLINE void sum_panels(int R, const uint8_t *a, int64_t as, const uint8_t *b, int64_t bs, uint8_t *c, int64_t cs, int64_t n, int64_t rows, int64_t cols, int64_t add) {
  ROLLED for (; rows > 0; rows -= R) {
    __m256 acc[6][2];
    uint8_t *to = c;
    UNROLL for (int r = 0; r < R; r++) {
      acc[r][0] = acc[r][1] = _mm256_setzero_ps();
      OPAQUE(rows);
      if (add && rows > r) {
        OPAQUE(cols);
        acc[r][0] = _mm256_maskload_ps((const float *)to, edge(cols));
        acc[r][1] = _mm256_maskload_ps((const float *)to + 8, edge(cols - 8));
      }
      to += cs;
      OPAQUE(to);
    }
    UNROLL for (int r = 0; r < R; r++) {
      _mm_prefetch(to, _MM_HINT_T0);
      to += cs;
      OPAQUE(to);
    }
    b = steps(R, acc, a, b, bs, n);
    UNROLL for (int r = 0; r < R; r++) {
      OPAQUE(rows);
      if (rows > r) {
        OPAQUE(cols);
        _mm256_maskstore_ps((float *)c, edge(cols), acc[r][0]);
        _mm256_maskstore_ps((float *)c + 8, edge(cols - 8), acc[r][1]);
      }
      c += cs;
      OPAQUE(c);
    }
    a += as;
  }
}

#define SUM_ARGS const uint8_t *a, int64_t as, const uint8_t *b, int64_t bs, uint8_t *c, int64_t cs, int64_t n, int64_t rows, int64_t cols, int64_t add
KERNEL avx2SumPanels(SUM_ARGS) { sum_panels(6, a, as, b, bs, c, cs, n, rows, cols, add); }
KERNEL avx2SumPanels4(SUM_ARGS) { sum_panels(4, a, as, b, bs, c, cs, n, rows, cols, add); }
KERNEL avx2SumPanels2(SUM_ARGS) { sum_panels(2, a, as, b, bs, c, cs, n, rows, cols, add); }
