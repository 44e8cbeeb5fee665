// Products of coded bfloat16 weights and several tokens of bfloat16, in AVX-512 BF16. Rows are decoded in
// registers, in pieces of their groups, so that the tokens' part stays in the first-level cache. The sums have the order
// of gemv's avx512bf16_dot.c: one of 16 lanes for each row and token, from the first column to the last. Between pieces
// they lie in memory.
#include "pairs.h"
#include "codedgroup.h"
#include "piecesums.h"

// A place is where a piece's rows begin, where the piece is in them, and where the tokens are. What is used once a piece waits in vector registers.
// A piece that is not the first of its rows adds to their sums, then all lanes are set in later.
struct place {
  const uint8_t *rows, *w, *x;
  __m128i sums, count, later_rows;
  __mmask16 later;
};

// piece computes the products of R rows, ws bytes apart, with T tokens. The sums are R T vectors: those of the first row,
// of the second, … . A later piece, ahead bytes on, and the tables of later rows, later_rows bytes on, are prefetched into
// the second-level cache meanwhile.
INLINE void piece(int R, int T, struct place *at, int64_t ws, int64_t xs, int64_t ahead) {
  const uint8_t *rows = at->rows, *w = at->w, *x = at->x, *next = w + ahead;
  UNROLL for (int r = 0; r < R; r++) _mm_prefetch(rows + again(at->later_rows) + r * ws, _MM_HINT_T1);
  __m512 acc[2][8];
  const uint8_t *sums = (const uint8_t *)again(at->sums);
  UNROLL for (int i = 0; i < R * T; i++) acc[i / T][i % T] = _mm512_maskz_loadu_ps(at->later, sums + 64 * i);
  const int64_t xs3 = times(xs, T > 3 ? 3 : 0);
#define TOKEN(t) (((t) < 4 ? x : fifth) + ((t) % 4 == 3 ? xs3 : (t) % 4 * xs))
  int64_t count = again(at->count);
  ROLLED for (; count > 0; count--) {
    OPAQUE(w), OPAQUE(x), OPAQUE(rows), OPAQUE(next);
    struct group g[2];
    UNROLL for (int r = 0; r < R; r++) {
      UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(next + r * ws + 64 * i, _MM_HINT_T1);
      g[r] = decode_group(w + r * ws, table_at(rows + r * ws), rows + r * ws + 16);
    }
    const uint8_t *fifth = x + times(xs, 4);
    UNROLL for (int i = 0; i < 4; i++) {
      OPAQUE(x), OPAQUE(fifth);
      UNROLL for (int t = 0; t < T; t++) {
        const __m512i in = _mm512_loadu_si512(TOKEN(t) + 64 * i);
        UNROLL for (int r = 0; r < R; r++) acc[r][t] = _mm512_dpbf16_ps(acc[r][t], pairs(g[r].v[i]), pairs(in));
      }
    }
    w += GROUP, x += 256, next += GROUP;
  }
  UNROLL for (int r = 0; r < R; r++) _mm_prefetch(next + r * ws, _MM_HINT_T1); // rows do not begin with cache lines
  uint8_t *to = (uint8_t *)again(at->sums);
  UNROLL for (int i = 0; i < R * T; i++) _mm512_storeu_ps(to + 64 * i, acc[i / T][i % T]);
  count = again(at->count);
  at->rows = rows + R * ws, at->w = w - count * GROUP + R * ws, at->x = x - count * 256;
  at->sums = aside((int64_t)(to + 64 * R * T));
}

#define TOKENS_ARGS const uint8_t *rows, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *sums, int64_t count, int64_t n, int64_t ahead, int64_t later_rows, int64_t later

// pieces computes count groups of n rows, two rows at a time.
INLINE void pieces(int T, TOKENS_ARGS) {
  struct place at = {rows, w, x, aside((int64_t)sums), aside(count), aside(later_rows), (__mmask16)later};
  __m128i left = aside(n);
  ROLLED while (again(left) >= 2) {
    piece(2, T, &at, ws, xs, ahead);
    left = aside(again(left) - 2);
  }
  if (again(left) > 0) piece(1, T, &at, ws, xs, ahead);
}

KERNEL avx512bf16CodedTokens8(TOKENS_ARGS) { pieces(8, rows, w, ws, x, xs, sums, count, n, ahead, later_rows, later); }
KERNEL avx512bf16CodedTokens6(TOKENS_ARGS) { pieces(6, rows, w, ws, x, xs, sums, count, n, ahead, later_rows, later); }
KERNEL avx512bf16CodedTokens4(TOKENS_ARGS) { pieces(4, rows, w, ws, x, xs, sums, count, n, ahead, later_rows, later); }
KERNEL avx512bf16CodedTokens2(TOKENS_ARGS) { pieces(2, rows, w, ws, x, xs, sums, count, n, ahead, later_rows, later); }

// avx512bf16CodedSums folds the sums of rows with tokens, both at least 1, into y[t][r].
KERNEL avx512bf16CodedSums(uint8_t *y, int64_t ys, uint8_t *sums, int64_t tokens, int64_t rows) { fold_rows(0, y, ys, sums, tokens, rows); }
