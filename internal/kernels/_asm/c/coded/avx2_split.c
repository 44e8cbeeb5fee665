// Products of coded bfloat16 weights and a token of float32, in AVX2. The token has the elements of even and odd columns
// apart in blocks of 32, and the sums have the order of gemv's SplitOne.
#include "common.h"
#include "folds.h"
#include "codedhalf.h"

// add16 adds the products of 16 words, of which the even ones begin at x.
INLINE __m256 add16(__m256 sum, __m256i words, const uint8_t *x) {
  sum = _mm256_fmadd_ps((__m256)_mm256_slli_epi32(words, 16), _mm256_loadu_ps((const float *)x), sum);
  return _mm256_fmadd_ps((__m256)_mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000)), _mm256_loadu_ps((const float *)(x + 64)), sum);
}

// add_group adds the products of the group at p.
INLINE __m256 add_group(__m256 sum, const uint8_t *p, __m256i first, const uint8_t *second, const uint8_t *x) {
  UNROLL for (int half = 0; half < 2; half++) {
    const uint8_t *in = x + 256 * half;
    const __m256i h0 = high_bytes(p, 2 * half, first, second), l0 = load32(p + 64 * half);
    const __m256i h1 = high_bytes(p, 2 * half + 1, first, second), l1 = load32(p + 64 * half + 32);
    sum = add16(sum, _mm256_unpacklo_epi8(l0, h0), in);
    sum = add16(sum, _mm256_unpacklo_epi8(l1, h1), in + 32);
    sum = add16(sum, _mm256_unpackhi_epi8(l0, h0), in + 128);
    sum = add16(sum, _mm256_unpackhi_epi8(l1, h1), in + 160);
  }
  return sum;
}

// split_rows computes R rows of count groups. It prefetches each row ahead bytes early, and the tables of
// the next R rows.
INLINE void split_rows(int R, const uint8_t *rows, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead) {
  __m256 acc[4];
  const int64_t ws = before + count * GROUP;
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
  const uint8_t *rows3 = rows + (R > 3 ? 3 * ws : 0), *w = rows + before, *w3 = w + (R > 3 ? 3 * ws : 0);
  for (int r = 0; r < R; r++) _mm_prefetch(rows + (R + r) * ws, _MM_HINT_T0);
  ROLLED for (; count > 0; count--) {
    OPAQUE(rows), OPAQUE(rows3), OPAQUE(w), OPAQUE(w3), OPAQUE(x);
    UNROLL for (int r = 0; r < R; r++) {
      const uint8_t *p = r == 3 ? w3 : w + r * ws, *table = r == 3 ? rows3 : rows + r * ws;
      UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(p + ahead + 64 * i, _MM_HINT_T0);
      acc[r] = add_group(acc[r], p, table_at(table), table + 16, x);
      AFTER(x, acc[r]);
    }
    w += GROUP, w3 += GROUP, x += 512;
  }
  float *sums = (float *)y;
  if (R == 4) {
    _mm_storeu_ps(sums, folds(acc[0], acc[1], acc[2], acc[3]));
  } else {
    *sums = fold(acc[0]);
  }
}

// split_row_by_row computes rows one after the other, with few instructions a cache line, so that more reads are under way. It
// prefetches them ahead bytes early into the second-level cache, across their ends.
INLINE void split_row_by_row(const uint8_t *w, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead, int64_t rows) {
  const int64_t xs = count * 512;
  ROLLED for (; rows > 0; rows--) {
    const uint8_t *row = w;
    const __m256i first = table_at(row);
    ROLLED for (w += before; row < w; row += 64) _mm_prefetch(row + ahead, _MM_HINT_T1);
    row = w - before;
    __m256 acc = _mm256_setzero_ps();
    const uint8_t *end = x + xs;
    ROLLED while (x != end) {
      UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(w + ahead + 64 * i, _MM_HINT_T1);
      acc = add_group(acc, w, first, row + 16, x);
      w += GROUP, x += 512;
    }
    *(float *)y = fold(acc);
    x -= xs, y += 4;
  }
}

#define ARGS const uint8_t *w, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead
KERNEL avx2CodedSplit4(ARGS) { split_rows(4, w, before, x, y, count, ahead); }
#define EACH_ARGS const uint8_t *w, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead, int64_t rows
KERNEL avx2CodedSplit1(EACH_ARGS) { split_row_by_row(w, before, x, y, count, ahead, rows); }
