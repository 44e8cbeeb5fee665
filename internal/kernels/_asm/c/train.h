// Kernels of training, the same source for every variant: loops that the compiler turns
// into vectors. F names a function of the variant. c is the constants of a call. Loops of
// elements compute what the Go variant does, bit by bit; sums are added up in any order,
// in float64.
#include "common.h"

#define EACH(i, n) _Pragma("clang loop vectorize(assume_safety)") for (int64_t i = 0; i < (n); i++)
// EACH_ALONE is EACH for loops whose constants leave few registers.
#define EACH_ALONE(i, n) _Pragma("clang loop vectorize(assume_safety) interleave(disable)") for (int64_t i = 0; i < (n); i++)
#define ANY_ORDER _Pragma("clang fp reassociate(on)")

// AddScaled: y += c·x.
KERNEL F(AddScaled)(float *restrict y, const float *restrict x, int64_t n, const float *c) {
  const float by = c[0];
  EACH(i, n) y[i] += by * x[i];
}

// Sum: y = a + b.
KERNEL F(Sum)(float *restrict y, const float *restrict a, const float *restrict b, int64_t n) {
  EACH(i, n) y[i] = a[i] + b[i];
}

// ScaleShift: x = x·c0 − c1.
KERNEL F(ScaleShift)(float *restrict x, int64_t n, const float *c) {
  const float by = c[0], shift = c[1];
  EACH(i, n) x[i] = x[i] * by - shift;
}

// Round: x to the nearest bfloat16, ties to even, NaNs quiet.
KERNEL F(Round)(uint32_t *restrict x, int64_t n) {
  EACH(i, n) {
    const uint32_t b = x[i], up = (b + 0x7fff + (b >> 16 & 1)) & 0xffff0000;
    x[i] = (b & 0x7fffffff) > 0x7f800000 ? (b | 0x400000) & 0xffff0000 : up;
  }
}

// Dot: s = Σ a·b.
KERNEL F(Dot64)(const float *a, const float *b, int64_t n, double *s) {
  ANY_ORDER
  double sum = 0;
  EACH(i, n) sum += (double)a[i] * (double)b[i];
  *s = sum;
}

// sigmoid is 1/(1 + e^-u) with the exponential of the Go variant, u cut off where the
// result is 0 or 1 anyhow.
INLINE float sigmoid(float u) {
  float x = -u;
  x = x > 88 ? 88 : x;
  x = x < -88 ? -88 : x;
  const float n = (x * LOG2E + 12582912.f) - 12582912.f;
  const float r = x - n * LN2_HI - n * LN2_LO;
  float p = 1.f / 5040;
  p = p * r + 1.f / 720;
  p = p * r + 1.f / 120;
  p = p * r + 1.f / 24;
  p = p * r + 1.f / 6;
  p = p * r + 0.5f;
  p = p * r + 1;
  p = p * r + 1;
  union {
    float f;
    int32_t i;
  } e = {p};
  e.i += (int32_t)n << 23;
  return 1 / (1 + e.f);
}

// The reverse of gate·σ(gate·(c1 + c3·gate²))·up, for SiLU and for GELU with its
// hyperbolic tangent, and without up.
#define GATE_GRAD(c1, c3)                                                                  \
  EACH_ALONE(i, n) {                                                                       \
    const float g = gate[i], square = g * g, s = sigmoid(g * (c1 + c3 * square)), d = dy[i]; \
    dgate[i] += d * up[i] * (s * (1 + g * (1 - s) * (c1 + 3 * c3 * square)));              \
    dup[i] += d * (g * s);                                                                 \
  }
#define GATE_GRAD_ALONE(c1, c3)                                                        \
  EACH_ALONE(i, n) {                                                                   \
    const float g = gate[i], square = g * g, s = sigmoid(g * (c1 + c3 * square));      \
    dgate[i] += dy[i] * (s * (1 + g * (1 - s) * (c1 + 3 * c3 * square)));              \
  }
#define GATE_ARGS float *restrict dgate, float *restrict dup, const float *restrict dy, const float *restrict gate, const float *restrict up, int64_t n
#define ALONE_ARGS float *restrict dgate, const float *restrict dy, const float *restrict gate, int64_t n
#define GELU_C1 1.5957691216057308f
#define GELU_C3 0.0713548162726f

KERNEL F(SiLUGrad)(GATE_ARGS) { GATE_GRAD(1.f, 0.f) }
KERNEL F(GELUTanhGrad)(GATE_ARGS) { GATE_GRAD(GELU_C1, GELU_C3) }
KERNEL F(SiLUGradAlone)(ALONE_ARGS) { GATE_GRAD_ALONE(1.f, 0.f) }
KERNEL F(GELUTanhGradAlone)(ALONE_ARGS) { GATE_GRAD_ALONE(GELU_C1, GELU_C3) }

// SoftmaxGrad: grad = p·(grad − c0)·c1.
KERNEL F(SoftmaxGrad)(float *restrict grad, const float *restrict p, int64_t n, const float *c) {
  const float mean = c[0], scale = c[1];
  EACH(i, n) grad[i] = p[i] * (grad[i] - mean) * scale;
}

// Normal: y = (x − c0)·c1·w.
KERNEL F(Normal)(float *restrict y, const float *restrict x, const float *restrict w, int64_t n, const float *c) {
  const float mean = c[0], by = c[1];
  EACH(i, n) y[i] = (x[i] - mean) * by * w[i];
}

// NormSums: s0 = Σ dy·w·(x − c0), s1 = Σ dy·w.
KERNEL F(NormSums)(const float *dy, const float *x, const float *w, int64_t n, const float *c, double *s) {
  ANY_ORDER
  const float mean = c[0];
  double along = 0, level = 0;
  EACH(i, n) {
    const float h = dy[i] * w[i];
    along += (double)(h * (x[i] - mean));
    level += (double)h;
  }
  s[0] = along, s[1] = level;
}

// NormGrad: dx += c1·(dy·w − c2 − (x − c0)·c3).
KERNEL F(NormGrad)(float *restrict dx, const float *restrict dy, const float *restrict x, const float *restrict w, int64_t n, const float *c) {
  const float mean = c[0], by = c[1], offset = c[2], slope = c[3];
  EACH(i, n) dx[i] += by * (dy[i] * w[i] - offset - (x[i] - mean) * slope);
}

// NormWeight: dw += dy·(x − c0)·c1.
KERNEL F(NormWeight)(float *restrict dw, const float *restrict dy, const float *restrict x, int64_t n, const float *c) {
  const float mean = c[0], by = c[1];
  EACH(i, n) dw[i] += dy[i] * (x[i] - mean) * by;
}

// TurnHalves: (a, b) = (a·cos − b·sin·c0, b·cos + a·sin·c0).
KERNEL F(TurnHalves)(float *restrict a, float *restrict b, const float *restrict cosine, const float *restrict sine, int64_t n, const float *c) {
  const float sign = c[0];
  EACH(i, n) {
    const float s = sign * sine[i], u = a[i], v = b[i];
    a[i] = u * cosine[i] - v * s;
    b[i] = v * cosine[i] + u * s;
  }
}

typedef float V __attribute__((vector_size(WIDTH), aligned(4)));

// Adam steps whole vectors of weights by their gradients: see AdamStep.
KERNEL F(Adam)(float *w, float *m, float *v, const float *grad, int64_t n, const float *c) {
  ROLLED for (; n > 0; n -= WIDTH / 4) {
    OPAQUE(c);
    const V x = *(V *)w * c[0], d = c[2] * *(V *)grad + c[1] * x;
    const V mean = *(V *)m + c[3] * (d - *(V *)m), square = c[4] * *(V *)v + c[5] * d * d;
    *(V *)m = mean;
    *(V *)v = square;
    *(V *)w = x - c[6] * mean / (__builtin_elementwise_sqrt(square) / c[7] + c[8]);
    w += WIDTH / 4, m += WIDTH / 4, v += WIDTH / 4, grad += WIDTH / 4;
  }
}

// Momentum steps weights by a buffer of gradients: see MomentumStep.
KERNEL F(Momentum)(float *restrict w, float *restrict buf, const float *restrict grad, int64_t n, const float *c) {
  const float lr = c[0], decay = c[1], sign = c[2], keep = c[3], take = c[4];
  const int nesterov = c[5] != 0;
  EACH_ALONE(i, n) {
    const float d = sign * grad[i] + decay * w[i], b = keep * buf[i] + take * d;
    buf[i] = b;
    w[i] -= lr * (nesterov ? d + keep * b : b);
  }
}
