// AVX-512 BF16: packed products of bfloat16 for few tokens, with the sums of avx512bf16Tile.
#include "wide.h"

// TransposePack transposes the blocks of a pack in place: for each pair of k the pairs of 16 rows.
KERNEL avx512bf16TransposePack(uint8_t *w, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    __m512i v[16];
    UNROLL for (int i = 0; i < 16; i++) v[i] = _mm512_loadu_si512(w + 64 * i);
    transpose16(v);
    UNROLL for (int i = 0; i < 16; i++) _mm512_storeu_si512(w + 64 * i, v[i]);
    w += 1024;
  }
}

// TransposeRows is TransposePack for 16 rows of weights, ws bytes apart, which it reads in place.
KERNEL avx512bf16TransposeRows(uint8_t *to, const uint8_t *w, int64_t ws, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    __m512i v[16];
    const uint8_t *row = w;
    UNROLL for (int i = 0; i < 16; i++) {
      v[i] = _mm512_loadu_si512(row);
      row += ws;
      OPAQUE(row);
    }
    transpose16(v);
    UNROLL for (int i = 0; i < 16; i++) _mm512_storeu_si512(to + 64 * i, v[i]);
    to += 1024, w += 64;
  }
}

// few_tokens sets y[t][r] of 32 rows and up to most tokens. It prefetches as many bytes as a pack from next on, and as many
// after bytes further on.
INLINE void few_tokens(uint8_t *y, int64_t ys, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t blocks, int64_t rows, int64_t tokens, const uint8_t *next, int64_t after, const int most) {
  __m512 acc[8][2];
  UNROLL for (int t = 0; t < most; t++) acc[t][0] = acc[t][1] = _mm512_setzero_ps();
  ROLLED for (int64_t k = times(blocks, 16); k > 0; k--, OPAQUE(k)) {
    OPAQUE(w), OPAQUE(x), OPAQUE(next);
    _mm_prefetch(next, _MM_HINT_T1), _mm_prefetch(next + after, _MM_HINT_T1);
    const __m512i a = _mm512_loadu_si512(w), b = _mm512_loadu_si512(w + ws);
    UNROLL for (int t = 0; t < most; t++) {
      const __m512i v = _mm512_set1_epi32(*(const int32_t *)(x + 4 * t));
      acc[t][0] = _mm512_dpbf16_ps(acc[t][0], (__m512bh)a, (__m512bh)v);
      acc[t][1] = _mm512_dpbf16_ps(acc[t][1], (__m512bh)b, (__m512bh)v);
    }
    w += 64, x += 64, next += 64;
  }
  const __mmask16 first = low(rows > 16 ? 16 : rows), second = low(rows > 16 ? rows - 16 : 0);
  UNROLL for (int t = 0; t < most; t++) {
    if (tokens > t) {
      _mm512_mask_storeu_ps(y, first, acc[t][0]);
      _mm512_mask_storeu_ps(y + 64, second, acc[t][1]);
    }
    y += ys;
    OPAQUE(y);
  }
}

// TileFew sets y[t][r] = Σ w[r][k] · x[t][k] for up to 32 rows of two transposed packs, ws bytes apart, and
// up to 8 tokens of a panel. It prefetches as few_tokens does.
KERNEL avx512bf16TileFew(uint8_t *y, int64_t ys, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t blocks, int64_t rows, int64_t tokens, const uint8_t *next, int64_t after) {
  if (tokens > 4) few_tokens(y, ys, w, ws, x, blocks, rows, tokens, next, after, 8);
  else if (tokens > 2) few_tokens(y, ys, w, ws, x, blocks, rows, tokens, next, after, 4);
  else few_tokens(y, ys, w, ws, x, blocks, rows, tokens, next, after, 2);
}
