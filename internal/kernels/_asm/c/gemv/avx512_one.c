// AVX-512: dot products of stored weights with one token. Memory bandwidth limits them, and
// processors differ in how they read memory fastest, so each kernel has three forms: 8 streams of
// neighbouring rows, 4 neighbouring rows, and 1 row. If rows are short, the prefetchers of some
// processors take neighbouring rows for one stream and prefetch nothing; 8 distant streams and
// software prefetch help there. Each line is prefetched AHEAD bytes early, across the ends of rows
// and of streams. Package fetch chooses the form.
//
// The order of sums is that of the kernels for more tokens: see avx512_dot.c and avx512_split.c.
#include "wide.h"

enum { STREAMS = 8, AHEAD = DISTANCE(1024), SPLIT = F32 + 1 };

// A line is 64 bytes of a row. lines is the number of whole lines of n elements. last is the number
// of lines at the end that prefetch the next row.
INLINE int64_t lines(int f, int64_t n) {
  OPAQUE(n);
  return (int64_t)((uint64_t)n >> (f == F32 ? 4 : 5));
}

INLINE int64_t last(int f, int64_t n) {
  n = lines(f, n);
  return n < AHEAD / 64 ? n : AHEAD / 64;
}

// multiply adds the products of both halves of a line of weights, under the mask m.
INLINE __m512 multiply(int f, const uint8_t *w, __m512 x0, __m512 x1, __m512 sum) {
  if (f == F32) return _mm512_fmadd_ps(_mm512_loadu_ps(w), x0, sum);
  if (f != SPLIT) return _mm512_fmadd_ps(load(f, w + 32), x1, _mm512_fmadd_ps(load(f, w), x0, sum));
  const __m512i v = _mm512_loadu_si512(w), high = _mm512_set1_epi32((int)0xffff0000);
  return _mm512_fmadd_ps((__m512)_mm512_and_si512(v, high), x1, _mm512_fmadd_ps((__m512)_mm512_slli_epi32(v, 16), x0, sum));
}

// residual adds the elements behind the last whole line; m has their lanes.
INLINE __m512 residual(int f, const uint8_t *w, const uint8_t *x, __mmask32 m, __m512 sum) {
  if (f == SPLIT) { // the token is filled up with zeros
    const __m512i v = _mm512_maskz_loadu_epi16(m, w), high = _mm512_set1_epi32((int)0xffff0000);
    sum = _mm512_fmadd_ps((__m512)_mm512_slli_epi32(v, 16), _mm512_loadu_ps(x), sum);
    return _mm512_fmadd_ps((__m512)_mm512_and_si512(v, high), _mm512_loadu_ps(x + 64), sum);
  }
  const __mmask16 m0 = (__mmask16)m, m1 = (__mmask16)(m >> 16);
  sum = _mm512_mask3_fmadd_ps(load_mask(f, w, m0), _mm512_maskz_loadu_ps(m0, x), sum, m0);
  if (f == F32) return sum;
  return _mm512_mask3_fmadd_ps(load_mask(f, w + 32, m1), _mm512_maskz_loadu_ps(m1, x + 64), sum, m1);
}

#define STREAM(p, r) ((p) + ((r) == 7 ? ss7 : (r) == 6 ? 2 * ss3 : (r) == 5 ? ss5 : (r) == 3 ? ss3 : (r) * ss))

// row computes one row of each of R streams, ss bytes apart; count rows of a stream remain. Values
// that follow from n are computed again, as there is no register for them.
INLINE const uint8_t *row(int f, int R, const uint8_t *w, int64_t ws, int64_t ss, __m128i count, const uint8_t **token, int64_t n, __m512 acc[8]) {
  int64_t ss3 = times(ss, 3);
  const int64_t ss5 = times(ss, 5), ss7 = times(ss, 7);
  const uint8_t *x = *token;
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
#define LINES                                                                                          \
  ROLLED for (; left > 0; left--, OPAQUE(left)) {                                                      \
    OPAQUE(w), OPAQUE(x), OPAQUE(next), OPAQUE(ss), OPAQUE(ss3); /* or multiples of them are kept */  \
    const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + (f == F32 ? 0 : 64));               \
    UNROLL for (int r = 0; r < R; r++) {                                                               \
      _mm_prefetch(STREAM(next, r), _MM_HINT_T0);                                                      \
      acc[r] = multiply(f, STREAM(w, r), x0, x1, acc[r]);                                              \
    }                                                                                                  \
    w += 64, next += 64, x += f == F32 ? 64 : 128;                                                     \
  }
  const uint8_t *next = w + 64 * last(f, n);
  int64_t left = lines(f, n) - last(f, n);
  LINES
  left = last(f, n);
  next = w + 64 * left - 64 * lines(f, n) + (R == 4 ? 4 * ws : R > 1 && reload(count) == 1 ? ws + ss7 : ws);
  LINES
  OPAQUE(n);
  left = n & (f == F32 ? 15 : 31);
  if (left > 0) {
    const __mmask32 m = _bzhi_u32(0xffffffff, (uint32_t)left);
    UNROLL for (int r = 0; r < R; r++) {
      OPAQUE(w);
      acc[r] = residual(f, STREAM(w, r), x, m, acc[r]);
    }
  }
  left = 64 * lines(f, n);
  *token = x - (f == F32 ? left : 2 * left);
  return w - left + ws;
}

// one computes all rows, in blocks of the largest size that remains.
INLINE void one(int f, int most, const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t n, int64_t rows) {
  __m512 acc[8];
  const __m128i all = spill(rows);
  if (most == 8) ROLLED for (int64_t i = rows >> 3; i > 0; i--, OPAQUE(i)) {
    const __m128i out = spill((int64_t)y), count = spill(i);
    w = row(f, STREAMS, w, ws, times(ws, 1) * (reload(all) >> 3), count, &x, n, acc);
    uint8_t *to = (uint8_t *)reload(out);
    i = reload(count);
    const int64_t ys = reload(all) >> 3 << 2;
    y = to + 4;
    __m512 sums = fold8(acc);
    UNROLL for (int r = 0; r < 4; r++) {
      const __m128 q = _mm512_castps512_ps128(sums);
      *(float *)to = _mm_cvtss_f32(q);
      *(float *)(to + 4 * ys) = _mm_cvtss_f32(_mm_movehl_ps(q, q));
      sums = _mm512_shuffle_f32x4(sums, sums, 0x39); // the next quarter
      to += ys;
      OPAQUE(to);
    }
  }
  rows = reload(all);
  if (most == 8) w += times(ws, 7) * (rows >> 3), y += 28 * (rows >> 3);
  if (most == 8 && rows & 4) {
    row(f, 4, w, ws, ws, all, &x, n, acc);
    _mm_storeu_ps((float *)y, folds(acc[0], acc[1], acc[2], acc[3]));
    w += 4 * ws, y += 16;
  }
  if (most == 4) ROLLED for (rows >>= 2; rows > 0; rows--, OPAQUE(rows)) {
    const __m128i out = spill((int64_t)y), count = spill(rows);
    w = row(f, 4, w, ws, ws, all, &x, n, acc);
    y = (uint8_t *)reload(out), rows = reload(count);
    _mm_storeu_ps((float *)y, folds(acc[0], acc[1], acc[2], acc[3]));
    w += times(ws, 3), y += 16;
  }
  rows = reload(all);
  if (most > 1) rows &= 3;
  ROLLED for (; rows > 0; rows--, OPAQUE(rows)) {
    w = row(f, 1, w, ws, ws, all, &x, n, acc);
    *(float *)y = fold(acc[0]);
    y += 4;
  }
}

// SplitOne is avx512MulSplit1 from the first k to the last. The number behind x is that of rows at
// once.
#define ONE(R)                                                                                                                                            \
  KERNEL avx512MulBF161x##R(MUL_ARGS) { one(BF16, R, w, ws, x, y, n, rows); }                                                                             \
  KERNEL avx512MulF161x##R(MUL_ARGS) { one(F16, R, w, ws, x, y, n, rows); }                                                                               \
  KERNEL avx512MulF321x##R(MUL_ARGS) { one(F32, R, w, ws, x, y, n, rows); }                                                                               \
  KERNEL avx512SplitOne##x##R(const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t n, int64_t rows) { one(SPLIT, R, w, ws, x, y, n, rows); }
ONE(8) ONE(4) ONE(1)
