// Products of coded bfloat16 weights and a token of float32, in AVX-512. The token has the elements of even and odd
// columns apart in blocks of 32, and the sums have the order of gemv's SplitOne.
#include "wide.h"
#include "codedgroup.h"

// split_rows computes R rows of count groups. It prefetches as many bytes from ahead on, and R lines from head on.
INLINE void split_rows(int R, const uint8_t *tables, const uint8_t *w, const uint8_t *exceptions, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead, int64_t head) {
  const __m512i odd = _mm512_set1_epi32((int)0xffff0000);
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
      UNROLL for (int i = 0; i < 4; i++) {
        acc[r] = _mm512_fmadd_ps((__m512)_mm512_slli_epi32(g.v[i], 16), _mm512_loadu_ps(x + 128 * i), acc[r]);
        acc[r] = _mm512_fmadd_ps((__m512)_mm512_and_si512(g.v[i], odd), _mm512_loadu_ps(x + 128 * i + 64), acc[r]);
      }
      AFTER(x, acc[r]), AFTER(w, acc[r]), AFTER(w3, acc[r]); // or the compiler does all loads first
    }
    w += GROUP, w3 += GROUP, x += 512, next += R * GROUP;
  }
  float *sums = (float *)back(out);
  if (R == 4) {
    _mm_storeu_ps(sums, folds(acc[0], acc[1], acc[2], acc[3]));
  } else {
    *sums = fold(acc[0]);
  }
}

#define ARGS const uint8_t *tables, const uint8_t *groups, const uint8_t *exceptions, const uint8_t *x, uint8_t *y, int64_t count, int64_t ahead, int64_t head
KERNEL avx512CodedSplit4(ARGS) { split_rows(4, tables, groups, exceptions, x, y, count, ahead, head); }
KERNEL avx512CodedSplit1(ARGS) { split_rows(1, tables, groups, exceptions, x, y, count, ahead, head); }
