// Elementwise operations, reductions, widening and transposing: AVX-512, 16 lanes.
#include "wide.h"

// transpose_block writes the transpose of a block of 16 rows and columns, or of what there is
// of them.
INLINE void transpose_block(int f, int whole, uint8_t *dst, int64_t ds, const uint8_t *w, int64_t ws, int64_t rows, int64_t cols) {
  const __mmask16 height = whole ? 0xffff : low(rows < 16 ? rows : 16), width = whole ? 0xffff : low(cols < 16 ? cols : 16);
  __m512i v[16];
  UNROLL for (int r = 0; r < 16; r++) {
    v[r] = (__m512i)(whole ? load(f, w) : load_mask(f, w, rows > r ? width : 0));
    w += ws;
    OPAQUE(w);
  }
  transpose16(v);
  UNROLL for (int c = 0; c < 16; c++) {
    if (whole) _mm512_storeu_si512(dst, v[c]);
    else if (cols > c) _mm512_mask_storeu_ps(dst, height, (__m512)v[c]);
    dst += ds;
    OPAQUE(dst);
  }
}

// columns writes the transpose of rows by cols weights as float32.
INLINE void columns(int f, uint8_t *dst, int64_t ds, const uint8_t *w, int64_t ws, int64_t rows, int64_t cols) {
  ROLLED for (; rows > 0; rows -= 16, OPAQUE(rows)) {
    uint8_t *to = dst;
    const uint8_t *from = w;
    int64_t left = cols;
    if (rows >= 16) {
      ROLLED for (; left >= 16; left -= 16, OPAQUE(left)) {
        transpose_block(f, 1, to, ds, from, ws, 16, 16);
        to += times(ds, 16), from += 16 * size_of(f);
      }
    }
    ROLLED for (; left > 0; left -= 16, OPAQUE(left)) {
      transpose_block(f, 0, to, ds, from, ws, rows, left);
      to += times(ds, 16), from += 16 * size_of(f);
    }
    w += times(ws, 16), dst += 64;
  }
}

#define COLUMNS_ARGS uint8_t *dst, int64_t ds, const uint8_t *w, int64_t ws, int64_t rows, int64_t cols
KERNEL avx512ColumnsBF16(COLUMNS_ARGS) { columns(BF16, dst, ds, w, ws, rows, cols); }
KERNEL avx512ColumnsF16(COLUMNS_ARGS) { columns(F16, dst, ds, w, ws, rows, cols); }
KERNEL avx512ColumnsF32(COLUMNS_ARGS) { columns(F32, dst, ds, w, ws, rows, cols); }

INLINE __m512 exp16(__m512 x) {
  x = _mm512_min_ps(_mm512_set1_ps(89), _mm512_max_ps(_mm512_set1_ps(-105), x)); // a NaN is the second operand
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(LOG2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_HI), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_LO), r);
  __m512 q = _mm512_fmadd_ps(r, _mm512_set1_ps(1.f / 5040), _mm512_set1_ps(1.f / 720));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(1.f / 120));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(1.f / 24));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(1.f / 6));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.5f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(1));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(1));
  return _mm512_scalef_ps(q, n);
}

// out[0] is the shift and becomes the sum.
KERNEL avx512ExpSum(uint8_t *x, int64_t n, float *out) {
  const __m512 shift = _mm512_set1_ps(*out);
  __m512 acc = _mm512_setzero_ps();
  ROLLED for (; n >= 16; n -= 16) {
    __m512 e = exp16(_mm512_sub_ps(_mm512_loadu_ps(x), shift));
    _mm512_storeu_ps(x, e);
    acc = _mm512_add_ps(acc, e);
    x += 64;
  }
  if (n > 0) {
    const __mmask16 m = low(n);
    __m512 e = exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(m, x), shift));
    _mm512_mask_storeu_ps(x, m, e);
    acc = _mm512_mask_add_ps(acc, m, acc, e);
  }
  *out = fold(acc);
}

INLINE __m512 gate16(__m512 g, __m512 c1, __m512 c3, int cubic) {
  __m512 u = _mm512_mul_ps(g, cubic ? _mm512_fmadd_ps(_mm512_mul_ps(g, g), c3, c1) : c1);
  __m512 e = exp16(_mm512_sub_ps(_mm512_setzero_ps(), u));
  return _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1), e));
}

INLINE void gate(int cubic, int paired, uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, const float *c) {
  const __m512 c1 = _mm512_set1_ps(c[0]), c3 = _mm512_set1_ps(c[1]);
  ROLLED for (; n >= 16; n -= 16) {
    __m512 a = gate16(_mm512_loadu_ps(in), c1, c3, cubic);
    if (paired) a = _mm512_mul_ps(a, _mm512_loadu_ps(up));
    _mm512_storeu_ps(dst, a);
    dst += 64, in += 64, up += 64;
  }
  if (n > 0) {
    const __mmask16 m = low(n);
    __m512 a = gate16(_mm512_maskz_loadu_ps(m, in), c1, c3, cubic);
    if (paired) a = _mm512_mul_ps(a, _mm512_maskz_loadu_ps(m, up));
    _mm512_mask_storeu_ps(dst, m, a);
  }
}

// c[0] and c[1] are the factors of g and g cubed.
KERNEL avx512Gate(uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, const float *c) { gate(0, 1, dst, in, up, n, c); }
KERNEL avx512GateAlone(uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, const float *c) { gate(0, 0, dst, in, up, n, c); }
KERNEL avx512GateCubic(uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, const float *c) { gate(1, 1, dst, in, up, n, c); }
KERNEL avx512GateCubicAlone(uint8_t *dst, const uint8_t *in, const uint8_t *up, int64_t n, const float *c) { gate(1, 0, dst, in, up, n, c); }

// gelu16 is x Phi(x) = x erfc(-x / sqrt 2) / 2.
INLINE __m512 gelu16(__m512 g) {
  static const float p[] = {ERFC_P};
  // Beyond 15 there is nothing left; a NaN is the second operand.
  const __m512 a = _mm512_min_ps(_mm512_set1_ps(15), _mm512_abs_ps(g)), half = _mm512_mul_ps(a, _mm512_set1_ps(0.5f));
  const __m512 t = _mm512_div_ps(_mm512_set1_ps(1), _mm512_fmadd_ps(a, _mm512_set1_ps(ERFC_T * 0.707106781f), _mm512_set1_ps(1)));
  __m512 q = _mm512_set1_ps(p[0]);
  UNROLL for (int i = 1; i < 10; i++) q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(p[i]));
  // The square in two parts, since its rounding would show in the exponential.
  const __m512 high = _mm512_mul_ps(a, half), low = _mm512_fmsub_ps(a, half, high);
  __m512 e = exp16(_mm512_sub_ps(_mm512_setzero_ps(), high));
  e = _mm512_fnmadd_ps(e, low, e);
  const __m512 r = _mm512_mul_ps(_mm512_mul_ps(half, e), _mm512_mul_ps(q, t));
  return _mm512_sub_ps(_mm512_max_ps(_mm512_setzero_ps(), g), r);
}

KERNEL avx512GELU(uint8_t *dst, const uint8_t *in, int64_t n) {
  ROLLED for (; n >= 16; n -= 16) {
    _mm512_storeu_ps(dst, gelu16(_mm512_loadu_ps(in)));
    dst += 64, in += 64;
  }
  if (n > 0) _mm512_mask_storeu_ps(dst, low(n), gelu16(_mm512_maskz_loadu_ps(low(n), in)));
}

INLINE __m512 tanh16(__m512 x) {
  static const float p[] = {TANH_P};
  const __m512 square = _mm512_mul_ps(x, x), one = _mm512_set1_ps(1);
  __m512 q = _mm512_set1_ps(p[0]);
  UNROLL for (int i = 1; i < 6; i++) q = _mm512_fmadd_ps(q, square, _mm512_set1_ps(p[i]));
  q = _mm512_fmadd_ps(_mm512_mul_ps(q, square), x, x);
  const __m512 e = exp16(_mm512_add_ps(x, x));
  const __m512 far = _mm512_fnmadd_ps(_mm512_div_ps(one, _mm512_add_ps(e, one)), _mm512_set1_ps(2), one);
  return _mm512_mask_mov_ps(far, _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(0.4f), _CMP_LT_OQ), q);
}

// x becomes c[1] tanh(c[0] x).
KERNEL avx512Tanh(uint8_t *x, int64_t n, const float *c) {
  const __m512 inner = _mm512_set1_ps(c[0]), outer = _mm512_set1_ps(c[1]);
  ROLLED for (; n >= 16; n -= 16) {
    _mm512_storeu_ps(x, _mm512_mul_ps(outer, tanh16(_mm512_mul_ps(inner, _mm512_loadu_ps(x)))));
    x += 64;
  }
  if (n > 0) _mm512_mask_storeu_ps(x, low(n), _mm512_mul_ps(outer, tanh16(_mm512_mul_ps(inner, _mm512_maskz_loadu_ps(low(n), x)))));
}

// sigmoid8 is 1 / (1 + e^-x) in double, with the operations of AccurateSigmoid. Beyond the limits the
// rounded result is 0 or 1 anyhow.
INLINE __m256 sigmoid8(__m256 x) {
  static const double evens[] = {EXP64_EVEN}, odds[] = {EXP64_ODD};
  __m512d y = _mm512_sub_pd(_mm512_set1_pd(-0.), _mm512_cvtps_pd(x));
  y = _mm512_min_pd(_mm512_set1_pd(EXP64_MOST), _mm512_max_pd(_mm512_set1_pd(EXP64_LEAST), y)); // a NaN is the second operand
  const __m512d half = _mm512_castsi512_pd(_mm512_ternarylogic_epi64(_mm512_castpd_si512(y), _mm512_set1_epi64((int64_t)1 << 63), _mm512_castpd_si512(_mm512_set1_pd(0.5)), 0xea));
  const __m512d n = _mm512_roundscale_pd(_mm512_add_pd(_mm512_mul_pd(y, _mm512_set1_pd(EXP64_LOG2E)), half), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __m512d r = _mm512_fnmadd_pd(n, _mm512_set1_pd(EXP64_LOW), _mm512_fnmadd_pd(n, _mm512_set1_pd(EXP64_HIGH), y));
  const __m512d z = _mm512_mul_pd(r, r), one = _mm512_set1_pd(1);
  __m512d even = _mm512_set1_pd(evens[0]), odd = _mm512_set1_pd(odds[0]);
  UNROLL for (int i = 1; i < 7; i++) even = _mm512_fmadd_pd(even, z, _mm512_set1_pd(evens[i])), odd = _mm512_fmadd_pd(odd, z, _mm512_set1_pd(odds[i]));
  const __m512d e = _mm512_scalef_pd(_mm512_fmadd_pd(odd, r, even), n);
  return _mm512_cvtpd_ps(_mm512_div_pd(one, _mm512_add_pd(one, e)));
}

INLINE __m512 sigmoid16(__m512 x) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
  const __m512d low = _mm512_castps_pd(_mm512_castps256_ps512(sigmoid8(_mm512_castps512_ps256(x))));
  return _mm512_castpd_ps(_mm512_insertf64x4(low, _mm256_castps_pd(sigmoid8(high)), 1));
}

KERNEL avx512Sigmoid(uint8_t *dst, const uint8_t *in, int64_t n) {
  ROLLED for (; n >= 16; n -= 16) {
    _mm512_storeu_ps(dst, sigmoid16(_mm512_loadu_ps(in)));
    dst += 64, in += 64;
  }
  if (n > 0) _mm512_mask_storeu_ps(dst, low(n), sigmoid16(_mm512_maskz_loadu_ps(low(n), in)));
}

// out[0] is the scale and becomes the largest product.
KERNEL avx512ScaleMax(uint8_t *x, int64_t n, float *out) {
  const __m512 scale = _mm512_set1_ps(*out);
  __m512 top = _mm512_set1_ps(-__builtin_inff());
  ROLLED for (; n >= 16; n -= 16) {
    __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x), scale);
    _mm512_storeu_ps(x, v);
    top = _mm512_max_ps(v, top); // a NaN leaves top
    x += 64;
  }
  if (n > 0) {
    const __mmask16 m = low(n);
    __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x), scale);
    _mm512_mask_storeu_ps(x, m, v);
    top = _mm512_mask_max_ps(top, m, v, top);
  }
  __m256 h = _mm256_max_ps(_mm512_castps512_ps256(top), _mm512_extractf32x8_ps(top, 1));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  *out = _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

// out[0] is the shift and becomes the sum.
KERNEL avx512SumSquares(const uint8_t *x, int64_t n, float *out) {
  const __m512 shift = _mm512_set1_ps(*out);
  __m512 acc = _mm512_setzero_ps();
  ROLLED for (; n >= 16; n -= 16) {
    __m512 d = _mm512_sub_ps(_mm512_loadu_ps(x), shift);
    acc = _mm512_fmadd_ps(d, d, acc);
    x += 64;
  }
  if (n > 0) {
    const __mmask16 m = low(n);
    __m512 d = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, x), shift);
    acc = _mm512_mask3_fmadd_ps(d, d, acc, m);
  }
  *out = fold(acc);
}

// floats is a number that came as its bits.
INLINE __m512 floats(int64_t bits) { return _mm512_set1_ps(__builtin_bit_cast(float, (int32_t)bits)); }

// AddRounded adds x times a to dst; the product is rounded first.
KERNEL avx512AddRounded(uint8_t *dst, const uint8_t *x, int64_t n, int64_t a) {
  const __m512 by = floats(a);
  ROLLED for (; n >= 16; n -= 16) {
    _mm512_storeu_ps(dst, _mm512_add_ps(_mm512_loadu_ps(dst), _mm512_mul_ps(by, _mm512_loadu_ps(x))));
    dst += 64, x += 64;
  }
  if (n > 0) _mm512_mask_storeu_ps(dst, low(n), _mm512_add_ps(_mm512_maskz_loadu_ps(low(n), dst), _mm512_mul_ps(by, _mm512_maskz_loadu_ps(low(n), x))));
}

// norm is one vector of Norm.
INLINE __m512 norm(int weighted, int biased, __m512 x, __m512 w, __m512 b, __m512 mean, __m512 by, __m512 offset) {
  x = _mm512_mul_ps(_mm512_sub_ps(x, mean), by);
  if (weighted) x = _mm512_mul_ps(x, _mm512_add_ps(offset, w));
  if (biased) x = _mm512_add_ps(x, b);
  return x;
}

INLINE void norms(int weighted, int biased, uint8_t *dst, const uint8_t *x, const uint8_t *w, const uint8_t *b, int64_t n, __m512 mean, __m512 by, __m512 offset) {
  const __m512 none = _mm512_setzero_ps();
  ROLLED for (; n >= 16; n -= 16) {
    _mm512_storeu_ps(dst, norm(weighted, biased, _mm512_loadu_ps(x), weighted ? _mm512_loadu_ps(w) : none, biased ? _mm512_loadu_ps(b) : none, mean, by, offset));
    dst += 64, x += 64, w += 64, b += 64;
  }
  if (n > 0) _mm512_mask_storeu_ps(dst, low(n), norm(weighted, biased, _mm512_maskz_loadu_ps(low(n), x), weighted ? _mm512_maskz_loadu_ps(low(n), w) : none, biased ? _mm512_maskz_loadu_ps(low(n), b) : none, mean, by, offset));
}

// Norm sets dst = (x - mean) by (offset + w) + b. w and b may be nil.
KERNEL avx512Norm(uint8_t *dst, const uint8_t *x, const uint8_t *w, const uint8_t *b, int64_t n, int64_t mean, int64_t by, int64_t offset) {
  const __m512 m = floats(mean), s = floats(by), o = floats(offset);
  if (w && b) norms(1, 1, dst, x, w, b, n, m, s, o);
  else if (w) norms(1, 0, dst, x, w, b, n, m, s, o);
  else if (b) norms(0, 1, dst, x, w, b, n, m, s, o);
  else norms(0, 0, dst, x, w, b, n, m, s, o);
}

// Rotate rotates the pairs of a and b by angles with the given cosines and sines.
KERNEL avx512Rotate(uint8_t *a, uint8_t *b, const uint8_t *cosine, const uint8_t *sine, int64_t n) {
  ROLLED for (; n >= 16; n -= 16) {
    const __m512 u = _mm512_loadu_ps(a), v = _mm512_loadu_ps(b), c = _mm512_loadu_ps(cosine), s = _mm512_loadu_ps(sine);
    _mm512_storeu_ps(a, _mm512_sub_ps(_mm512_mul_ps(u, c), _mm512_mul_ps(v, s)));
    _mm512_storeu_ps(b, _mm512_add_ps(_mm512_mul_ps(v, c), _mm512_mul_ps(u, s)));
    a += 64, b += 64, cosine += 64, sine += 64;
  }
  if (n > 0) {
    const __m512 u = _mm512_maskz_loadu_ps(low(n), a), v = _mm512_maskz_loadu_ps(low(n), b), c = _mm512_maskz_loadu_ps(low(n), cosine), s = _mm512_maskz_loadu_ps(low(n), sine);
    _mm512_mask_storeu_ps(a, low(n), _mm512_sub_ps(_mm512_mul_ps(u, c), _mm512_mul_ps(v, s)));
    _mm512_mask_storeu_ps(b, low(n), _mm512_add_ps(_mm512_mul_ps(v, c), _mm512_mul_ps(u, s)));
  }
}

// NarrowBF16 rounds to the nearest bfloat16, ties to even; a NaN stays one.
INLINE __m256i narrow16(__m512i u) {
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff)), _mm512_set1_epi32(0x7f800000));
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(r, nan, quiet));
}

KERNEL avx512NarrowBF16(uint8_t *dst, const uint8_t *x, int64_t n) {
  ROLLED for (; n >= 16; n -= 16) {
    _mm256_storeu_si256((__m256i *)dst, narrow16(_mm512_loadu_si512(x)));
    dst += 32, x += 64;
  }
  if (n > 0) _mm256_mask_storeu_epi16(dst, low(n), narrow16(_mm512_maskz_loadu_epi32(low(n), x)));
}

INLINE void widen(int f, uint8_t *dst, const uint8_t *src, int64_t n) {
  ROLLED for (; n >= 16; n -= 16) {
    _mm512_storeu_ps(dst, load(f, src));
    dst += 64;
    src += 16 * size_of(f);
  }
  if (n > 0) _mm512_mask_storeu_ps(dst, low(n), load_mask(f, src, low(n)));
}

KERNEL avx512WidenBF16(uint8_t *dst, const uint8_t *src, int64_t n) { widen(BF16, dst, src, n); }
KERNEL avx512WidenF16(uint8_t *dst, const uint8_t *src, int64_t n) { widen(F16, dst, src, n); }
KERNEL avx512WidenF32(uint8_t *dst, const uint8_t *src, int64_t n) { widen(F32, dst, src, n); }
