// Dot products of packed groups of rows and tokens: AVX2, 8 lanes.
#include "narrow.h"

// Groups is avx512Groups for 4 tokens and 8 k.
KERNEL avx2Groups(const uint8_t *w, const uint8_t *x, const uint8_t *next, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t rows, int64_t tokens, int64_t flags) {
  ROLLED for (; rows > 0; rows -= 3, OPAQUE(rows)) {
    __m256 acc[3][4];
    if (flags & 1) {
      UNROLL for (int i = 0; i < 12; i++) acc[i % 3][i / 3] = _mm256_setzero_ps();
    } else {
      UNROLL for (int i = 0; i < 12; i++) acc[i % 3][i / 3] = _mm256_loadu_ps((const float *)sums + 8 * i);
    }
    UNROLL for (int i = 0; i < 8; i++) _mm_prefetch(next + 64 * i, _MM_HINT_T1);
    next += 512;
    int64_t left = n;
    ROLLED for (; left > 0; left -= 8, OPAQUE(left)) {
      OPAQUE(w), OPAQUE(x);
      __m256 a[3];
      UNROLL for (int r = 0; r < 3; r++) a[r] = _mm256_loadu_ps((const float *)w + 8 * r);
      UNROLL for (int t = 0; t < 4; t++) {
        __m256 in = _mm256_loadu_ps((const float *)x + 8 * t);
        UNROLL for (int r = 0; r < 3; r++) acc[r][t] = _mm256_fmadd_ps(a[r], in, acc[r][t]);
      }
      w += 96, x += 128;
    }
    x -= times(n, 16);
    if (flags & 2) {
      const __m128i m = _mm_cmpgt_epi32(_mm_set1_epi32((int)(rows < 3 ? rows : 3)), _mm_setr_epi32(0, 1, 2, 3));
      uint8_t *out = y;
      UNROLL for (int t = 0; t < 4; t++) {
        if (tokens > t) _mm_maskstore_ps((float *)out, m, folds(acc[0][t], acc[1][t], acc[2][t], acc[2][t]));
        out += ys;
        OPAQUE(out);
      }
    } else {
      UNROLL for (int i = 0; i < 12; i++) _mm256_storeu_ps((float *)sums + 8 * i, acc[i % 3][i / 3]);
    }
    sums += 12 * 32, y += 12;
  }
}

// spread widens n elements, a multiple of 8; each 8 go step bytes further.
INLINE void spread(int f, uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) {
  ROLLED for (; n > 0; n -= 8, OPAQUE(n)) {
    _mm256_storeu_ps((float *)dst, load(f, src));
    dst += step, src += 8 * size_of(f);
  }
}

KERNEL avx2SpreadBF16(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) { spread(BF16, dst, step, src, n); }
KERNEL avx2SpreadF16(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) { spread(F16, dst, step, src, n); }
KERNEL avx2SpreadF32(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) { spread(F32, dst, step, src, n); }
