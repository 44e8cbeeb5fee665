// AVX-512 BF16: dot products of bfloat16 with bfloat16, added up in float32.
#include "pairs.h"

// dot_block computes four rows or one for one or two tokens: y[t][r] = sum over k of w[r][k] x[t][k]. Lane l
// has the products of k = 2l and 2l+1 (mod 32). The next four rows are prefetched meanwhile. held is y's stride.
INLINE const uint8_t *dot_block(int R, int T, const uint8_t *w, int64_t ws, const uint8_t **tokens, int64_t xs, uint8_t *y, __m128i held, int64_t n) {
  __m512 acc[4][8];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int t = 0; t < T; t++) acc[r][t] = _mm512_setzero_ps();
  const uint8_t *x = *tokens;
  const int64_t ws3 = times(ws, 3);
#define ROW(r) (w + ((r) == 3 ? ws3 : (r) * ws))
  int64_t left = n;
  const uint8_t *next = w + times(ws, 4);
  ROLLED for (; left >= 32; OPAQUE(left)) {
    OPAQUE(w), OPAQUE(x), OPAQUE(next);
    __m512i in[2];
    UNROLL for (int t = 0; t < T; t++) in[t] = _mm512_loadu_si512(x + t * xs);
    UNROLL for (int r = 0; r < R; r++) {
      _mm_prefetch(ROW(r) - w + next, _MM_HINT_T0);
      __m512i a = _mm512_loadu_si512(ROW(r));
      UNROLL for (int t = 0; t < T; t++) acc[r][t] = _mm512_dpbf16_ps(acc[r][t], pairs(a), pairs(in[t]));
    }
    w += 64, next += 64, x += 64, left -= 32;
  }
  OPAQUE(w), OPAQUE(x);
  if (left > 0) {
    const __mmask32 m = _bzhi_u32(0xffffffff, (uint32_t)left);
    const uint8_t *row = w, *token = x;
    __m512i a[4];
    UNROLL for (int r = 0; r < R; r++, row += ws, OPAQUE(row)) a[r] = _mm512_maskz_loadu_epi16(m, row);
    UNROLL for (int t = 0; t < T; t++, token += xs, OPAQUE(token)) {
      const __m512i in = _mm512_maskz_loadu_epi16(m, token);
      UNROLL for (int r = 0; r < R; r++) acc[r][t] = _mm512_dpbf16_ps(acc[r][t], pairs(a[r]), pairs(in));
    }
  }
  ends(R, T, acc, y, again(held));
  // Subtracting is cheaper than keeping the old pointer in a register over the loop.
  int64_t whole = n;
  OPAQUE(whole);
  whole &= ~31;
  *tokens = x - whole * 2;
  return w - whole * 2 + times(ws, R);
}

// dot_row is dot_block for one row and one token with few instructions a cache line, so that more reads are
// under way: a core begins those of the instructions that it has room for.
INLINE const uint8_t *dot_row(const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t n) {
  __m512 acc = _mm512_setzero_ps();
  int64_t left = n;
  ROLLED for (; left >= 128; OPAQUE(left)) {
    OPAQUE(w), OPAQUE(x);
    UNROLL for (int i = 0; i < 256; i += 64) {
      _mm_prefetch(w + i + 2048, _MM_HINT_T1);
      acc = _mm512_dpbf16_ps(acc, pairs(_mm512_loadu_si512(w + i)), pairs(_mm512_loadu_si512(x + i)));
    }
    w += 256, x += 256, left -= 128;
  }
  ROLLED for (; left >= 32; OPAQUE(left)) {
    OPAQUE(w), OPAQUE(x);
    acc = _mm512_dpbf16_ps(acc, pairs(_mm512_loadu_si512(w)), pairs(_mm512_loadu_si512(x)));
    w += 64, x += 64, left -= 32;
  }
  if (left > 0) {
    const __mmask32 m = _bzhi_u32(0xffffffff, (uint32_t)left);
    acc = _mm512_dpbf16_ps(acc, pairs(_mm512_maskz_loadu_epi16(m, w)), pairs(_mm512_maskz_loadu_epi16(m, x)));
  }
  *(float *)y = fold(acc);
  int64_t back = n;
  OPAQUE(back);
  return w - (back & ~31) * 2 + ws;
}

// dot computes all rows, four at a time, or one at a time at the end.
INLINE void dot(int T, MUL_ARGS) {
  const __m128i held = aside(ys);
  ROLLED for (; rows >= 4; OPAQUE(rows)) {
    w = dot_block(4, T, w, ws, &x, xs, y, held, n);
    y += 16, rows -= 4;
  }
  ROLLED for (; rows > 0; OPAQUE(rows)) {
    w = dot_block(1, T, w, ws, &x, xs, y, held, n);
    y += 4, rows--;
  }
}

KERNEL avx512bf16Dot1(MUL_ARGS) { dot(1, w, ws, x, xs, y, ys, n, rows); }
KERNEL avx512bf16Dot1x1(MUL_ARGS) {
  ROLLED for (; rows > 0; OPAQUE(rows)) {
    w = dot_row(w, ws, x, y, n);
    y += 4, rows--;
  }
}
KERNEL avx512bf16Dot2(MUL_ARGS) { dot(2, w, ws, x, xs, y, ys, n, rows); }
