// AVX-512, 16 lanes: dot products and sums of columns with stored weights.
#include "wide.h"

// mul_block computes R rows for T tokens: y[t][r] = sum over k of w[r][k] x[t][k].
// It returns the address of the weights of the next rows.
INLINE const uint8_t *mul_block(int f, int R, int T, const uint8_t *w, int64_t ws, const uint8_t **tokens, int64_t xs, uint8_t *y, int64_t ys, int64_t n) {
  __m512 acc[4][8];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int t = 0; t < T; t++) acc[r][t] = _mm512_setzero_ps();
  const uint8_t *x = *tokens;
  const uint8_t *upper = x + times(xs, 4); // tokens from the fifth on
  const int64_t ws3 = times(ws, 3), xs3 = times(xs, 3);
#define ROW(r) (w + ((r) == 3 ? ws3 : (r) * ws))
#define TOKEN(t) (((t) < 4 ? x : upper) + ((t) % 4 == 3 ? xs3 : (t) % 4 * xs))
#define STEP(o)                                                                                              \
  do {                                                                                                       \
    __m512 a[4];                                                                                             \
    UNROLL for (int r = 0; r < R; r++) a[r] = load(f, ROW(r) + (o) * size_of(f));                            \
    UNROLL for (int t = 0; t < T; t++) {                                                                     \
      __m512 in = _mm512_loadu_ps(TOKEN(t) + (o) * 4);                                                       \
      UNROLL for (int r = 0; r < R; r++) acc[r][t] = _mm512_fmadd_ps(a[r], in, acc[r][t]);                   \
    }                                                                                                        \
  } while (0)
  int64_t left = n;
  if (T == 8) {
    // Prefetch the next rows meanwhile.
    const uint8_t *next = w + times(ws, 3);
    ROLLED for (; left >= 32; OPAQUE(left)) {
      OPAQUE(w), OPAQUE(x), OPAQUE(upper), OPAQUE(next);
      UNROLL for (int r = 0; r < R; r++) {
        _mm_prefetch(ROW(r) - w + next, _MM_HINT_T0);
        if (f == F32) _mm_prefetch(ROW(r) - w + next + 64, _MM_HINT_T0);
      }
      STEP(0);
      STEP(16);
      w += 32 * size_of(f), next += 32 * size_of(f), x += 128, upper += 128, left -= 32;
    }
  }
  if (T <= 2) {
    // Prefetch the next rows meanwhile.
    const uint8_t *next = w + times(ws, 4);
    ROLLED for (; left >= 32; OPAQUE(left)) {
      OPAQUE(w), OPAQUE(x), OPAQUE(next);
      UNROLL for (int r = 0; r < R; r++) {
        _mm_prefetch(ROW(r) - w + next, _MM_HINT_T0);
        if (f == F32) _mm_prefetch(ROW(r) - w + next + 64, _MM_HINT_T0);
      }
      STEP(0);
      STEP(16);
      w += 32 * size_of(f), next += 32 * size_of(f), x += 128, left -= 32;
    }
  }
  ROLLED for (; left >= 16; OPAQUE(left)) {
    OPAQUE(w), OPAQUE(x);
    if (T > 4) OPAQUE(upper);
    STEP(0);
    w += 16 * size_of(f), x += 64, upper += 64, left -= 16;
  }
  OPAQUE(w), OPAQUE(x);
  if (left > 0) {
    const __mmask16 m = low(left);
    const uint8_t *row = w, *token = x;
    __m512 a[4];
    UNROLL for (int r = 0; r < R; r++, row += ws, OPAQUE(row)) a[r] = load_mask(f, row, m);
    UNROLL for (int t = 0; t < T; t++, token += xs, OPAQUE(token)) {
      __m512 in = _mm512_maskz_loadu_ps(m, token);
      UNROLL for (int r = 0; r < R; r++) acc[r][t] = _mm512_mask3_fmadd_ps(a[r], in, acc[r][t], m);
    }
  }
  UNROLL for (int t = 0; t < T; t++) {
    if (R == 4) {
      _mm_storeu_ps((float *)y, folds(acc[0][t], acc[1][t], acc[2][t], acc[3][t]));
    } else if (R == 3) {
      _mm_mask_storeu_ps(y, 7, folds(acc[0][t], acc[1][t], acc[2][t], acc[2][t]));
    } else {
      *(float *)y = fold(acc[0][t]);
    }
    y += ys;
    OPAQUE(y);
  }
  // Subtracting is cheaper than keeping the old pointer in a register over the loop.
  int64_t back = n;
  OPAQUE(back);
  back &= ~15;
  *tokens = x - back * 4;
  return w - back * size_of(f) + times(ws, R);
}

INLINE void mul(int f, int T, MUL_ARGS) {
  const int R = T == 8 ? 3 : 4; // as many sums as there are registers
  ROLLED for (; rows >= R; OPAQUE(rows)) {
    w = mul_block(f, R, T, w, ws, &x, xs, y, ys, n);
    y += 4 * R, rows -= R;
  }
  ROLLED for (; rows > 0; OPAQUE(rows)) {
    w = mul_block(f, 1, T, w, ws, &x, xs, y, ys, n);
    y += 4, rows--;
  }
}

#define MUL(F, T) \
  KERNEL avx512Mul##F##T(MUL_ARGS) { mul(F, T, w, ws, x, xs, y, ys, n, rows); }
MUL(BF16, 2) MUL(BF16, 4) MUL(BF16, 6) MUL(BF16, 8)
MUL(F16, 2) MUL(F16, 4) MUL(F16, 6) MUL(F16, 8)
MUL(F32, 2) MUL(F32, 4) MUL(F32, 6) MUL(F32, 8)

// mix_block adds y[t][c] += sum over j of p[t][j] v[j][c] for C vectors of columns. The mask m has
// the columns that exist.
INLINE void mix_block(int f, int T, int C, __mmask16 m, uint8_t *y, int64_t ys, const uint8_t **weights, int64_t ps, int64_t step, const uint8_t **values, int64_t vs, int64_t keys) {
  __m512 acc[6][8];
  uint8_t *out = y;
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int c = 0; c < C; c++) acc[t][c] = _mm512_maskz_loadu_ps(m, out + 64 * c);
    out += ys;
    OPAQUE(out);
  }
  const uint8_t *p = *weights, *v = *values;
  const int64_t ps3 = times(ps, 3), ps5 = times(ps, 5);
  int64_t left = keys;
  ROLLED do {
    OPAQUE(p), OPAQUE(v);
    UNROLL for (int c = 0; c < C; c++) {
      __m512 a = load_mask(f, v + c * 16 * size_of(f), m);
      UNROLL for (int t = 0; t < T; t++) {
        __m512 b = _mm512_set1_ps(*(const float *)(p + (t == 3 ? ps3 : t == 5 ? ps5 : t * ps)));
        acc[t][c] = _mm512_fmadd_ps(a, b, acc[t][c]);
      }
    }
    v += vs, p += step, left--;
    OPAQUE(left);
  } while (left > 0);
  OPAQUE(keys);
  *weights = p - step * keys;
  *values = v - vs * keys;
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int c = 0; c < C; c++) _mm512_mask_storeu_ps(y + 64 * c, m, acc[t][c]);
    y += ys;
    OPAQUE(y);
  }
}

INLINE void mix(int f, int T, int C, MIX_ARGS) {
  ROLLED for (; cols >= 16 * C; OPAQUE(cols)) {
    mix_block(f, T, C, 0xffff, y, ys, &p, ps, step, &v, vs, keys);
    y += 64 * C, v += 16 * C * size_of(f), cols -= 16 * C;
  }
  ROLLED for (; cols > 0; OPAQUE(cols)) {
    mix_block(f, T, 1, low(cols), y, ys, &p, ps, step, &v, vs, keys);
    y += 64, v += 16 * size_of(f), cols -= 16;
  }
}

#define MIX(F, T, C) \
  KERNEL avx512Mix##F##T(MIX_ARGS) { mix(F, T, C, y, ys, p, ps, step, v, vs, keys, cols); }
MIX(BF16, 1, 4) MIX(BF16, 2, 4) MIX(BF16, 4, 4) MIX(BF16, 6, 4)
MIX(F16, 1, 4) MIX(F16, 2, 4) MIX(F16, 4, 4) MIX(F16, 6, 4)
MIX(F32, 1, 4) MIX(F32, 2, 4) MIX(F32, 4, 4) MIX(F32, 6, 4)

// add_lanes adds lanes[j mod 16][c] += x[j] v[j][c]: a dot product down each column.
INLINE void add_lanes(int f, uint8_t *lanes, const uint8_t *x, const uint8_t *v, int64_t vs, int64_t keys, int64_t cols) {
  uint8_t *out = lanes;
  int64_t lane = 0;
  ROLLED for (; keys > 0; OPAQUE(keys)) {
    uint8_t *acc = out;
    const uint8_t *row = v;
    const __m512 a = _mm512_set1_ps(*(const float *)x);
    int64_t left = cols;
    ROLLED for (; left >= 32; OPAQUE(left)) {
      // Prefetch: a row is too short for the hardware prefetcher to start.
      _mm_prefetch(row + 4 * vs, _MM_HINT_T0);
      if (f == F32) _mm_prefetch(row + 4 * vs + 64, _MM_HINT_T0);
      _mm512_storeu_ps(acc, _mm512_fmadd_ps(load(f, row), a, _mm512_loadu_ps(acc)));
      _mm512_storeu_ps(acc + 64, _mm512_fmadd_ps(load(f, row + 16 * size_of(f)), a, _mm512_loadu_ps(acc + 64)));
      row += 32 * size_of(f), acc += 128, left -= 32;
      OPAQUE(row), OPAQUE(acc);
    }
    ROLLED for (; left > 0; OPAQUE(left)) {
      const __mmask16 m = low(left);
      _mm512_mask_storeu_ps(acc, m, _mm512_fmadd_ps(load_mask(f, row, m), a, _mm512_maskz_loadu_ps(m, acc)));
      row += 16 * size_of(f), acc += 64, left -= 16;
      OPAQUE(row), OPAQUE(acc);
    }
    v += vs, x += 4, out += times(cols, 4), keys--;
    if ((++lane & 15) == 0) out = lanes;
  }
}

#define LANES_ARGS uint8_t *lanes, const uint8_t *x, const uint8_t *v, int64_t vs, int64_t keys, int64_t cols
KERNEL avx512AddLanesBF16(LANES_ARGS) { add_lanes(BF16, lanes, x, v, vs, keys, cols); }
KERNEL avx512AddLanesF16(LANES_ARGS) { add_lanes(F16, lanes, x, v, vs, keys, cols); }
KERNEL avx512AddLanesF32(LANES_ARGS) { add_lanes(F32, lanes, x, v, vs, keys, cols); }
