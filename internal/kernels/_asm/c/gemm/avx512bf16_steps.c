// AVX-512 BF16: results of prompts in steps of k.
#include "pairs.h"

// StoreSteps sets y[t][r] = c[r][t] + bias[r] for up to 16 tokens. Sums are those of pieces of some packs, a piece apart bytes
// after the one before. bias may be nil. With past whole lines are stored past the caches, and are there when it returns.
KERNEL avx512bf16StoreSteps(uint8_t *y, int64_t ys, const uint8_t *c, int64_t apart, int64_t packs, const uint8_t *bias, int64_t rows, int64_t tokens, int64_t past) {
  int64_t left = packs;
  ROLLED for (; rows > 0; OPAQUE(rows)) {
    const __mmask16 m = low(rows > 16 ? 16 : rows);
    __m512 b = _mm512_setzero_ps();
    if (bias) b = _mm512_maskz_loadu_ps(m, bias), bias += 64;
    __m512i v[16];
    UNROLL for (int r = 0; r < 16; r++) v[r] = _mm512_loadu_si512(c + 64 * r);
    transpose16(v);
    uint8_t *to = y;
    if (past && rows >= 16 && tokens >= 16 && (((uint64_t)y | (uint64_t)ys) & 63) == 0) {
      UNROLL for (int t = 0; t < 16; t++) {
        _mm512_stream_ps((float *)to, bias ? _mm512_add_ps((__m512)v[t], b) : (__m512)v[t]);
        to += ys;
        OPAQUE(to);
      }
    } else {
      UNROLL for (int t = 0; t < 16; t++) {
        if (tokens > t) _mm512_mask_storeu_ps(to, m, bias ? _mm512_add_ps((__m512)v[t], b) : (__m512)v[t]);
        to += ys;
        OPAQUE(to);
      }
    }
    y += 64, c += 1024, rows -= 16;
    if (--left == 0) left = packs, c += apart;
  }
  if (past) _mm_sfence();
}
