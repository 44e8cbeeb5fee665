// AVX-512: products of stored bfloat16 weights with a small batch, summed in ascending order of k.
// A lane is a row of weights; weights are transposed in registers. See smallbatch.go.
#include "wide.h"

#define HELD(v) ({ __asm__ volatile("" : "+v"(v)); })

// concat is 32 bytes of a row and of another one.
INLINE __m512i concat(const uint8_t *a, const uint8_t *b) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)a)), _mm256_loadu_si256((const __m256i *)b), 1);
}

// small_batch_words adds four words of each of 16 rows, eight columns, to the sums of T tokens. Quarter p of
// u[m] has the words of row 4p + m.
INLINE void small_batch_words(int T, const __m512i u[4], const uint8_t *x, __m512 *acc) {
  const __m512i high = _mm512_set1_epi32((int)0xffff0000);
  const __m512i a = _mm512_unpacklo_epi32(u[0], u[1]), b = _mm512_unpackhi_epi32(u[0], u[1]);
  const __m512i c = _mm512_unpacklo_epi32(u[2], u[3]), d = _mm512_unpackhi_epi32(u[2], u[3]);
  const __m512i v[4] = {_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d), _mm512_unpackhi_epi64(b, d)};
  UNROLL for (int k = 0; k < 8; k++) {
    const __m512 w = (__m512)(k % 2 ? _mm512_and_si512(v[k / 2], high) : _mm512_slli_epi32(v[k / 2], 16));
    UNROLL for (int t = 0; t < T; t++) acc[t] = _mm512_fmadd_ps(w, _mm512_set1_ps(((const float *)x)[T * k + t]), acc[t]);
  }
  UNROLL for (int t = 0; t < T; t++) HELD(acc[t]); // before more weights take registers
}

// small_batch_block adds 32 columns of 16 rows, the second eight of which begin at w[1], to the sums of T
// tokens. It prefetches two lines of each of eight streams, which are sp bytes apart.
INLINE void small_batch_block(int T, const uint8_t *w[2], int64_t ws, const uint8_t *x, __m512 *acc, const uint8_t **next, int64_t sp) {
  const uint8_t *far = *next;
  UNROLL for (int half = 0; half < 2; half++) {
    __m512i u[2][4];
    UNROLL for (int m = 0; m < 4; m++) {
      const __m512i a = concat(w[0] + 32 * half, w[0] + 32 * half + 4 * ws), b = concat(w[1] + 32 * half, w[1] + 32 * half + 4 * ws);
      u[0][m] = _mm512_shuffle_i32x4(a, b, 0x88), u[1][m] = _mm512_shuffle_i32x4(a, b, 0xdd);
      UNROLL for (int i = 0; i < 2; i++) {
        w[i] += ws;
        OPAQUE(w[i]);
        _mm_prefetch(far, _MM_HINT_T1);
        far += sp;
        OPAQUE(far);
      }
    }
    far += 64 - times(sp, 8);
    OPAQUE(far);
    UNROLL for (int q = 0; q < 2; q++) small_batch_words(T, u[q], x + 64 * T * half + 32 * T * q, acc);
    UNROLL for (int i = 0; i < 2; i++) {
      w[i] -= times(ws, 4);
      OPAQUE(w[i]);
    }
  }
  *next = far;
}

// small_batch computes y[t][i] = sum over k of w[i][k] x[k][t] for R blocks of 16 rows of weights, n columns,
// whole blocks of 32, and T tokens side by side, of which so many are there.
INLINE void small_batch(int R, int T, const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t ys, int64_t n, int64_t tokens, const uint8_t *far, int64_t sp) {
  const uint8_t *half[2] = {w, w + times(ws, 8)};
  __m512 acc[2][16];
  UNROLL for (int i = 0; i < R * T; i++) acc[i % R][i / R] = _mm512_setzero_ps();
  ROLLED for (; n > 0; n -= 32) {
    UNROLL for (int r = 0; r < R; r++) {
      small_batch_block(T, half, ws, x, acc[r], &far, sp);
      UNROLL for (int i = 0; i < 2; i++) half[i] += r < R - 1 ? times(ws, 16) : 64 - times(ws, 16 * (R - 1));
    }
    x += 128 * T;
  }
  UNROLL for (int t = 0; t < T; t++) {
    if (tokens <= t) break;
    UNROLL for (int r = 0; r < R; r++) _mm512_storeu_ps(y + 64 * r, acc[r][t]);
    y += ys;
  }
}

#define FEW(R, T)                                                                                                                                                             \
  KERNEL avx512SmallBatch##R##x##T(const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t ys, int64_t n, int64_t tokens, const uint8_t *far, int64_t sp) { \
    small_batch(R, T, w, ws, x, y, ys, n, tokens, far, sp);                                                                                                                \
  }
FEW(2, 1) FEW(2, 2) FEW(2, 4)
FEW(1, 1) FEW(1, 2) FEW(1, 4) FEW(1, 6) FEW(1, 8) FEW(1, 12) FEW(1, 16)

// InterleaveTokens transposes tokens: dst[k][t] = x[t][k] for up to 16 tokens, and zeros from there to width.
KERNEL avx512InterleaveTokens(uint8_t *dst, const uint8_t *x, int64_t xs, int64_t tokens, int64_t width, int64_t n) {
  const __mmask16 m = low(width);
  ROLLED for (; n > 0; n -= 16) {
    __m512i v[16];
    const uint8_t *row = x;
    const __mmask16 part = low(n > 16 ? 16 : n);
    UNROLL for (int i = 0; i < 16; i++) {
      v[i] = (__m512i)_mm512_maskz_loadu_ps(tokens > i ? part : 0, row);
      row += xs;
      OPAQUE(row);
    }
    transpose16(v);
    UNROLL for (int i = 0; i < 16; i++) {
      if (n > i) _mm512_mask_storeu_epi32(dst, m, v[i]);
      dst += 4 * width;
      OPAQUE(dst);
    }
    x += 64;
  }
}
