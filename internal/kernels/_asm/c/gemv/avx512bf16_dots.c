// AVX-512 BF16: dot products of bfloat16 rows with 4, 6 or 8 tokens of bfloat16: of whole rows, and of pieces of their
// columns, so that the tokens' part stays in the first-level cache. The sums are those of avx512bf16_dot.c: one of 16 lanes
// for each row and token, from the first column to the last. Between pieces they lie in memory.
#include "pairs.h"
#include "piecesums.h"

// AHEAD is how far ahead of their use whole rows are prefetched, if rows of the same call are.
#define AHEAD 2048

// What does not fit in registers; see dotShape in pairs_several_amd64.go.
typedef struct {
  int64_t ys, n, rows, jump;
  uint8_t *y; // room of the kernels
} shape;

#define DOTS_ARGS const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t far, int64_t apart, shape *s

// A place is where the kernel reads: rows ws bytes apart, tokens xs bytes apart, and three streams to prefetch, which are
// apart bytes apart.
struct place {
  const uint8_t *w, *x, *next;
  int64_t ws, xs, apart;
};

// dots_block computes R rows for T tokens: y[t][r] = sum over k of w[r][k] x[t][k], or adds them to R T vectors of sums, those
// of the first row, of the second, … . Beside every 32 columns it prefetches a line of each stream. The streams jump once:
// where AHEAD bytes of the rows are left, or at the end.
INLINE void dots_block(int whole, int R, int T, struct place *at, shape *s) {
  __m512 acc[4][8];
  OPAQUE(s);
  UNROLL for (int i = 0; i < R * T; i++) acc[i / T][i % T] = whole ? _mm512_setzero_ps() : _mm512_loadu_ps(s->y + 64 * i);
  const uint8_t *fifth = at->x + times(at->xs, 4);
  const int64_t xs3 = times(at->xs, 3);
#define TOKEN(t) (((t) < 4 ? at->x : fifth) + ((t) % 4 == 3 ? xs3 : (t) % 4 * at->xs))
  OPAQUE(s);
  int64_t left = s->n & ~31;
  ROLLED for (; left >= 32; OPAQUE(left)) {
    OPAQUE(at->w), OPAQUE(at->x), OPAQUE(at->next), OPAQUE(at->ws), OPAQUE(at->apart);
    if (T > 4) OPAQUE(fifth);
    if (left == AHEAD / 2) {
      OPAQUE(s);
      at->next += s->jump;
    }
    __m512i a[3];
    UNROLL for (int r = 0; r < R; r++) {
      _mm_prefetch(at->next + r * at->apart, _MM_HINT_T0);
      a[r] = _mm512_loadu_si512(at->w + r * at->ws);
    }
    UNROLL for (int t = 0; t < T; t++) {
      const __m512i in = _mm512_loadu_si512(TOKEN(t));
      UNROLL for (int r = 0; r < R; r++) acc[r][t] = _mm512_dpbf16_ps(acc[r][t], pairs(a[r]), pairs(in));
    }
    at->w += 64, at->next += 64, at->x += 64, left -= 32;
    if (T > 4) fifth += 64;
  }
  OPAQUE(s);
  left = s->n;
  if (left < AHEAD / 2) at->next += s->jump;
  left &= 31;
  if (left > 0) {
    OPAQUE(at->w), OPAQUE(at->x);
    if (T > 4) OPAQUE(fifth);
    uint32_t all = 0xffffffff;
    OPAQUE(all);
    const __mmask32 m = _bzhi_u32(all, (uint32_t)left);
    __m512i a[3];
    UNROLL for (int r = 0; r < R; r++) a[r] = _mm512_maskz_loadu_epi16(m, at->w + r * at->ws);
    UNROLL for (int t = 0; t < T; t++) {
      const __m512i in = _mm512_maskz_loadu_epi16(m, TOKEN(t));
      UNROLL for (int r = 0; r < R; r++) acc[r][t] = _mm512_dpbf16_ps(acc[r][t], pairs(a[r]), pairs(in));
    }
  }
  OPAQUE(s);
  if (whole) ends(R, T, acc, s->y, s->ys);
  else UNROLL for (int i = 0; i < R * T; i++) _mm512_storeu_ps(s->y + 64 * i, acc[i / T][i % T]);
  // Subtracting is cheaper than keeping the old pointers in registers over the loop.
  OPAQUE(s);
  left = (s->n & ~31) * 2;
  at->w += times(at->ws, R) - left, at->x -= left, s->y += whole ? 4 * R : 64 * R * T, s->rows -= R;
}

// dots computes all rows, three at a time, or one at a time at the end.
INLINE void dots(int whole, int T, DOTS_ARGS) {
  struct place at = {w, x, w + far, ws, xs, apart};
  s->y = y;
  ROLLED for (; s->rows >= 3; OPAQUE(s)) dots_block(whole, 3, T, &at, s);
  ROLLED for (; s->rows > 0; OPAQUE(s)) dots_block(whole, 1, T, &at, s);
}

#define DOTS(T)                                                                                  \
  KERNEL avx512bf16Dot##T(DOTS_ARGS) { dots(1, T, w, ws, x, xs, y, far, apart, s); }           \
  KERNEL avx512bf16Pieces##T(DOTS_ARGS) { dots(0, T, w, ws, x, xs, y, far, apart, s); }
DOTS(4) DOTS(6) DOTS(8)

// avx512bf16PieceSums folds the sums of rows with tokens, both at least 1, into y[t][r] and sets them to zero.
KERNEL avx512bf16PieceSums(uint8_t *y, int64_t ys, uint8_t *sums, int64_t tokens, int64_t rows) { fold_rows(1, y, ys, sums, tokens, rows); }
