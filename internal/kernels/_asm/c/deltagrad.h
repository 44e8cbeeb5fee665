// The reverse of a step of a layer with a state. Included by the variants.

typedef float vec __attribute__((vector_size(WIDTH), aligned(4), may_alias));
#define LANES (WIDTH / 4)

// DeltaGrad takes the gradient of a state one token back. v is three vectors of values elements: the
// gradient of the result, what the token added to the state for its key, and the gradient of what the
// state had for the key. dkq are the gradients of key and query but for the token's own share.
KERNEL F(DeltaGrad)(float *dkq, const float *state, float *dstate, const float *k, const float *v, int64_t keys, int64_t values, const float *decay, double *sum) {
  const float by = *decay;
  const __m128i result = spill((int64_t)sum), last = spill((int64_t)(k + keys));
  double total = 0;
  keys *= 4;
  ROLLED for (; (int64_t)k < reload(last); k++, dkq++) {
    vec read = {0}, wrote = {0}, had = {0}, both = {0};
    const float key = *k;
    const float *in = v;
    OPAQUE(in);
    int64_t left = values;
    ROLLED for (; left >= LANES; left -= LANES, in += LANES, state += LANES, dstate += LANES) {
      const vec s = *(const vec *)state, d = *(const vec *)dstate, r = *(const vec *)(in + 2 * values);
      read += s * *(const vec *)in;
      wrote += d * *(const vec *)(in + values);
      had += s * r;
      both += s * d;
      *(vec *)dstate = (d + key * r) * by;
    }
    __m128 sums = folds(read, wrote, had, both);
    _Pragma("clang loop vectorize(disable)") ROLLED for (; left > 0; left--, in++, state++, dstate++) {
      const float s = *state, d = *dstate, r = in[2 * values];
      sums = _mm_add_ps(sums, _mm_mul_ps(_mm_setr_ps(s, d, s, s), _mm_setr_ps(*in, in[values], r, d)));
      *dstate = (d + key * r) * by;
    }
    const __m128 upper = _mm_movehl_ps(sums, sums);
    *dkq = _mm_cvtss_f32(_mm_movehdup_ps(sums)) + by * _mm_cvtss_f32(upper);
    *(float *)((uint8_t *)dkq + keys) = by * _mm_cvtss_f32(sums);
    total += (double)_mm_cvtss_f32(_mm_movehdup_ps(upper));
  }
  *(double *)reload(result) = total;
}
