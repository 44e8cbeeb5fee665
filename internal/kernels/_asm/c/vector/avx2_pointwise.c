// Elementwise operations, reductions, widening and transposing: AVX2, 8 lanes.
#include "narrow.h"

// transpose8 transposes 8 vectors.
INLINE void transpose8(__m256 v[8]) {
  __m256 t[8];
  UNROLL for (int i = 0; i < 8; i += 4) {
    __m256 a = _mm256_unpacklo_ps(v[i], v[i + 1]), b = _mm256_unpackhi_ps(v[i], v[i + 1]);
    __m256 c = _mm256_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44), t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44), t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    v[i] = _mm256_permute2f128_ps(t[i], t[4 + i], 0x20), v[4 + i] = _mm256_permute2f128_ps(t[i], t[4 + i], 0x31);
  }
}

// columns writes the transpose of rows by cols weights, multiples of 8, as float32.
INLINE void columns(int f, uint8_t *dst, int64_t ds, const uint8_t *w, int64_t ws, int64_t rows, int64_t cols) {
  ROLLED for (; rows > 0; rows -= 8, OPAQUE(rows)) {
    uint8_t *to = dst;
    const uint8_t *from = w;
    int64_t left = cols;
    ROLLED for (; left > 0; left -= 8, OPAQUE(left)) {
      const uint8_t *row = from;
      __m256 v[8];
      UNROLL for (int r = 0; r < 8; r++) {
        v[r] = load(f, row);
        row += ws;
        OPAQUE(row);
      }
      transpose8(v);
      UNROLL for (int c = 0; c < 8; c++) {
        _mm256_storeu_ps((float *)to, v[c]);
        to += ds;
        OPAQUE(to);
      }
      from += 8 * size_of(f);
    }
    w += times(ws, 8), dst += 32;
  }
}

#define COLUMNS_ARGS uint8_t *dst, int64_t ds, const uint8_t *w, int64_t ws, int64_t rows, int64_t cols
KERNEL avx2ColumnsBF16(COLUMNS_ARGS) { columns(BF16, dst, ds, w, ws, rows, cols); }
KERNEL avx2ColumnsF16(COLUMNS_ARGS) { columns(F16, dst, ds, w, ws, rows, cols); }
KERNEL avx2ColumnsF32(COLUMNS_ARGS) { columns(F32, dst, ds, w, ws, rows, cols); }

INLINE __m256 power2(__m256i n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)); }

INLINE __m256 exp8(__m256 x) {
  x = _mm256_min_ps(_mm256_set1_ps(89), _mm256_max_ps(_mm256_set1_ps(-105), x)); // a NaN is the second operand
  __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(LOG2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_HI), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_LO), r);
  __m256 q = _mm256_fmadd_ps(r, _mm256_set1_ps(1.f / 5040), _mm256_set1_ps(1.f / 720));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(1.f / 120));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(1.f / 24));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(1.f / 6));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.5f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(1));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(1));
  // Two factors, since 2^n itself may leave the range where the result does not.
  __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1);
  return _mm256_mul_ps(_mm256_mul_ps(q, power2(half)), power2(_mm256_sub_epi32(i, half)));
}

// out[0] is the shift and becomes the sum.
KERNEL avx2ExpSum(uint8_t *x, int64_t n, float *out) {
  const __m256 shift = _mm256_set1_ps(*out);
  __m256 acc = _mm256_setzero_ps();
  ROLLED for (; n >= 8; n -= 8) {
    __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps((float *)x), shift));
    _mm256_storeu_ps((float *)x, e);
    acc = _mm256_add_ps(acc, e);
    x += 32;
  }
  if (n > 0) {
    const __m256i m = low(n);
    __m256 e = exp8(_mm256_sub_ps(_mm256_maskload_ps((float *)x, m), shift));
    _mm256_maskstore_ps((float *)x, m, e);
    acc = _mm256_blendv_ps(acc, _mm256_add_ps(acc, e), _mm256_castsi256_ps(m));
  }
  *out = fold(acc);
}

INLINE __m256 gate8(__m256 g, __m256 c1, __m256 c3, int cubic) {
  __m256 u = _mm256_mul_ps(g, cubic ? _mm256_fmadd_ps(_mm256_mul_ps(g, g), c3, c1) : c1);
  __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), u));
  return _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1), e));
}

INLINE void gate(int cubic, int paired, uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, const float *c) {
  const __m256 c1 = _mm256_set1_ps(c[0]), c3 = _mm256_set1_ps(c[1]);
  ROLLED for (; n >= 8; n -= 8) {
    __m256 a = gate8(_mm256_loadu_ps((const float *)in), c1, c3, cubic);
    if (paired) a = _mm256_mul_ps(a, _mm256_loadu_ps((const float *)up));
    _mm256_storeu_ps((float *)dst, a);
    dst += 32, in += 32, up += 32;
  }
  if (n > 0) {
    const __m256i m = low(n);
    __m256 a = gate8(_mm256_maskload_ps((const float *)in, m), c1, c3, cubic);
    if (paired) a = _mm256_mul_ps(a, _mm256_maskload_ps((const float *)up, m));
    _mm256_maskstore_ps((float *)dst, m, a);
  }
}

// c[0] and c[1] are the factors of g and g cubed.
KERNEL avx2Gate(uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, const float *c) { gate(0, 1, dst, in, up, n, c); }
KERNEL avx2GateAlone(uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, const float *c) { gate(0, 0, dst, in, up, n, c); }
KERNEL avx2GateCubic(uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, const float *c) { gate(1, 1, dst, in, up, n, c); }
KERNEL avx2GateCubicAlone(uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, const float *c) { gate(1, 0, dst, in, up, n, c); }

INLINE __m256 absolute(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.f), x); }

// gelu8 is x Phi(x) = x erfc(-x / sqrt 2) / 2.
INLINE __m256 gelu8(__m256 g) {
  static const float p[] = {ERFC_P};
  // Beyond 15 there is nothing left; a NaN is the second operand.
  const __m256 a = _mm256_min_ps(_mm256_set1_ps(15), absolute(g)), half = _mm256_mul_ps(a, _mm256_set1_ps(0.5f));
  const __m256 t = _mm256_div_ps(_mm256_set1_ps(1), _mm256_fmadd_ps(a, _mm256_set1_ps(ERFC_T * 0.707106781f), _mm256_set1_ps(1)));
  __m256 q = _mm256_set1_ps(p[0]);
  UNROLL for (int i = 1; i < 10; i++) q = _mm256_fmadd_ps(q, t, _mm256_set1_ps(p[i]));
  // The square in two parts, since its rounding would show in the exponential.
  const __m256 high = _mm256_mul_ps(a, half), low = _mm256_fmsub_ps(a, half, high);
  __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), high));
  e = _mm256_fnmadd_ps(e, low, e);
  const __m256 r = _mm256_mul_ps(_mm256_mul_ps(half, e), _mm256_mul_ps(q, t));
  return _mm256_sub_ps(_mm256_max_ps(_mm256_setzero_ps(), g), r);
}

KERNEL avx2GELU(uint8_t *dst, const uint8_t *in, int64_t n) {
  ROLLED for (; n >= 8; n -= 8) {
    _mm256_storeu_ps((float *)dst, gelu8(_mm256_loadu_ps((const float *)in)));
    dst += 32, in += 32;
  }
  if (n > 0) _mm256_maskstore_ps((float *)dst, low(n), gelu8(_mm256_maskload_ps((const float *)in, low(n))));
}

INLINE __m256 tanh8(__m256 x) {
  static const float p[] = {TANH_P};
  const __m256 square = _mm256_mul_ps(x, x), one = _mm256_set1_ps(1);
  __m256 q = _mm256_set1_ps(p[0]);
  UNROLL for (int i = 1; i < 6; i++) q = _mm256_fmadd_ps(q, square, _mm256_set1_ps(p[i]));
  q = _mm256_fmadd_ps(_mm256_mul_ps(q, square), x, x);
  const __m256 e = exp8(_mm256_add_ps(x, x));
  const __m256 far = _mm256_fnmadd_ps(_mm256_div_ps(one, _mm256_add_ps(e, one)), _mm256_set1_ps(2), one);
  return _mm256_blendv_ps(far, q, _mm256_cmp_ps(absolute(x), _mm256_set1_ps(0.4f), _CMP_LT_OQ));
}

// x becomes c[1] tanh(c[0] x).
KERNEL avx2Tanh(uint8_t *x, int64_t n, const float *c) {
  const __m256 inner = _mm256_set1_ps(c[0]), outer = _mm256_set1_ps(c[1]);
  ROLLED for (; n >= 8; n -= 8) {
    _mm256_storeu_ps((float *)x, _mm256_mul_ps(outer, tanh8(_mm256_mul_ps(inner, _mm256_loadu_ps((const float *)x)))));
    x += 32;
  }
  if (n > 0) _mm256_maskstore_ps((float *)x, low(n), _mm256_mul_ps(outer, tanh8(_mm256_mul_ps(inner, _mm256_maskload_ps((const float *)x, low(n))))));
}

// sigmoid4 is 1 / (1 + e^-x) in double, with the operations of AccurateSigmoid. Beyond the limits the
// rounded result is 0 or 1 anyhow.
INLINE __m128 sigmoid4(__m128 x) {
  static const double evens[] = {EXP64_EVEN}, odds[] = {EXP64_ODD};
  __m256d y = _mm256_sub_pd(_mm256_set1_pd(-0.), _mm256_cvtps_pd(x));
  y = _mm256_min_pd(_mm256_set1_pd(EXP64_MOST), _mm256_max_pd(_mm256_set1_pd(EXP64_LEAST), y)); // a NaN is the second operand
  const __m256d half = _mm256_or_pd(_mm256_and_pd(y, _mm256_set1_pd(-0.)), _mm256_set1_pd(0.5));
  const __m256d n = _mm256_round_pd(_mm256_add_pd(_mm256_mul_pd(y, _mm256_set1_pd(EXP64_LOG2E)), half), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __m256d r = _mm256_fnmadd_pd(n, _mm256_set1_pd(EXP64_LOW), _mm256_fnmadd_pd(n, _mm256_set1_pd(EXP64_HIGH), y));
  const __m256d z = _mm256_mul_pd(r, r), one = _mm256_set1_pd(1);
  __m256d even = _mm256_set1_pd(evens[0]), odd = _mm256_set1_pd(odds[0]);
  UNROLL for (int i = 1; i < 7; i++) even = _mm256_fmadd_pd(even, z, _mm256_set1_pd(evens[i])), odd = _mm256_fmadd_pd(odd, z, _mm256_set1_pd(odds[i]));
  // Two factors, since 2^n itself may leave the range where the result does not. Both products are exact.
  const __m128i i = _mm256_cvtpd_epi32(n), part = _mm_srai_epi32(i, 1);
  const __m256i bias = _mm256_set1_epi64x(1023);
  const __m256d a = _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_add_epi64(_mm256_cvtepi32_epi64(part), bias), 52));
  const __m256d b = _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_add_epi64(_mm256_cvtepi32_epi64(_mm_sub_epi32(i, part)), bias), 52));
  const __m256d e = _mm256_mul_pd(_mm256_mul_pd(_mm256_fmadd_pd(odd, r, even), a), b);
  return _mm256_cvtpd_ps(_mm256_div_pd(one, _mm256_add_pd(one, e)));
}

KERNEL avx2Sigmoid(uint8_t *dst, const uint8_t *in, int64_t n) {
  ROLLED for (; n >= 4; n -= 4) {
    _mm_storeu_ps((float *)dst, sigmoid4(_mm_loadu_ps((const float *)in)));
    dst += 16, in += 16;
  }
  const __m128i m = _mm256_castsi256_si128(low(n));
  if (n > 0) _mm_maskstore_ps((float *)dst, m, sigmoid4(_mm_maskload_ps((const float *)in, m)));
}

// out[0] is the scale and becomes the largest product.
KERNEL avx2ScaleMax(uint8_t *x, int64_t n, float *out) {
  const __m256 scale = _mm256_set1_ps(*out);
  __m256 top = _mm256_set1_ps(-__builtin_inff());
  ROLLED for (; n >= 8; n -= 8) {
    __m256 v = _mm256_mul_ps(_mm256_loadu_ps((float *)x), scale);
    _mm256_storeu_ps((float *)x, v);
    top = _mm256_max_ps(v, top); // a NaN leaves top
    x += 32;
  }
  if (n > 0) {
    const __m256i m = low(n);
    __m256 v = _mm256_mul_ps(_mm256_maskload_ps((float *)x, m), scale);
    _mm256_maskstore_ps((float *)x, m, v);
    top = _mm256_blendv_ps(top, _mm256_max_ps(v, top), _mm256_castsi256_ps(m));
  }
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  *out = _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

// out[0] is the shift and becomes the sum.
KERNEL avx2SumSquares(const uint8_t *x, int64_t n, float *out) {
  const __m256 shift = _mm256_set1_ps(*out);
  __m256 acc = _mm256_setzero_ps();
  ROLLED for (; n >= 8; n -= 8) {
    __m256 d = _mm256_sub_ps(_mm256_loadu_ps((const float *)x), shift);
    acc = _mm256_fmadd_ps(d, d, acc);
    x += 32;
  }
  if (n > 0) {
    const __m256i m = low(n);
    __m256 d = _mm256_sub_ps(_mm256_maskload_ps((const float *)x, m), shift);
    acc = _mm256_blendv_ps(acc, _mm256_fmadd_ps(d, d, acc), _mm256_castsi256_ps(m));
  }
  *out = fold(acc);
}

// floats is a number that came as its bits.
INLINE __m256 floats(int64_t bits) { return _mm256_set1_ps(__builtin_bit_cast(float, (int32_t)bits)); }

// AddRounded adds x times a to dst; the product is rounded first.
KERNEL avx2AddRounded(uint8_t *dst, const uint8_t *x, int64_t n, int64_t a) {
  const __m256 by = floats(a);
  ROLLED for (; n >= 8; n -= 8) {
    _mm256_storeu_ps((float *)dst, _mm256_add_ps(_mm256_loadu_ps((const float *)dst), _mm256_mul_ps(by, _mm256_loadu_ps((const float *)x))));
    dst += 32, x += 32;
  }
  if (n > 0) _mm256_maskstore_ps((float *)dst, low(n), _mm256_add_ps(_mm256_maskload_ps((const float *)dst, low(n)), _mm256_mul_ps(by, _mm256_maskload_ps((const float *)x, low(n)))));
}

// norm is one vector of Norm.
INLINE __m256 norm(int weighted, int biased, __m256 x, __m256 w, __m256 b, __m256 mean, __m256 by, __m256 offset) {
  x = _mm256_mul_ps(_mm256_sub_ps(x, mean), by);
  if (weighted) x = _mm256_mul_ps(x, _mm256_add_ps(offset, w));
  if (biased) x = _mm256_add_ps(x, b);
  return x;
}

INLINE void norms(int weighted, int biased, uint8_t *dst, const uint8_t *x, const uint8_t *w, const uint8_t *b, int64_t n, __m256 mean, __m256 by, __m256 offset) {
  const __m256 none = _mm256_setzero_ps();
  ROLLED for (; n >= 8; n -= 8) {
    _mm256_storeu_ps((float *)dst, norm(weighted, biased, _mm256_loadu_ps((const float *)x), weighted ? _mm256_loadu_ps((const float *)w) : none, biased ? _mm256_loadu_ps((const float *)b) : none, mean, by, offset));
    dst += 32, x += 32, w += 32, b += 32;
  }
  if (n > 0) _mm256_maskstore_ps((float *)dst, low(n), norm(weighted, biased, _mm256_maskload_ps((const float *)x, low(n)), weighted ? _mm256_maskload_ps((const float *)w, low(n)) : none, biased ? _mm256_maskload_ps((const float *)b, low(n)) : none, mean, by, offset));
}

// Norm sets dst = (x - mean) by (offset + w) + b. w and b may be nil.
KERNEL avx2Norm(uint8_t *dst, const uint8_t *x, const uint8_t *w, const uint8_t *b, int64_t n, int64_t mean, int64_t by, int64_t offset) {
  const __m256 m = floats(mean), s = floats(by), o = floats(offset);
  if (w && b) norms(1, 1, dst, x, w, b, n, m, s, o);
  else if (w) norms(1, 0, dst, x, w, b, n, m, s, o);
  else if (b) norms(0, 1, dst, x, w, b, n, m, s, o);
  else norms(0, 0, dst, x, w, b, n, m, s, o);
}

// Rotate rotates the pairs of a and b by angles with the given cosines and sines.
KERNEL avx2Rotate(uint8_t *a, uint8_t *b, const uint8_t *cosine, const uint8_t *sine, int64_t n) {
  ROLLED for (; n >= 8; n -= 8) {
    const __m256 u = _mm256_loadu_ps((const float *)a), v = _mm256_loadu_ps((const float *)b), c = _mm256_loadu_ps((const float *)cosine), s = _mm256_loadu_ps((const float *)sine);
    _mm256_storeu_ps((float *)a, _mm256_sub_ps(_mm256_mul_ps(u, c), _mm256_mul_ps(v, s)));
    _mm256_storeu_ps((float *)b, _mm256_add_ps(_mm256_mul_ps(v, c), _mm256_mul_ps(u, s)));
    a += 32, b += 32, cosine += 32, sine += 32;
  }
  if (n > 0) {
    const __m256 u = _mm256_maskload_ps((const float *)a, low(n)), v = _mm256_maskload_ps((const float *)b, low(n)), c = _mm256_maskload_ps((const float *)cosine, low(n)), s = _mm256_maskload_ps((const float *)sine, low(n));
    _mm256_maskstore_ps((float *)a, low(n), _mm256_sub_ps(_mm256_mul_ps(u, c), _mm256_mul_ps(v, s)));
    _mm256_maskstore_ps((float *)b, low(n), _mm256_add_ps(_mm256_mul_ps(v, c), _mm256_mul_ps(u, s)));
  }
}

// NarrowBF16 rounds n numbers, a multiple of 8, to the nearest bfloat16, ties to even; a NaN
// stays one.
KERNEL avx2NarrowBF16(uint8_t *dst, const uint8_t *x, int64_t n) {
  ROLLED for (; n > 0; n -= 8) {
    const __m256i u = _mm256_loadu_si256((const __m256i *)x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff)), _mm256_set1_epi32(0x7f800000));
    r = _mm256_blendv_epi8(r, quiet, nan);
    _mm_storeu_si128((__m128i *)dst, _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
    dst += 16, x += 32;
  }
}

INLINE void widen(int f, uint8_t *dst, const uint8_t *src, int64_t n) {
  ROLLED for (; n >= 8; n -= 8) {
    _mm256_storeu_ps((float *)dst, load(f, src));
    dst += 32;
    src += 8 * size_of(f);
  }
  ROLLED for (; n > 0; n--) {
    *(float *)dst = _mm256_cvtss_f32(load_one(f, src));
    dst += 4;
    src += size_of(f);
  }
}

KERNEL avx2WidenBF16(uint8_t *dst, const uint8_t *src, int64_t n) { widen(BF16, dst, src, n); }
KERNEL avx2WidenF16(uint8_t *dst, const uint8_t *src, int64_t n) { widen(F16, dst, src, n); }
KERNEL avx2WidenF32(uint8_t *dst, const uint8_t *src, int64_t n) { widen(F32, dst, src, n); }
