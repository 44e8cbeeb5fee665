// AVX-512 VNNI: products of interleaved weights with tokens of 8-bit blocks, see int8.go and
// interleaved.go. Needs AVX-512 VNNI, BW, DQ and VL.
#include "wide.h"

enum { BLOCK = 40, SCALE = 32, SHIFT = 36 }; // of activations, in bytes

// A block of activations has 32 signed codes, the scale, and -zero times the sum of the codes.
KERNEL avx512vnniNarrow(uint8_t *dst, const uint8_t *src, int64_t blocks, int64_t zero) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  ROLLED for (; blocks > 0; blocks--) {
    __m512 a = _mm512_loadu_ps(src), b = _mm512_loadu_ps(src + 64);
    __m512i m = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude), _mm512_and_si512(_mm512_castps_si512(b), magnitude));
    uint32_t top = (uint32_t)_mm512_reduce_max_epi32(m);
    float by = 0, d = __builtin_bit_cast(float, 0x7fc00000);
    if (top < 0x7f800000) {
      float largest = __builtin_bit_cast(float, top);
      d = largest / 127;
      if (largest > 0x1p-100f) by = 127 / largest;
    }
    const __m512 factor = _mm512_set1_ps(by);
    __m512i p = _mm512_cvtps_epi32(_mm512_mul_ps(a, factor)), q = _mm512_cvtps_epi32(_mm512_mul_ps(b, factor));
    _mm_storeu_si128((__m128i *)dst, _mm512_cvtepi32_epi8(p));
    _mm_storeu_si128((__m128i *)(dst + 16), _mm512_cvtepi32_epi8(q));
    *(float *)(dst + SCALE) = d;
    *(int *)(dst + SHIFT) = (int)-zero * _mm512_reduce_add_epi32(_mm512_add_epi32(p, q));
    dst += BLOCK, src += 128;
  }
}

// at is token t. Tokens are xs bytes apart; three is token 3.
INLINE const uint8_t *at(const uint8_t *x, const uint8_t *three, int64_t xs, int t) { return t < 3 ? x + t * xs : three + (t - 3) * xs; }

INLINE __m512i every(const uint8_t *p) { return _mm512_set1_epi32(*(const int *)p); }

// nibbles returns the low or the high nibbles of bytes.
INLINE __m512i nibbles(__m512i v, int high) { return _mm512_and_si512(high ? _mm512_srli_epi16(v, 4) : v, _mm512_set1_epi8(15)); }

// AHEAD is the distance of the prefetch in blocks: the hardware prefetcher stops at the end of a
// page.
enum { AHEAD = DISTANCE(8) };

// BAND is band g. Bands are ws bytes apart; w3 is the fourth.
#define BAND(g) ((g) == 3 ? w3 : w + (g) * ws)

// mul computes the rows of G bands for T tokens. A lane is a row. It adds the products of a block
// as integers, then scales and adds these. Reading four bands at once is faster than two.
INLINE void mul(int bits, int G, int T, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) {
  const int size = 32 + 64 * bits;
  __m512 sum[4][6];
  UNROLL for (int t = 0; t < T; t++) UNROLL for (int g = 0; g < G; g++) sum[g][t] = _mm512_setzero_ps();
  if (add) {
    uint8_t *to = y;
    UNROLL for (int t = 0; t < T; t++) {
      UNROLL for (int g = 0; g < G; g++) sum[g][t] = _mm512_loadu_ps(to + 64 * g);
      to += ys;
      OPAQUE(to);
    }
  }
  const uint8_t *three = x + times(xs, 3), *w3 = w + times(ws, 3);
  ROLLED for (; blocks > 0; blocks--) {
    __m512i acc[4][6];
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int g = 0; g < G; g++) acc[g][t] = every(at(x, three, xs, t) + SHIFT);
    UNROLL for (int j = 0; j < bits; j++) {
      OPAQUE(w), OPAQUE(w3); // keeps the compiler from doing all loads first
      __m512i c[4];
      UNROLL for (int g = 0; g < G; g++) {
        if (G * T == 1) {
          _mm_prefetch(w + DISTANCE(2048) + 64 * j, _MM_HINT_T1);
        } else {
          _mm_prefetch(BAND(g) + AHEAD * size + 64 * j, _MM_HINT_T0);
        }
        c[g] = _mm512_loadu_si512(BAND(g) + 32 + 64 * j);
      }
      UNROLL for (int h = 0; h < 8 / bits; h++) {
        if (bits == 4) OPAQUE(x), OPAQUE(three);
        __m512i v[4];
        UNROLL for (int g = 0; g < G; g++) v[g] = bits == 8 ? c[g] : nibbles(c[g], h);
        UNROLL for (int t = 0; t < T; t++) {
          __m512i in = every(at(x, three, xs, t) + 4 * j + 16 * h);
          UNROLL for (int g = 0; g < G; g++) acc[g][t] = _mm512_dpbusd_epi32(acc[g][t], v[g], in);
        }
      }
    }
    UNROLL for (int g = 0; g < G; g++) {
      OPAQUE(w), OPAQUE(x), OPAQUE(three);
      const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)BAND(g)));
      UNROLL for (int t = 0; t < T; t++) {
        __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(*(const float *)(at(x, three, xs, t) + SCALE)));
        sum[g][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[g][t]), scale, sum[g][t]);
      }
    }
    w += size, w3 += size, x += BLOCK, three += BLOCK;
    OPAQUE(w), OPAQUE(w3), OPAQUE(x), OPAQUE(three);
  }
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int g = 0; g < G; g++) _mm512_storeu_ps(y + 64 * g, sum[g][t]);
    y += ys;
    OPAQUE(y);
  }
}

#define MUL(Q, B, G, T)                                                                                                                       \
  KERNEL avx512vnniMul##Q##G##x##T(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) { \
    mul(B, G, T, w, ws, x, xs, y, ys, blocks, add);                                                                                           \
  }
MUL(Q8, 8, 2, 6) MUL(Q8, 8, 2, 4) MUL(Q8, 8, 2, 2) MUL(Q8, 8, 2, 1) MUL(Q8, 8, 4, 2) MUL(Q8, 8, 4, 1) MUL(Q8, 8, 1, 1)
MUL(Q4, 4, 2, 6) MUL(Q4, 4, 2, 4) MUL(Q4, 4, 2, 2) MUL(Q4, 4, 2, 1) MUL(Q4, 4, 4, 2) MUL(Q4, 4, 4, 1) MUL(Q4, 4, 1, 1)

// eight is mul of two bands for 8 tokens, or of two and two. The sums stay at y, as registers hold
// the products of a block for two bands only. For Q8 reading four bands is faster; arithmetic
// limits Q4.
INLINE const uint8_t *of8(const uint8_t *p, const uint8_t *three, const uint8_t *six, int64_t s, int t) {
  return t < 3 ? p + t * s : t == 6 ? six : three + (t - 3) * s;
}

INLINE void eight(int bits, int G, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) {
  const int size = 32 + 64 * bits;
  const uint8_t *x3 = x + times(xs, 3), *x6 = x3 + times(xs, 3), *next = w + AHEAD * size;
  uint8_t *y3 = y + times(ys, 3), *y6 = y3 + times(ys, 3);
#define X(t) of8(x, x3, x6, xs, t)
#define Y(t, g) ((uint8_t *)of8(y, y3, y6, ys, t) + 64 * (g))
  if (!add) {
    UNROLL for (int t = 0; t < 8; t++) UNROLL for (int g = 0; g < G; g++) _mm512_storeu_ps(Y(t, g), _mm512_setzero_ps());
  }
  ROLLED for (; blocks > 0; blocks--) {
    if (blocks == AHEAD) UNROLL for (int g = 1; g < G; g++) { // after whole rows, prefetch those of other bands
      next += ws;
      OPAQUE(next);
    }
    UNROLL for (int pair = 0; pair < G / 2; pair++) {
      __m512i acc[2][8];
      UNROLL for (int t = 0; t < 8; t++) UNROLL for (int g = 0; g < 2; g++) acc[g][t] = every(X(t) + SHIFT);
      UNROLL for (int j = 0; j < bits; j++) {
        __m512i c[2];
        UNROLL for (int g = 0; g < 2; g++) {
          _mm_prefetch(next + g * ws + 64 * j, _MM_HINT_T0);
          c[g] = _mm512_loadu_si512(w + g * ws + 32 + 64 * j);
        }
        UNROLL for (int h = 0; h < 8 / bits; h++) {
          __m512i v[2];
          UNROLL for (int g = 0; g < 2; g++) v[g] = bits == 8 ? c[g] : nibbles(c[g], h);
          UNROLL for (int t = 0; t < 8; t++) {
            __m512i in = every(X(t) + 4 * j + 16 * h);
            UNROLL for (int g = 0; g < 2; g++) acc[g][t] = _mm512_dpbusd_epi32(acc[g][t], v[g], in);
          }
          UNROLL for (int t = 0; t < 8; t++) UNROLL for (int g = 0; g < 2; g++) AFTER(x, acc[g][t]), AFTER(w, acc[g][t]);
          AFTER(x3, acc[1][7]), AFTER(x6, acc[1][7]);
        }
      }
      UNROLL for (int g = 0; g < 2; g++) {
        AFTER(y, acc[1][7]), AFTER(y3, acc[1][7]), AFTER(y6, acc[1][7]);
        const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + g * ws)));
        UNROLL for (int t = 0; t < 8; t++) {
          __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(*(const float *)(X(t) + SCALE)));
          _mm512_storeu_ps(Y(t, 2 * pair + g), _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[g][t]), scale, _mm512_loadu_ps(Y(t, 2 * pair + g))));
        }
      }
      if (pair == 0 && G > 2) w += 2 * ws, next += 2 * ws;
      OPAQUE(w), OPAQUE(next), OPAQUE(x), OPAQUE(x3), OPAQUE(x6);
    }
    UNROLL for (int g = 2; g < G; g++) {
      w -= ws, next -= ws;
      OPAQUE(w), OPAQUE(next);
    }
    w += size, next += size, x += BLOCK, x3 += BLOCK, x6 += BLOCK;
    OPAQUE(w), OPAQUE(next), OPAQUE(x), OPAQUE(x3), OPAQUE(x6);
  }
}

KERNEL avx512vnniMulQ84x8(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) { eight(8, 4, w, ws, x, xs, y, ys, blocks, add); }
KERNEL avx512vnniMulQ82x8(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) { eight(8, 2, w, ws, x, xs, y, ys, blocks, add); }
KERNEL avx512vnniMulQ42x8(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) { eight(4, 2, w, ws, x, xs, y, ys, blocks, add); }

// STREAM is band g of eight, from p on; p3 and p6 are bands 3 and 6.
#define STREAM(p, p3, p6, g) ((g) < 3 ? p + (g) * ws : (g) == 6 ? p6 : p3 + ((g) - 3) * ws)

// mul_eight_bands is mul of eight bands for one token. Memory limits it, and eight streams are read faster
// than four. The prefetch of each continues past its end in the next eight.
INLINE void mul_eight_bands(int bits, const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t blocks, int64_t add) {
  const int size = 32 + 64 * bits;
  __m512 sum[8];
  UNROLL for (int g = 0; g < 8; g++) sum[g] = add ? _mm512_loadu_ps(y + 64 * g) : _mm512_setzero_ps();
  const uint8_t *w3 = w + times(ws, 3), *w6 = w3 + times(ws, 3);
  const uint8_t *next = w + AHEAD * size, *next3 = w3 + AHEAD * size, *next6 = w6 + AHEAD * size;
  ROLLED for (; blocks > 0; blocks--) {
    if (blocks == AHEAD) next += times(ws, 7), next3 += times(ws, 7), next6 += times(ws, 7);
    __m512i acc[8];
    UNROLL for (int g = 0; g < 8; g++) acc[g] = every(x + SHIFT);
    UNROLL for (int j = 0; j < bits; j++) {
      UNROLL for (int g = 0; g < 8; g++) {
        _mm_prefetch(STREAM(next, next3, next6, g) + 64 * j, _MM_HINT_T0);
        const __m512i c = _mm512_loadu_si512(STREAM(w, w3, w6, g) + 32 + 64 * j);
        UNROLL for (int h = 0; h < 8 / bits; h++) acc[g] = _mm512_dpbusd_epi32(acc[g], bits == 8 ? c : nibbles(c, h), every(x + 4 * j + 16 * h));
      }
      UNROLL for (int g = 0; g < 8; g++) AFTER(w, acc[g]), AFTER(x, acc[g]);
      AFTER(w3, acc[0]), AFTER(w6, acc[0]);
    }
    const __m512 scale = _mm512_set1_ps(*(const float *)(x + SCALE));
    UNROLL for (int g = 0; g < 8; g++) {
      const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)STREAM(w, w3, w6, g)));
      sum[g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[g]), _mm512_mul_ps(d, scale), sum[g]);
    }
    w += size, w3 += size, w6 += size, next += size, next3 += size, next6 += size, x += BLOCK;
    OPAQUE(w), OPAQUE(w3), OPAQUE(w6), OPAQUE(next), OPAQUE(next3), OPAQUE(next6), OPAQUE(x);
  }
  UNROLL for (int g = 0; g < 8; g++) _mm512_storeu_ps(y + 64 * g, sum[g]);
}

KERNEL avx512vnniMulQ88x1(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) { mul_eight_bands(8, w, ws, x, y, blocks, add); }
KERNEL avx512vnniMulQ48x1(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) { mul_eight_bands(4, w, ws, x, y, blocks, add); }

// edge is mul of one band of up to 16 rows for one token. The sums continue from y.
INLINE void edge(int bits, const uint8_t *w, int64_t rows, const uint8_t *x, uint8_t *y, int64_t blocks) {
  const __mmask16 m = low(rows);
  __m512 sum = _mm512_loadu_ps(y);
  ROLLED for (; blocks > 0; blocks--) {
    __m512i acc = every(x + SHIFT);
    const __m512 d = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, w));
    w += 2 * rows;
    UNROLL for (int j = 0; j < bits; j++) {
      __m512i c = _mm512_maskz_loadu_epi32(m, w);
      if (bits == 8) {
        acc = _mm512_dpbusd_epi32(acc, c, every(x + 4 * j));
      } else {
        acc = _mm512_dpbusd_epi32(acc, nibbles(c, 0), every(x + 4 * j));
        acc = _mm512_dpbusd_epi32(acc, nibbles(c, 1), every(x + 4 * j + 16));
      }
      w += 4 * rows;
      OPAQUE(w);
    }
    __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(*(const float *)(x + SCALE)));
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc), scale, sum);
    x += BLOCK;
    OPAQUE(x);
  }
  _mm512_storeu_ps(y, sum);
}

#define EDGE_ARGS const uint8_t *w, int64_t rows, const uint8_t *x, uint8_t *y, int64_t blocks
KERNEL avx512vnniEdgeQ8(EDGE_ARGS) { edge(8, w, rows, x, y, blocks); }
KERNEL avx512vnniEdgeQ4(EDGE_ARGS) { edge(4, w, rows, x, y, blocks); }
