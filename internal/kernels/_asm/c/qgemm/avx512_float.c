// AVX-512: products of interleaved weights with float32 tokens, see float.go. A band is a tile of
// 16 rows, see interleaved.go. Needs F, BW, DQ and VL, and BMI2.
#include "wide.h"

// AHEAD is the distance of the prefetch in blocks: the hardware prefetcher stops at the end of a
// page.
enum { AHEAD = 8 };

// A code becomes a float without a conversion: at the bits of 2^(23-s), from bit s on, it adds
// itself. Then (code - zero) d = (2^(23-s) + code) d - (2^(23-s) + zero) d is one fused step. It is
// exact, as the second product has at most 24 significant bits. One shift moves two codes of a word
// to their places.
INLINE int first_place(int bits) { return bits == 8 ? 4 : 8; }

INLINE int place(int bits, int second) { return first_place(bits) + 8 * second; }

INLINE __m512 powered(int bits, int second, __m512i c) {
  const int s = place(bits, second);
  return (__m512)_mm512_ternarylogic_epi32(c, _mm512_set1_epi32(((1 << bits) - 1) << s), _mm512_set1_epi32((127 + 23 - s) << 23), 0xea);
}

// offset is -(2^(23-s) + zero) d.
INLINE __m512 offset(int bits, int second, __m512 d) {
  return _mm512_mul_ps(d, _mm512_set1_ps(-(float)((1 << (23 - place(bits, second))) + (bits == 8 ? 128 : 8))));
}

// shifted moves codes 2 pair and 2 pair + 1 of half h of words to their places.
INLINE __m512i shifted(int bits, int h, int pair, __m512i c) {
  const int left = first_place(bits) - 4 * h - 16 * pair;
  return left > 0 ? _mm512_slli_epi32(c, left) : _mm512_srli_epi32(c, -left);
}

// of returns token t.
INLINE const uint8_t *of(const uint8_t *p, const uint8_t *three, const uint8_t *six, int64_t s, int t) {
  return t < 3 ? p + t * s : t == 6 ? six : three + (t - 3) * s;
}

// BAND is band g. Bands are ws bytes apart; w3 is the fourth.
#define BAND(g) ((g) == 3 ? w3 : w + (g) * ws)

// sums computes the rows of G bands for T tokens. A lane is a row. It adds its products in
// ascending order of the columns.
INLINE void sums(int bits, int G, int T, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) {
  const int size = 32 + 64 * bits;
  __m512 acc[4][8];
  UNROLL for (int t = 0; t < T; t++) UNROLL for (int g = 0; g < G; g++) acc[g][t] = _mm512_setzero_ps();
  if (add) {
    uint8_t *to = y;
    UNROLL for (int t = 0; t < T; t++) {
      UNROLL for (int g = 0; g < G; g++) acc[g][t] = _mm512_loadu_ps(to + 64 * g);
      to += ys;
      OPAQUE(to);
    }
  }
  const uint8_t *x3 = x + times(xs, 3), *x6 = x3 + times(xs, 3), *w3 = w + times(ws, 3);
  ROLLED for (; blocks > 0; blocks--) {
    __m512 d[4], less[4][2];
    UNROLL for (int g = 0; g < G; g++) {
      d[g] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)BAND(g)));
      less[g][0] = offset(bits, 0, d[g]), less[g][1] = offset(bits, 1, d[g]);
    }
    UNROLL for (int h = 0; h < 8 / bits; h++) {
      UNROLL for (int j = 0; j < bits; j++) {
        if (h == 0) UNROLL for (int g = 0; g < G; g++) _mm_prefetch(BAND(g) + AHEAD * size + 64 * j, _MM_HINT_T0);
        UNROLL for (int i = 0; i < 4; i++) {
          __m512 v[4];
          UNROLL for (int g = 0; g < G; g++) {
            __m512i c = shifted(bits, h, i / 2, _mm512_loadu_si512(BAND(g) + 32 + 64 * j));
            v[g] = _mm512_fmadd_ps(powered(bits, i % 2, c), d[g], less[g][i % 2]);
          }
          UNROLL for (int t = 0; t < T; t++) {
            __m512 in = _mm512_set1_ps(((const float *)of(x, x3, x6, xs, t))[16 * h + 4 * j + i]);
            UNROLL for (int g = 0; g < G; g++) acc[g][t] = _mm512_fmadd_ps(v[g], in, acc[g][t]);
          }
          if (i % 2 == 0) continue;
          UNROLL for (int t = 0; t < T; t++) UNROLL for (int g = 0; g < G; g++) AFTER(x, acc[g][t]), AFTER(w, acc[g][t]);
          AFTER(x3, acc[0][0]), AFTER(x6, acc[0][0]), AFTER(w3, acc[0][0]);
        }
      }
    }
    w += size, w3 += size, x += 128, x3 += 128, x6 += 128;
    OPAQUE(w), OPAQUE(w3), OPAQUE(x), OPAQUE(x3), OPAQUE(x6);
  }
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int g = 0; g < G; g++) _mm512_storeu_ps(y + 64 * g, acc[g][t]);
    y += ys;
    OPAQUE(y);
  }
}

#define SUMS(Q, B, G, T)                                                                                                                            \
  KERNEL avx512InterleavedSums##Q##G##x##T(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) { \
    sums(B, G, T, w, ws, x, xs, y, ys, blocks, add);                                                                                                  \
  }
SUMS(Q8, 8, 4, 1) SUMS(Q8, 8, 2, 1) SUMS(Q8, 8, 1, 1) SUMS(Q8, 8, 2, 2) SUMS(Q8, 8, 2, 4) SUMS(Q8, 8, 2, 8)
SUMS(Q4, 4, 4, 1) SUMS(Q4, 4, 2, 1) SUMS(Q4, 4, 1, 1) SUMS(Q4, 4, 2, 2) SUMS(Q4, 4, 2, 4) SUMS(Q4, 4, 2, 8)

// values returns the values of codes i of half h of words.
INLINE __m512 values(int bits, int h, int i, __m512i c, __m512 d) {
  return _mm512_fmadd_ps(powered(bits, i % 2, shifted(bits, h, i / 2, c)), d, offset(bits, i % 2, d));
}

// edge is sums of one band of up to 16 rows for one token. The sums continue from y.
INLINE void edge(int bits, const uint8_t *w, int64_t rows, const uint8_t *x, uint8_t *y, int64_t blocks) {
  const __mmask16 m = low(rows);
  __m512 acc = _mm512_loadu_ps(y);
  ROLLED for (; blocks > 0; blocks--) {
    const __m512 d = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, w));
    UNROLL for (int h = 0; h < 8 / bits; h++) {
      const uint8_t *codes = w + 2 * rows;
      UNROLL for (int j = 0; j < bits; j++) {
        const __m512i c = _mm512_maskz_loadu_epi32(m, codes);
        UNROLL for (int i = 0; i < 4; i++) acc = _mm512_fmadd_ps(values(bits, h, i, c, d), _mm512_set1_ps(((const float *)x)[16 * h + 4 * j + i]), acc);
        codes += 4 * rows;
        AFTER(codes, acc);
      }
    }
    w += times(rows, 2 + 4 * bits), x += 128;
  }
  _mm512_storeu_ps(y, acc);
}

#define EDGE_ARGS const uint8_t *w, int64_t rows, const uint8_t *x, uint8_t *y, int64_t blocks
KERNEL avx512BandEdgeQ8(EDGE_ARGS) { edge(8, w, rows, x, y, blocks); }
KERNEL avx512BandEdgeQ4(EDGE_ARGS) { edge(4, w, rows, x, y, blocks); }

// panel widens a band of 16 rows, column by column.
INLINE void panel(int bits, uint8_t *dst, const uint8_t *w, int64_t blocks) {
  const int size = 32 + 64 * bits;
  ROLLED for (; blocks > 0; blocks--) {
    const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)w));
    UNROLL for (int j = 0; j < bits; j++) {
      _mm_prefetch(w + AHEAD * size + 64 * j, _MM_HINT_T0);
      const __m512i c = _mm512_loadu_si512(w + 32 + 64 * j);
      UNROLL for (int h = 0; h < 8 / bits; h++) UNROLL for (int i = 0; i < 4; i++) _mm512_storeu_ps(dst + 64 * (16 * h + 4 * j + i), values(bits, h, i, c, d));
    }
    w += size, dst += 2048;
  }
}

KERNEL avx512BandPanelQ8(uint8_t *dst, const uint8_t *w, int64_t blocks) { panel(8, dst, w, blocks); }
KERNEL avx512BandPanelQ4(uint8_t *dst, const uint8_t *w, int64_t blocks) { panel(4, dst, w, blocks); }
