// AVX-512 BF16: products of several tokens with rows in pieces of their columns, so that the tokens' part stays in
// the first-level cache. The sums are those of avx512bf16_dot.c: one of 16 lanes for each row and token, from the first
// column to the last. Between pieces they lie in memory.
#include "pairs.h"
#include "piecesums.h"

// piece adds the products of R rows with T tokens to sums, R T vectors: those of the first row, of the second, … .
// A later piece, ahead bytes on, is prefetched into the second-level cache meanwhile.
INLINE void piece(int R, int T, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, __m128i held, __m128i columns, int64_t ahead) {
  int64_t n = again(columns);
  OPAQUE(ws), OPAQUE(xs);
  __m512 acc[4][8];
  uint8_t *sums = (uint8_t *)again(held);
  UNROLL for (int i = 0; i < R * T; i++) acc[i / T][i % T] = _mm512_loadu_ps(sums + 64 * i);
  const uint8_t *fifth = x + times(xs, 4);
  const int64_t ws3 = times(ws, R > 3 ? 3 : 0), xs3 = times(xs, 3);
#define ROW(r) (w + ((r) == 3 ? ws3 : (r) * ws))
#define TOKEN(t) (((t) < 4 ? x : fifth) + ((t) % 4 == 3 ? xs3 : (t) % 4 * xs))
  const uint8_t *next = w + ahead;
  ROLLED for (; n >= 32; OPAQUE(n)) {
    OPAQUE(w), OPAQUE(x), OPAQUE(fifth), OPAQUE(next), OPAQUE(ws);
    __m512i a[4];
    UNROLL for (int r = 0; r < R; r++) {
      _mm_prefetch(ROW(r) - w + next, _MM_HINT_T1);
      a[r] = _mm512_loadu_si512(ROW(r));
    }
    UNROLL for (int t = 0; t < T; t++) {
      const __m512i in = _mm512_loadu_si512(TOKEN(t));
      UNROLL for (int r = 0; r < R; r++) acc[r][t] = _mm512_dpbf16_ps(acc[r][t], pairs(a[r]), pairs(in));
    }
    w += 64, next += 64, x += 64, fifth += 64, n -= 32;
  }
  if (n > 0) {
    OPAQUE(w), OPAQUE(x), OPAQUE(fifth);
    uint32_t all = 0xffffffff;
    OPAQUE(all);
    const __mmask32 m = _bzhi_u32(all, (uint32_t)n);
    __m512i a[4];
    UNROLL for (int r = 0; r < R; r++) a[r] = _mm512_maskz_loadu_epi16(m, ROW(r));
    UNROLL for (int t = 0; t < T; t++) {
      const __m512i in = _mm512_maskz_loadu_epi16(m, TOKEN(t));
      UNROLL for (int r = 0; r < R; r++) acc[r][t] = _mm512_dpbf16_ps(acc[r][t], pairs(a[r]), pairs(in));
    }
  }
  sums = (uint8_t *)again(held);
  UNROLL for (int i = 0; i < R * T; i++) _mm512_storeu_ps(sums + 64 * i, acc[i / T][i % T]);
}

#define PIECE_ARGS const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *sums, int64_t n, int64_t rows, int64_t ahead

// pieces adds one piece of all rows, R at a time.
INLINE void pieces(int T, int R, PIECE_ARGS) {
  const __m128i columns = aside(n);
  __m128i held = aside((int64_t)sums), left = aside(rows);
  ROLLED while (again(left) >= R) {
    piece(R, T, w, ws, x, xs, held, columns, ahead);
    w += times(ws, R), held = aside(again(held) + 64 * R * T), left = aside(again(left) - R);
  }
  if (R == 3 && again(left) == 2) {
    piece(2, T, w, ws, x, xs, held, columns, ahead);
    return;
  }
  ROLLED while (again(left) > 0) {
    piece(1, T, w, ws, x, xs, held, columns, ahead);
    w += times(ws, 1), held = aside(again(held) + 64 * T), left = aside(again(left) - 1);
  }
}

KERNEL avx512bf16Pieces8(PIECE_ARGS) { pieces(8, 3, w, ws, x, xs, sums, n, rows, ahead); }
KERNEL avx512bf16Pieces6(PIECE_ARGS) { pieces(6, 4, w, ws, x, xs, sums, n, rows, ahead); }
KERNEL avx512bf16Pieces4(PIECE_ARGS) { pieces(4, 4, w, ws, x, xs, sums, n, rows, ahead); }

// avx512bf16PieceSums folds the sums of rows with tokens, both at least 1, into y[t][r] and sets them to zero.
KERNEL avx512bf16PieceSums(uint8_t *y, int64_t ys, uint8_t *sums, int64_t tokens, int64_t rows) { fold_rows(1, y, ys, sums, tokens, rows); }
