// AVX2: products of interleaved weights with float32 tokens, see float.go. A band is a tile of 16
// rows, see interleaved.go. Needs AVX2, FMA and F16C.
#include "common.h"

// A code becomes a float without a conversion: at the bits of 2^(23-s), from bit s on, it adds
// itself. Then (code - zero) d = (2^(23-s) + code) d - (2^(23-s) + zero) d is one fused step. It is
// exact, as the second product has at most 24 significant bits.
//
// Constants that each code needs are read from memory, as there are too few registers.

// What is needed once for each code is read from memory: registers are few.
#define TO(i) -128, i, -128, -128, -128, 4 + i, -128, -128, -128, 8 + i, -128, -128, -128, 12 + i, -128, -128
#define EIGHT(v) v, v, v, v, v, v, v, v
static const struct {
  int8_t move[4][32]; // moves byte i of words to the second byte
  int32_t mask[2][8];
  float power[2][8];
  float offset[3][8]; // of Q4 in each half of a byte, and of Q8
} constants = {
    {{TO(0), TO(0)}, {TO(1), TO(1)}, {TO(2), TO(2)}, {TO(3), TO(3)}},
    {{EIGHT(15 << 8)}, {EIGHT(15 << 12)}},
    {{EIGHT(32768.f)}, {EIGHT(2048.f)}},
    {{EIGHT(-32768.f - 8)}, {EIGHT(-2048.f - 8)}, {EIGHT(-32768.f - 128)}},
};

// powered is code i of words, from half h of each byte, as 2^(23-s) + code.
INLINE __m256 powered(int bits, int h, int i, __m256i c) {
  const uint8_t *table = (const uint8_t *)&constants;
  OPAQUE(table);
  c = _mm256_shuffle_epi8(c, _mm256_loadu_si256((const __m256i *)(table + 32 * i)));
  if (bits == 8) return (__m256)_mm256_or_si256(c, (__m256i)_mm256_set1_ps(32768));
  c = _mm256_and_si256(c, _mm256_loadu_si256((const __m256i *)(table + 128 + 32 * h)));
  return (__m256)_mm256_or_si256(c, _mm256_loadu_si256((const __m256i *)(table + 192 + 32 * h)));
}

// offset is -(2^(23-s) + zero) d.
INLINE __m256 offset(int bits, int h, __m256 d) {
  const uint8_t *table = (const uint8_t *)&constants.offset;
  OPAQUE(table);
  return _mm256_mul_ps(d, _mm256_loadu_ps((const float *)(table + 32 * (bits == 8 ? 2 : h))));
}

INLINE __m256 scales(const uint8_t *w) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w)); }

// sums computes the rows of G bands, ws bytes apart, for T tokens. A lane is a row. It adds its
// products in ascending order of the columns.
INLINE void sums(int bits, int G, int T, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) {
  const int size = 32 + 64 * bits, parts = 2 * G; // of eight rows
  __m256 acc[4][4];
  UNROLL for (int t = 0; t < T; t++) UNROLL for (int p = 0; p < parts; p++) acc[p][t] = _mm256_setzero_ps();
  if (add) {
    uint8_t *to = y;
    UNROLL for (int t = 0; t < T; t++) {
      UNROLL for (int p = 0; p < parts; p++) acc[p][t] = _mm256_loadu_ps((const float *)to + 8 * p);
      to += ys;
      OPAQUE(to);
    }
  }
  const uint8_t *x3 = x + times(xs, 3);
  ROLLED for (; blocks > 0; blocks--) {
    __m256 d[4];
    UNROLL for (int p = 0; p < parts; p++) d[p] = scales(w + p / 2 * ws + 16 * (p % 2));
    UNROLL for (int h = 0; h < 8 / bits; h++) {
      __m256 less[4];
      UNROLL for (int p = 0; p < parts; p++) less[p] = offset(bits, h, d[p]);
      UNROLL for (int j = 0; j < bits; j++) {
        if (h == 0) UNROLL for (int g = 0; g < G; g++) _mm_prefetch(w + g * ws + 4096 + 64 * j, _MM_HINT_T0);
        UNROLL for (int i = 0; i < 4; i++) {
          const __m256 only = _mm256_broadcast_ss((const float *)x + 16 * h + 4 * j + i); // where T is 1
          UNROLL for (int p = 0; p < parts; p++) {
            const __m256i c = _mm256_loadu_si256((const __m256i *)(w + p / 2 * ws + 32 + 64 * j + 32 * (p % 2)));
            const __m256 v = _mm256_fmadd_ps(powered(bits, h, i, c), d[p], less[p]);
            UNROLL for (int t = 0; t < T; t++) {
              const uint8_t *token = t < 3 ? x + t * xs : x3;
              const __m256 each = T == 1 ? only : _mm256_broadcast_ss((const float *)token + 16 * h + 4 * j + i);
              __asm__("vfmadd231ps %1, %2, %0" : "+x"(acc[p][t]) : "x"(v), "x"(each)); // fixes the order: there are too few registers for another
            }
            UNROLL for (int t = 0; t < T; t++) AFTER(x, acc[p][t]), AFTER(w, acc[p][t]);
            AFTER(x3, acc[p][0]);
          }
        }
      }
    }
    w += size, x += 128, x3 += 128;
    OPAQUE(w), OPAQUE(x), OPAQUE(x3);
  }
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int p = 0; p < parts; p++) _mm256_storeu_ps((float *)y + 8 * p, acc[p][t]);
    y += ys;
    OPAQUE(y);
  }
}

#define SUMS(Q, B, G, T)                                                                                                                            \
  KERNEL avx2InterleavedSums##Q##G##x##T(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) { \
    sums(B, G, T, w, ws, x, xs, y, ys, blocks, add);                                                                                                \
  }
SUMS(Q8, 8, 2, 1) SUMS(Q8, 8, 1, 1) SUMS(Q8, 8, 1, 2) SUMS(Q8, 8, 1, 4)
SUMS(Q4, 4, 2, 1) SUMS(Q4, 4, 1, 1) SUMS(Q4, 4, 1, 2) SUMS(Q4, 4, 1, 4)

// edge is sums of up to eight rows of the last band, which may have fewer than 16, for one token.
// Its scales begin at w, and its codes follow all scales. The sums continue from y.
INLINE void edge(int bits, const uint8_t *w, int64_t codes, int64_t rows, int64_t take, const uint8_t *x, uint8_t *y, int64_t blocks) {
  const __m256i m = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)take), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256 acc = _mm256_loadu_ps((const float *)y);
  ROLLED for (; blocks > 0; blocks--) {
    // Reading 16 bytes of a block is always allowed. Lanes without a scale are not stored.
    const __m256 d = scales(w);
    UNROLL for (int h = 0; h < 8 / bits; h++) {
      const uint8_t *from = w + codes;
      UNROLL for (int j = 0; j < bits; j++) {
        const __m256i c = _mm256_maskload_epi32((const int *)from, m);
        UNROLL for (int i = 0; i < 4; i++) {
          const __m256 v = _mm256_fmadd_ps(powered(bits, h, i, c), d, offset(bits, h, d));
          acc = _mm256_fmadd_ps(v, _mm256_broadcast_ss((const float *)x + 16 * h + 4 * j + i), acc);
        }
        from += 4 * rows;
        AFTER(from, acc);
      }
    }
    w += times(rows, 2 + 4 * bits), x += 128;
  }
  _mm256_storeu_ps((float *)y, acc);
}

#define EDGE_ARGS const uint8_t *w, int64_t codes, int64_t rows, int64_t take, const uint8_t *x, uint8_t *y, int64_t blocks
KERNEL avx2BandEdgeQ8(EDGE_ARGS) { edge(8, w, codes, rows, take, x, y, blocks); }
KERNEL avx2BandEdgeQ4(EDGE_ARGS) { edge(4, w, codes, rows, take, x, y, blocks); }

// panel widens eight rows of a band of 16, column by column. Scales begin at w, codes at codes.
INLINE void panel(int bits, uint8_t *dst, const uint8_t *w, const uint8_t *codes, int64_t blocks) {
  const int size = 32 + 64 * bits;
  ROLLED for (; blocks > 0; blocks--) {
    const __m256 d = scales(w);
    UNROLL for (int j = 0; j < bits; j++) {
      const __m256i c = _mm256_loadu_si256((const __m256i *)(codes + 64 * j));
      UNROLL for (int h = 0; h < 8 / bits; h++) UNROLL for (int i = 0; i < 4; i++) {
        const __m256 v = _mm256_fmadd_ps(powered(bits, h, i, c), d, offset(bits, h, d));
        _mm256_storeu_ps((float *)dst + 8 * (16 * h + 4 * j + i), v);
      }
    }
    w += size, codes += size, dst += 1024;
  }
}

KERNEL avx2BandPanelQ8(uint8_t *dst, const uint8_t *w, const uint8_t *codes, int64_t blocks) { panel(8, dst, w, codes, blocks); }
KERNEL avx2BandPanelQ4(uint8_t *dst, const uint8_t *w, const uint8_t *codes, int64_t blocks) { panel(4, dst, w, codes, blocks); }
