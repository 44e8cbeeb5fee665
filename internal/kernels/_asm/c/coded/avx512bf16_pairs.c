// Products of coded bfloat16 weights and a token of bfloat16, in AVX-512 BF16. The sums have the order of gemv's Dot1:
// lane l has the products of k = 2l and 2l+1 (mod 32).
#include "pairs.h"
#include "codedgroup.h"

// pairs_rows computes R rows of count groups. It prefetches each row ahead bytes early, and the tables of
// the next R rows.
INLINE void pairs_rows(int R, const uint8_t *rows, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead) {
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
      UNROLL for (int i = 0; i < 4; i++) acc[r] = _mm512_dpbf16_ps(acc[r], pairs(g.v[i]), pairs(_mm512_loadu_si512(x + 64 * i)));
      AFTER(x, acc[r]), AFTER(w, acc[r]), AFTER(w3, acc[r]); // or the compiler does all loads first
    }
    w += GROUP, w3 += GROUP, x += 256;
  }
  float *sums = (float *)reload(out);
  if (R >= 4) {
    _mm_storeu_ps(sums, folds(acc[0], acc[1], acc[2], acc[3]));
    if (R == 8) _mm_storeu_ps(sums + 4, folds(acc[4], acc[5], acc[6], acc[7]));
  } else {
    *sums = fold(acc[0]);
  }
}

// pairs_row_by_row computes rows one after the other, with few instructions a cache line, so that more reads are under way. It
// prefetches them ahead bytes early into the second-level cache, across their ends.
INLINE void pairs_row_by_row(const uint8_t *w, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead, int64_t rows) {
  const int64_t xs = count * 256;
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
      UNROLL for (int i = 0; i < 4; i++) acc = _mm512_dpbf16_ps(acc, pairs(g.v[i]), pairs(_mm512_loadu_si512(x + 64 * i)));
      w += GROUP, x += 256;
    }
    *(float *)y = fold(acc);
    x -= xs, y += 4;
  }
}

#define ARGS const uint8_t *w, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead
KERNEL avx512bf16CodedPairs8(ARGS) { pairs_rows(8, w, before, x, y, count, ahead); }
KERNEL avx512bf16CodedPairs4(ARGS) { pairs_rows(4, w, before, x, y, count, ahead); }
#define EACH_ARGS const uint8_t *w, int64_t before, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead, int64_t rows
KERNEL avx512bf16CodedPairs1(EACH_ARGS) { pairs_row_by_row(w, before, x, y, count, ahead, rows); }
