// Steps of optimizers. Included by the variants.
#include "loops.h"

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
