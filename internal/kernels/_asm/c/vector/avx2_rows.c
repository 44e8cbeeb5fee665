// AVX2 kernels of operations on single elements, with the bits of Go in every variant that has
// AVX2. Numbers of elements are multiples of 8.
#include "common.h"

INLINE __m256 at(const uint8_t *p) { return _mm256_loadu_ps((const float *)p); }
INLINE __m256 floats(int64_t bits) { return _mm256_set1_ps(__builtin_bit_cast(float, (int32_t)bits)); }

// TurnInterleaved turns n/2 pairs that lie one after another by angles with the given cosines and
// sines.
KERNEL avx2TransposeInterleaved(uint8_t *x, const uint8_t *cos, const uint8_t *sin, int64_t n) {
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  ROLLED for (; n > 0; n -= 8) {
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)cos)), twice);
    const __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)sin)), twice);
    const __m256 v = at(x), other = _mm256_permute_ps(v, 0xb1);
    _mm256_storeu_ps((float *)x, _mm256_addsub_ps(_mm256_mul_ps(v, c), _mm256_mul_ps(other, s)));
    x += 32, cos += 16, sin += 16;
  }
}

// Min sets dst to x or limit, whichever is less. A NaN is the second operand.
KERNEL avx2Min(uint8_t *dst, const uint8_t *x, int64_t n, int64_t limit) {
  const __m256 most = floats(limit);
  ROLLED for (; n > 0; n -= 8) {
    _mm256_storeu_ps((float *)dst, _mm256_min_ps(most, at(x)));
    dst += 32, x += 32;
  }
}

// TimesClamped sets dst to in times one more than up, which is no further from 0 than limit.
KERNEL avx2TimesClamped(uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, int64_t limit) {
  const __m256 most = floats(limit), least = _mm256_xor_ps(most, _mm256_set1_ps(-0.f)), one = _mm256_set1_ps(1);
  ROLLED for (; n > 0; n -= 8) {
    const __m256 u = _mm256_max_ps(least, _mm256_min_ps(most, at(up)));
    _mm256_storeu_ps((float *)dst, _mm256_mul_ps(at(in), _mm256_add_ps(u, one)));
    dst += 32, in += 32, up += 32;
  }
}

// Times multiplies dst by x.
KERNEL avx2Times(uint8_t *dst, const uint8_t *x, int64_t n) {
  ROLLED for (; n > 0; n -= 8) {
    _mm256_storeu_ps((float *)dst, _mm256_mul_ps(at(dst), at(x)));
    dst += 32, x += 32;
  }
}

// ReLU: the sum makes a zero of a negative one.
KERNEL avx2ReLU(uint8_t *dst, const uint8_t *x, int64_t n) {
  const __m256 zero = _mm256_setzero_ps();
  ROLLED for (; n > 0; n -= 8) {
    _mm256_storeu_ps((float *)dst, _mm256_add_ps(_mm256_max_ps(zero, at(x)), zero));
    dst += 32, x += 32;
  }
}
