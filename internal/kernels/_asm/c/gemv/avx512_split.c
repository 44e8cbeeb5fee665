// AVX-512: dot products of stored bfloat16 weights with a small batch of float32 tokens. A shift
// and a mask widen the two weights of a 32-bit word, so tokens have their even and odd elements
// apart: see split.go.
#include "wide.h"

// split_rows adds n columns of R rows for T tokens to sums. counts is 4 rows, plus 1 if the sums
// begin at 0, plus 2 if they end. Meanwhile it prefetches as many lines of two distant streams; for
// 8 tokens of six streams, by turns of the first three, and of the last ones from their end. It
// returns the address of the weights of the next rows.
INLINE const uint8_t *split_rows(int R, int T, const uint8_t *w, int64_t ws, const uint8_t **tokens, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t counts, const uint8_t **streams, int64_t *apart) {
  const __mmask16 keep = counts & 1 ? 0 : 0xffff;
  const __m512i high = _mm512_set1_epi32((int)0xffff0000);
  const int64_t ws3 = R == 4 ? times(ws, 3) : 0;
  const uint8_t *x = *tokens, *far = *streams;
  int64_t left = n, sp = *apart;
  __m512 acc[4][8];
  UNROLL for (int i = 0; i < R * T; i++) acc[i % R][i / R] = _mm512_maskz_loadu_ps(keep, sums + 64 * i);
#define ROW(r) (w + ((r) == 3 ? ws3 : (r) * ws))
  ROLLED for (; left >= 32; left -= 32, OPAQUE(left)) {
    __m512 a[4];
    UNROLL for (int half = 0; half < 2; half++) {
      OPAQUE(w), OPAQUE(x);
      UNROLL for (int r = 0; r < R; r++) {
        const __m512i v = _mm512_loadu_si512(ROW(r));
        a[r] = (__m512)(half ? _mm512_and_si512(v, high) : _mm512_slli_epi32(v, 16));
      }
      UNROLL for (int t = 0; t < T; t++) {
        const __m512 in = _mm512_loadu_ps(x + 128 * t + 64 * half);
        UNROLL for (int r = 0; r < R; r++) acc[r][t] = _mm512_fmadd_ps(a[r], in, acc[r][t]);
      }
    }
    w += 64, x += 128 * T;
    OPAQUE(far);
    UNROLL for (int r = 0; r < R; r++) _mm_prefetch(T == 8 ? far + r * sp : far + r / 2 * sp + r % 2 * 64, _MM_HINT_T1);
    far += T == 8 ? 5 * sp + 32 : 128;
    if (T == 8) sp = -sp;
  }
  if (left > 0) {
    const __mmask32 m = _bzhi_u32(0xffffffff, (uint32_t)left);
    UNROLL for (int half = 0; half < 2; half++) {
      __m512 a[4];
      const uint8_t *row = w;
      UNROLL for (int r = 0; r < R; r++) {
        OPAQUE(row);
        const __m512i v = _mm512_maskz_loadu_epi16(m, row);
        a[r] = (__m512)(half ? _mm512_and_si512(v, high) : _mm512_slli_epi32(v, 16));
        row += ws;
      }
      UNROLL for (int t = 0; t < T; t++) {
        const __m512 in = _mm512_loadu_ps(x + 128 * t + 64 * half);
        UNROLL for (int r = 0; r < R; r++) acc[r][t] = _mm512_fmadd_ps(a[r], in, acc[r][t]);
      }
    }
  }
  if (counts & 2) {
    ends(R, T, acc, y, ys);
  } else {
    UNROLL for (int i = 0; i < R * T; i++) _mm512_storeu_ps(sums + 64 * i, acc[i % R][i / R]);
  }
  // Subtracting is cheaper than keeping the old pointer in a register over the loop.
  OPAQUE(n);
  n = (n & ~31) * 2;
  w -= n;
  OPAQUE(w), OPAQUE(n);
  n *= 2 * T;
  x -= n;
  OPAQUE(x);
  *tokens = x, *streams = far, *apart = sp;
  return w + times(ws, R);
}

// mul_split computes rows of weights for a group of T tokens.
INLINE void mul_split(int T, const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t counts, int64_t far, int64_t sp) {
  const int R = T == 8 ? 3 : 4;
  const uint8_t *streams = w + far;
  ROLLED for (; counts >= 4 * R; counts -= 4 * R, OPAQUE(counts)) {
    w = split_rows(R, T, w, ws, &x, sums, y, ys, n, counts, &streams, &sp);
    sums += 64 * R * T, y += 4 * R;
  }
  ROLLED for (; counts >= 4; counts -= 4, OPAQUE(counts)) {
    w = split_rows(1, T, w, ws, &x, sums, y, ys, n, counts, &streams, &sp);
    sums += 64 * T, y += 4;
  }
}

#define SPLIT(T)                                                                                                                                                     \
  KERNEL avx512MulSplit##T(const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t counts, int64_t far, int64_t sp) { \
    mul_split(T, w, ws, x, sums, y, ys, n, counts, far, sp);                                                                                                             \
  }
SPLIT(1) SPLIT(2) SPLIT(4) SPLIT(8)

// Split writes a token in blocks of 32 elements, step bytes apart: the 16 even elements, then the
// odd ones. It fills the last block with zeros.
KERNEL avx512Split(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  ROLLED for (; n > 0; n -= 32, OPAQUE(n)) {
    const __m512 a = _mm512_maskz_loadu_ps(low(n > 16 ? 16 : n), src), b = _mm512_maskz_loadu_ps(low(n > 32 ? 16 : n > 16 ? n - 16 : 0), src + 64);
    _mm512_storeu_ps(dst, _mm512_permutex2var_ps(a, even, b));
    _mm512_storeu_ps(dst + 64, _mm512_permutex2var_ps(a, odd, b));
    dst += step, src += 128;
  }
}
