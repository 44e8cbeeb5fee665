// AVX2, 8 lanes: dot products and sums of columns with stored weights.
#include "narrow.h"

#define MASK(x) __builtin_bit_cast(float, (uint32_t)(x))

// The eight floats from masks + 7 - l have all bits set in lane l. Those 15 further on have the
// sign bit set in the other lanes.
static const float masks[30] = {0,    0,    0,    0,    0,    0,    0,    MASK(-1), 0,    0,    0,    0,    0,    0,    0,
                                -0.f, -0.f, -0.f, -0.f, -0.f, -0.f, -0.f, 0,        -0.f, -0.f, -0.f, -0.f, -0.f, -0.f, -0.f};

// mul_block computes R rows for T tokens: y[t][r] = sum over k of w[r][k] x[t][k].
// It returns the address of the weights of the next rows.
INLINE const uint8_t *mul_block(int f, int R, int T, const uint8_t *w, int64_t ws, const uint8_t **tokens, int64_t xs, uint8_t *y, int64_t ys, int64_t n) {
  __m256 acc[4][2];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int t = 0; t < T; t++) acc[r][t] = _mm256_setzero_ps();
  const uint8_t *x = *tokens;
  const int64_t ws3 = times(ws, 3);
#define ROW(r) (w + ((r) == 3 ? ws3 : (r) * ws))
#define STEP(o)                                                                            \
  do {                                                                                     \
    __m256 in[2];                                                                          \
    UNROLL for (int t = 0; t < T; t++) in[t] = _mm256_loadu_ps((const float *)(x + t * xs) + (o)); \
    UNROLL for (int r = 0; r < R; r++) {                                                   \
      __m256 a = load(f, ROW(r) + (o) * size_of(f));                                       \
      UNROLL for (int t = 0; t < T; t++) acc[r][t] = _mm256_fmadd_ps(a, in[t], acc[r][t]); \
    }                                                                                      \
  } while (0)
  int64_t left = n;
  if (T == 1) {
    // Prefetch the next rows meanwhile.
    const uint8_t *next = w + times(ws, 4);
    ROLLED for (; left >= 32; OPAQUE(left)) {
      OPAQUE(w), OPAQUE(x), OPAQUE(next);
      UNROLL for (int r = 0; r < R; r++) {
        _mm_prefetch(ROW(r) - w + next, _MM_HINT_T0);
        if (f == F32) _mm_prefetch(ROW(r) - w + next + 64, _MM_HINT_T0);
      }
      STEP(0);
      STEP(8);
      STEP(16);
      STEP(24);
      w += 32 * size_of(f), next += 32 * size_of(f), x += 128, left -= 32;
    }
  }
  ROLLED for (; left >= 8; OPAQUE(left)) {
    OPAQUE(w), OPAQUE(x);
    STEP(0);
    w += 8 * size_of(f), x += 32, left -= 8;
  }
  // Elements behind the last vector are added one at a time, each in its lane, since 16-bit weights
  // have no masked load. The other lanes add -0, which changes nothing.
  const float *only = masks + 7;
  ROLLED for (; left > 0; OPAQUE(left)) {
    OPAQUE(w), OPAQUE(x), OPAQUE(only);
    const uint8_t *row = w, *token = x;
    __m256 in[2];
    UNROLL for (int t = 0; t < T; t++) {
      in[t] = _mm256_or_ps(_mm256_and_ps(_mm256_broadcast_ss((const float *)token), _mm256_loadu_ps(only)), _mm256_loadu_ps(only + 15));
      if (t + 1 < T) token += xs, OPAQUE(token);
    }
    UNROLL for (int r = 0; r < R; r++) {
      __m256 a = _mm256_and_ps(load_one(f, row), _mm256_loadu_ps(only));
      UNROLL for (int t = 0; t < T; t++) acc[r][t] = _mm256_fmadd_ps(a, in[t], acc[r][t]);
      if (r + 1 < R) row += ws, OPAQUE(row);
    }
    w += size_of(f), x += 4, left--, only--;
  }
  UNROLL for (int t = 0; t < T; t++) {
    if (R == 4) {
      _mm_storeu_ps((float *)y, folds(acc[0][t], acc[1][t], acc[2][t], acc[3][t]));
    } else {
      *(float *)y = fold(acc[0][t]);
    }
    y += ys;
    OPAQUE(y);
  }
  // Subtracting is cheaper than keeping the old pointer in a register over the loop.
  int64_t back = n;
  OPAQUE(back);
  *tokens = x - back * 4;
  return w - back * size_of(f) + times(ws, R);
}

// mul computes all rows, in blocks of the largest size that remains.
INLINE void mul(int f, int most, int T, MUL_ARGS) {
  if (most == 4) ROLLED for (; rows >= 4; OPAQUE(rows)) {
    w = mul_block(f, 4, T, w, ws, &x, xs, y, ys, n);
    y += 16, rows -= 4;
  }
  ROLLED for (; rows > 0; OPAQUE(rows)) {
    w = mul_block(f, 1, T, w, ws, &x, xs, y, ys, n);
    y += 4, rows--;
  }
}

#define MUL(F)                                                                         \
  KERNEL avx2Mul##F##1(MUL_ARGS) { mul(F, 4, 1, w, ws, x, xs, y, ys, n, rows); }   \
  KERNEL avx2Mul##F##1x1(MUL_ARGS) { mul(F, 1, 1, w, ws, x, xs, y, ys, n, rows); } \
  KERNEL avx2Mul##F##2(MUL_ARGS) { mul(F, 4, 2, w, ws, x, xs, y, ys, n, rows); }
MUL(BF16) MUL(F16) MUL(F32)

// mix_block adds y[t][c] += sum over j of p[t][j] v[j][c] for C vectors of columns, or
// for one column where C is 0.
INLINE void mix_block(int f, int T, int C, uint8_t *y, int64_t ys, const uint8_t **weights, int64_t ps, int64_t step, const uint8_t **values, int64_t vs, int64_t keys) {
  const int vectors = C ? C : 1;
  __m256 acc[6][4];
  uint8_t *out = y;
  UNROLL for (int t = 0; t < T; t++) {
    if (t > 0) out += ys, OPAQUE(out);
    UNROLL for (int c = 0; c < vectors; c++) acc[t][c] = C ? _mm256_loadu_ps((const float *)out + 8 * c) : _mm256_broadcast_ss((const float *)out);
  }
  const uint8_t *p = *weights, *v = *values;
  int64_t left = keys;
  ROLLED do {
    OPAQUE(p), OPAQUE(v);
    const uint8_t *next = p + ps;
    if (T > 2) OPAQUE(next);
    __m256 a[4];
    UNROLL for (int c = 0; c < vectors; c++) a[c] = C ? load(f, v + c * 8 * size_of(f)) : load_one(f, v);
    UNROLL for (int t = 0; t < T; t++) {
      const __m256 by = _mm256_broadcast_ss((const float *)(t == 3 || t == 5 ? next + (t - 1) * ps : p + t * ps));
      UNROLL for (int c = 0; c < vectors; c++) acc[t][c] = _mm256_fmadd_ps(a[c], by, acc[t][c]);
    }
    v += vs, p += step, left--;
    OPAQUE(left);
  } while (left > 0);
  OPAQUE(keys);
  *weights = p - step * keys;
  *values = v - vs * keys;
  UNROLL for (int t = 0; t < T; t++) {
    if (t > 0) y += ys, OPAQUE(y);
    UNROLL for (int c = 0; c < vectors; c++) {
      if (C) _mm256_storeu_ps((float *)y + 8 * c, acc[t][c]);
      else *(float *)y = _mm256_cvtss_f32(acc[t][c]);
    }
  }
}

INLINE void mix(int f, int T, MIX_ARGS) {
  const int C = T > 2 ? 2 : 4;
  ROLLED for (; cols >= 8 * C; OPAQUE(cols)) {
    mix_block(f, T, C, y, ys, &p, ps, step, &v, vs, keys);
    y += 32 * C, v += 8 * C * size_of(f), cols -= 8 * C;
  }
  ROLLED for (; cols >= 8; OPAQUE(cols)) {
    mix_block(f, T, 1, y, ys, &p, ps, step, &v, vs, keys);
    y += 32, v += 8 * size_of(f), cols -= 8;
  }
  ROLLED for (; cols > 0; OPAQUE(cols)) {
    mix_block(f, T, 0, y, ys, &p, ps, step, &v, vs, keys);
    y += 4, v += size_of(f), cols--;
  }
}

#define MIX(F, T) \
  KERNEL avx2Mix##F##T(MIX_ARGS) { mix(F, T, y, ys, p, ps, step, v, vs, keys, cols); }
MIX(BF16, 1) MIX(BF16, 2) MIX(BF16, 4) MIX(BF16, 6)
MIX(F16, 1) MIX(F16, 2) MIX(F16, 4) MIX(F16, 6)
MIX(F32, 1) MIX(F32, 2) MIX(F32, 4) MIX(F32, 6)

// add_lanes adds lanes[j mod 8][c] += x[j] v[j][c]: a dot product down each column.
INLINE void add_lanes(int f, uint8_t *lanes, const uint8_t *x, const uint8_t *v, int64_t vs, int64_t keys, int64_t cols) {
  uint8_t *out = lanes;
  int64_t lane = 0;
  ROLLED for (; keys > 0; OPAQUE(keys)) {
    uint8_t *acc = out;
    const uint8_t *row = v;
    const __m256 a = _mm256_broadcast_ss((const float *)x);
    int64_t left = cols;
    ROLLED for (; left >= 32; OPAQUE(left)) {
      // Prefetch: a row is too short for the hardware prefetcher to start.
      _mm_prefetch(row + 4 * vs, _MM_HINT_T0);
      if (f == F32) _mm_prefetch(row + 4 * vs + 64, _MM_HINT_T0);
      UNROLL for (int i = 0; i < 32; i += 8) {
        float *sum = (float *)acc + i;
        _mm256_storeu_ps(sum, _mm256_fmadd_ps(load(f, row + i * size_of(f)), a, _mm256_loadu_ps(sum)));
      }
      row += 32 * size_of(f), acc += 128, left -= 32;
      OPAQUE(row), OPAQUE(acc);
    }
    ROLLED for (; left > 0; OPAQUE(left)) {
      __m256 sum = _mm256_fmadd_ps(load_one(f, row), a, _mm256_broadcast_ss((const float *)acc));
      *(float *)acc = _mm256_cvtss_f32(sum);
      row += size_of(f), acc += 4, left--;
      OPAQUE(row), OPAQUE(acc);
    }
    v += vs, x += 4, out += times(cols, 4), keys--;
    if ((++lane & 7) == 0) out = lanes;
  }
}

#define LANES_ARGS uint8_t *lanes, const uint8_t *x, const uint8_t *v, int64_t vs, int64_t keys, int64_t cols
KERNEL avx2AddLanesBF16(LANES_ARGS) { add_lanes(BF16, lanes, x, v, vs, keys, cols); }
KERNEL avx2AddLanesF16(LANES_ARGS) { add_lanes(F16, lanes, x, v, vs, keys, cols); }
KERNEL avx2AddLanesF32(LANES_ARGS) { add_lanes(F32, lanes, x, v, vs, keys, cols); }
