// Dot products of packed groups of rows and tokens: AVX-512, 16 lanes.
#include "wide.h"

// Groups adds n elements of k, a multiple of 16, to the sums of dot products of groups of 3
// rows with 8 tokens. Both are packed: for each 16 k those of each row, of each token. Between
// the pieces of k the lanes lie in sums; flags say that they begin at 0 (1), that they end (2):
// then they are folded into y.
KERNEL avx512Groups(const uint8_t *w, const uint8_t *x, const uint8_t *next, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t rows, int64_t tokens, int64_t flags) {
  const __mmask16 keep = flags & 1 ? 0 : 0xffff;
  ROLLED for (; rows > 0; rows -= 3, OPAQUE(rows)) {
    __m512 acc[3][8];
    UNROLL for (int i = 0; i < 24; i++) acc[i % 3][i / 3] = _mm512_maskz_loadu_ps(keep, sums + 64 * i);
    UNROLL for (int i = 0; i < 16; i++) _mm_prefetch(next + 64 * i, _MM_HINT_T1);
    next += 1024;
    int64_t left = n;
    ROLLED for (; left > 0; left -= 16, OPAQUE(left)) {
      OPAQUE(w), OPAQUE(x);
      __m512 a[3];
      UNROLL for (int r = 0; r < 3; r++) a[r] = _mm512_loadu_ps(w + 64 * r);
      UNROLL for (int t = 0; t < 8; t++) {
        __m512 in = _mm512_loadu_ps(x + 64 * t);
        UNROLL for (int r = 0; r < 3; r++) acc[r][t] = _mm512_fmadd_ps(a[r], in, acc[r][t]);
      }
      w += 192, x += 512;
    }
    x -= times(n, 32);
    if (flags & 2) {
      const __mmask8 m = (__mmask8)low(rows < 3 ? rows : 3);
      uint8_t *out = y;
      const __m512 a = fold8(acc[0]), b = fold8(acc[1]), c = fold8(acc[2]);
      __m512 ends[2] = {_mm512_shuffle_ps(_mm512_unpacklo_ps(a, b), c, 0x04), _mm512_shuffle_ps(_mm512_unpackhi_ps(a, b), c, 0x24)};
      UNROLL for (int t = 0; t < 8; t++) {
        if (tokens > t) _mm_mask_storeu_ps(out, m, _mm512_castps512_ps128(ends[t / 4]));
        ends[t / 4] = _mm512_shuffle_f32x4(ends[t / 4], ends[t / 4], 0x39); // the next quarter
        out += ys;
        OPAQUE(out);
      }
    } else {
      UNROLL for (int i = 0; i < 24; i++) _mm512_storeu_ps(sums + 64 * i, acc[i % 3][i / 3]);
    }
    sums += 24 * 64, y += 12;
  }
}

// spread widens n elements, a multiple of 16; each 16 go step bytes further.
INLINE void spread(int f, uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) {
  ROLLED for (; n > 0; n -= 16, OPAQUE(n)) {
    _mm512_storeu_ps(dst, load(f, src));
    dst += step, src += 16 * size_of(f);
  }
}

KERNEL avx512SpreadBF16(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) { spread(BF16, dst, step, src, n); }
KERNEL avx512SpreadF16(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) { spread(F16, dst, step, src, n); }
KERNEL avx512SpreadF32(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) { spread(F32, dst, step, src, n); }
