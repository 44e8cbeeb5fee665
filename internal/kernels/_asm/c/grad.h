// Gradients of activations and norms. Included by the variants.
#include "loops.h"

// exponential is e^-u as the Go variant computes it, u cut off where 1/(1 + e^-u) is 0 or 1 anyhow.
INLINE float exponential(float u) {
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
  return e.f;
}

// The reverse of gate·σ(gate·(c1 + c3·gate²))·up, for SiLU and for GELU with its
// hyperbolic tangent, and without up. e·s is 1 - s, which keeps its precision where s is close to 1.
#define GATE_GRAD(c1, c3)                                                                                       \
  EACH_ALONE(i, n) {                                                                                            \
    const float g = gate[i], square = g * g, e = exponential(g * (c1 + c3 * square)), s = 1 / (1 + e), d = dy[i]; \
    dgate[i] += d * up[i] * (s * (1 + g * (e * s) * (c1 + 3 * c3 * square)));                                   \
    dup[i] += d * (g * s);                                                                                      \
  }
#define GATE_GRAD_ALONE(c1, c3)                                                                                 \
  EACH_ALONE(i, n) {                                                                                            \
    const float g = gate[i], square = g * g, e = exponential(g * (c1 + c3 * square)), s = 1 / (1 + e);          \
    dgate[i] += dy[i] * (s * (1 + g * (e * s) * (c1 + 3 * c3 * square)));                                       \
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

// RotateHalf: (a, b) = (a·cos − b·sin·c0, b·cos + a·sin·c0).
KERNEL F(RotateHalf)(float *restrict a, float *restrict b, const float *restrict cosine, const float *restrict sine, int64_t n, const float *c) {
  const float sign = c[0];
  EACH(i, n) {
    const float s = sign * sine[i], u = a[i], v = b[i];
    a[i] = u * cosine[i] - v * s;
    b[i] = v * cosine[i] + u * s;
  }
}
