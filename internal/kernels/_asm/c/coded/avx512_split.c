// Products of coded bfloat16 weights and a token of float32, in AVX-512. The token has the elements of even and odd
// columns apart in blocks of 32, and the sums have the order of gemv's SplitOne.
#include "wide.h"
#include "codedgroup.h"

// split_rows computes R rows of count groups. It prefetches each row ahead bytes early, and the tables of
// the next R rows.
INLINE void split_rows(int R, const uint8_t *rows, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead) {
  const __m512i odd = _mm512_set1_epi32((int)0xffff0000);
  __m512 acc[8];
  const int64_t ws = before + count * GROUP;
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
  const uint8_t *rows3 = rows + (R > 3 ? 3 * ws : 0), *w = rows + before, *w3 = w + (R > 3 ? 3 * ws : 0);
  for (int r = 0; r < R; r++) _mm_prefetch(rows + (R + r) * ws, _MM_HINT_T0);
  const __m128i out = spill((int64_t)y);
  ROLLED for (; count > 0; count--) {
    OPAQUE(rows), OPAQUE(rows3), OPAQUE(w), OPAQUE(w3), OPAQUE(x);
    UNROLL for (int r = 0; r < R; r++) {
      const uint8_t *p = r < 3 || r == 4 ? w + r * ws : w3 + (r - 3) * ws;
      const uint8_t *table = r < 3 || r == 4 ? rows + r * ws : rows3 + (r - 3) * ws;
      UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(p + ahead + 64 * i, _MM_HINT_T0);
      const struct group g = decode_group(p, table_at(table), table + 16);
      UNROLL for (int i = 0; i < 4; i++) {
        acc[r] = _mm512_fmadd_ps((__m512)_mm512_slli_epi32(g.v[i], 16), _mm512_loadu_ps(x + 128 * i), acc[r]);
        acc[r] = _mm512_fmadd_ps((__m512)_mm512_and_si512(g.v[i], odd), _mm512_loadu_ps(x + 128 * i + 64), acc[r]);
      }
      AFTER(x, acc[r]), AFTER(w, acc[r]), AFTER(w3, acc[r]); // or the compiler does all loads first
    }
    w += GROUP, w3 += GROUP, x += 512;
  }
  float *sums = (float *)reload(out);
  if (R >= 4) {
    _mm_storeu_ps(sums, folds(acc[0], acc[1], acc[2], acc[3]));
    if (R == 8) _mm_storeu_ps(sums + 4, folds(acc[4], acc[5], acc[6], acc[7]));
  } else {
    *sums = fold(acc[0]);
  }
}

// split_row_by_row computes rows one after the other, with few instructions a cache line, so that more reads are under way. It
// prefetches them ahead bytes early into the second-level cache, across their ends.
INLINE void split_row_by_row(const uint8_t *w, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead, int64_t rows) {
  const __m512i odd = _mm512_set1_epi32((int)0xffff0000);
  const int64_t xs = count * 512;
  ROLLED for (; rows > 0; rows--) {
    const uint8_t *row = w;
    const __m512i first = table_at(row);
    ROLLED for (w += before; row < w; row += 64) _mm_prefetch(row + ahead, _MM_HINT_T1);
    row = w - before;
    __m512 acc = _mm512_setzero_ps();
    const uint8_t *end = x + xs;
    ROLLED while (x != end) {
      UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(w + ahead + 64 * i, _MM_HINT_T1);
      const struct group g = decode_group(w, first, row + 16);
      UNROLL for (int i = 0; i < 4; i++) {
        acc = _mm512_fmadd_ps((__m512)_mm512_slli_epi32(g.v[i], 16), _mm512_loadu_ps(x + 128 * i), acc);
        acc = _mm512_fmadd_ps((__m512)_mm512_and_si512(g.v[i], odd), _mm512_loadu_ps(x + 128 * i + 64), acc);
      }
      w += GROUP, x += 512;
    }
    *(float *)y = fold(acc);
    x -= xs, y += 4;
  }
}

#define ARGS const uint8_t *w, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead
KERNEL avx512CodedSplit8(ARGS) { split_rows(8, w, before, x, y, count, ahead); }
KERNEL avx512CodedSplit4(ARGS) { split_rows(4, w, before, x, y, count, ahead); }
#define EACH_ARGS const uint8_t *w, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead, int64_t rows
KERNEL avx512CodedSplit1(EACH_ARGS) { split_row_by_row(w, before, x, y, count, ahead, rows); }
