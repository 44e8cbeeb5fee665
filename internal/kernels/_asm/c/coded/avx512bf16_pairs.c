// Products of coded bfloat16 weights and a token of bfloat16, in AVX-512 BF16. The sums have the order of gemv's Dot1:
// lane l has the products of k = 2l and 2l+1 (mod 32).
#include "wide.h"
#include "codedgroup.h"

INLINE __m512bh pairs(__m512i v) { return (__m512bh)v; }

// pairs_rows computes R rows of count groups. It prefetches as many bytes from ahead on, and R lines from head on.
INLINE void pairs_rows(int R, const uint8_t *tables, const uint8_t *w, const uint8_t *exceptions, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead, int64_t head) {
  __m512 acc[4];
  __m512i first[4];
  const int64_t ws = count * GROUP;
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps(), first[r] = table_at(tables + r * TABLE);
  const uint8_t *w3 = w + (R > 3 ? 3 * ws : 0);
  UNROLL for (int r = 0; r < R; r++) _mm_prefetch(w + head + 64 * r, _MM_HINT_T0);
  const __m128i out = away((int64_t)y);
  const uint8_t *next = w + ahead;
  ROLLED for (; count > 0; count--) {
    OPAQUE(w), OPAQUE(w3), OPAQUE(x), OPAQUE(next);
    UNROLL for (int r = 0; r < R; r++) {
      const uint8_t *p = r == 3 ? w3 : w + r * ws;
      UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(next + GROUP * r + 64 * i, _MM_HINT_T0);
      const struct group g = decode_group(p, first[r], tables + r * TABLE + 16, exceptions);
      UNROLL for (int i = 0; i < 4; i++) acc[r] = _mm512_dpbf16_ps(acc[r], pairs(g.v[i]), pairs(_mm512_loadu_si512(x + 64 * i)));
    }
    w += GROUP, w3 += GROUP, x += 256, next += R * GROUP;
  }
  float *sums = (float *)back(out);
  if (R == 4) {
    _mm_storeu_ps(sums, folds(acc[0], acc[1], acc[2], acc[3]));
  } else {
    *sums = fold(acc[0]);
  }
}

#define ARGS const uint8_t *tables, const uint8_t *groups, const uint8_t *exceptions, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead, int64_t head
KERNEL avx512bf16CodedPairs4(ARGS) { pairs_rows(4, tables, groups, exceptions, x, y, count, ahead, head); }
KERNEL avx512bf16CodedPairs1(ARGS) { pairs_rows(1, tables, groups, exceptions, x, y, count, ahead, head); }
