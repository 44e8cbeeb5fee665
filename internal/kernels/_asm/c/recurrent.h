// Steps of layers with a state: the recurrence of a delta net, and taps of a convolution. Included by
// the variants. Products are rounded before they are added, in the order of the rows of the state.
#include "loops.h"

typedef float vec __attribute__((vector_size(WIDTH), aligned(4), may_alias));
#define LANES (WIDTH / 4)
#define BLOCK 4

// MulAdd: y += a·b.
KERNEL F(MulAdd)(float *restrict y, const float *restrict a, const float *restrict b, int64_t n) {
  EACH(i, n) y[i] += a[i] * b[i];
}

// read_rows sums n vectors of all rows, each times its key.
INLINE void read_rows(float *seen, const float *state, const float *k, int64_t keys, int64_t values, int n) {
  vec sum[BLOCK] = {0};
  ROLLED for (int64_t i = 0; i < keys; i++, state += values) {
    UNROLL for (int b = 0; b < n; b++) sum[b] += k[i] * *(const vec *)(state + b * LANES);
  }
  UNROLL for (int b = 0; b < n; b++) *(vec *)(seen + b * LANES) = sum[b];
}

// DeltaRead: seen[j] = Σ k[i]·state[i][j].
KERNEL F(DeltaRead)(float *seen, const float *state, const float *k, int64_t keys, int64_t values) {
  int64_t j = 0;
  ROLLED for (; j + BLOCK * LANES <= values; j += BLOCK * LANES) read_rows(seen + j, state + j, k, keys, values, BLOCK);
  ROLLED for (; j + LANES <= values; j += LANES) read_rows(seen + j, state + j, k, keys, values, 1);
  ROLLED for (; j < values; j++) {
    float sum = 0;
    _Pragma("clang loop vectorize(disable)") ROLLED for (int64_t i = 0; i < keys; i++) sum += k[i] * state[i * values + j];
    seen[j] = sum;
  }
}

// step_rows is DeltaStep for n vectors of all rows.
INLINE void step_rows(float *dst, float *state, const float *kq, const float *change, int64_t keys, int64_t values, float decay, int n) {
  vec sum[BLOCK] = {0}, add[BLOCK];
  UNROLL for (int b = 0; b < n; b++) add[b] = *(const vec *)(change + b * LANES);
  ROLLED for (int64_t i = 0; i < keys; i++, state += values) {
    UNROLL for (int b = 0; b < n; b++) {
      vec *at = (vec *)(state + b * LANES);
      const vec s = *at * decay + kq[i] * add[b];
      *at = s;
      sum[b] += kq[keys + i] * s;
    }
  }
  UNROLL for (int b = 0; b < n; b++) *(vec *)(dst + b * LANES) = sum[b];
}

// DeltaStep: state[i][j] = decay·state[i][j] + k[i]·change[j], then dst[j] = Σ q[i]·state[i][j]. kq is k
// and q, one behind the other.
KERNEL F(DeltaStep)(float *dst, float *state, const float *kq, const float *change, int64_t keys, int64_t values, const float *decay) {
  const float by = *decay;
  int64_t j = 0;
  ROLLED for (; j + BLOCK * LANES <= values; j += BLOCK * LANES) step_rows(dst + j, state + j, kq, change + j, keys, values, by, BLOCK);
  ROLLED for (; j + LANES <= values; j += LANES) step_rows(dst + j, state + j, kq, change + j, keys, values, by, 1);
  ROLLED for (; j < values; j++) {
    float sum = 0;
    _Pragma("clang loop vectorize(disable)") ROLLED for (int64_t i = 0; i < keys; i++) {
      const float s = state[i * values + j] * by + kq[i] * change[j];
      state[i * values + j] = s;
      sum += kq[keys + i] * s;
    }
    dst[j] = sum;
  }
}
