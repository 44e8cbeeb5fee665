// AVX-512 BF16: the parts of attention with rounded operands that are not products of tiles. A lane
// is a query.
#include "wide.h"

#define EXP2_P 0.00961812911f, 0.0555041087f, 0.240226507f, 0.693147181f

// exp2 is 2^x with a relative error of 4e-5, far below that of rounding to bfloat16, and exact for
// 0. A NaN is the second operand of the first instruction.
INLINE __m512 exp2(__m512 x) {
  static const float p[] = {EXP2_P};
  x = _mm512_max_ps(_mm512_set1_ps(-200), x);
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = _mm512_sub_ps(x, n);
  __m512 q = _mm512_set1_ps(p[0]);
  UNROLL for (int i = 1; i < 4; i++) q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(p[i]));
  return _mm512_scalef_ps(_mm512_fmadd_ps(q, r, _mm512_set1_ps(1)), n);
}

// visible has the lanes that see the key at a position.
INLINE __mmask16 visible(int whole, __m512i position, __m512i first, __m512i count) {
  return whole ? 0xffff : _mm512_cmplt_epu32_mask(_mm512_sub_epi32(position, first), count);
}

INLINE void softmax(int whole, const uint8_t *s, int64_t ss, uint8_t *p, uint8_t *state, int64_t keys, int64_t base, __m512 by) {
  const __m512 least = _mm512_set1_ps(-__builtin_inff()), old = _mm512_loadu_ps(state);
  const __m512i first = _mm512_loadu_si512(state + 192), count = _mm512_loadu_si512(state + 256), one = _mm512_set1_epi32(1);
  const __m512i begin = _mm512_set1_epi32((int32_t)base);
  __m512i at = begin;
  const uint8_t *row = s;
  __m512 top[2] = {least, least};
  ROLLED for (int64_t left = keys; left > 0; left -= 2, OPAQUE(left)) {
    UNROLL for (int i = 0; i < 2; i++) {
      top[i] = _mm512_mask_max_ps(top[i], visible(whole, at, first, count), _mm512_mul_ps(_mm512_loadu_ps(row), by), top[i]);
      at = _mm512_add_epi32(at, one);
      row += ss;
    }
  }
  const __m512 now = _mm512_max_ps(_mm512_max_ps(top[0], top[1]), old);
  // Where nothing has been seen yet the shift is 0, so that nothing comes of it.
  const __m512 shift = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(now, least, _CMP_NEQ_UQ), now);
  const __m512 factor = exp2(_mm512_sub_ps(old, shift));
  // Word 2i of a pair of vectors is lane i of the first, word 2i+1 that of the second.
  const __m512i pairs = _mm512_or_si512(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                        _mm512_slli_epi32(_mm512_set_epi32(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16), 16));
  __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  at = begin;
  ROLLED for (int64_t left = keys; left > 0; left -= 2, OPAQUE(left)) {
    __m512 e[2];
    UNROLL for (int i = 0; i < 2; i++) {
      e[i] = _mm512_maskz_mov_ps(visible(whole, at, first, count), exp2(_mm512_fmsub_ps(_mm512_loadu_ps(s), by, shift)));
      at = _mm512_add_epi32(at, one);
      s += ss;
    }
    const __m512i both = _mm512_permutexvar_epi16(pairs, (__m512i)_mm512_cvtne2ps_pbh(e[1], e[0]));
    _mm512_storeu_si512(p, both);
    sum[0] = _mm512_add_ps(sum[0], (__m512)_mm512_slli_epi32(both, 16));
    sum[1] = _mm512_add_ps(sum[1], (__m512)_mm512_and_si512(both, _mm512_set1_epi32((int32_t)0xffff0000)));
    p += 64;
  }
  _mm512_storeu_ps(state, now);
  _mm512_storeu_ps(state + 64, _mm512_fmadd_ps(_mm512_loadu_ps(state + 64), factor, _mm512_add_ps(sum[0], sum[1])));
  _mm512_storeu_ps(state + 128, factor);
}

// Softmax turns the scores of 16 queries for some keys, of an even number, into weights: a row
// of s is a key. state has the largest score so far, the sum, what becomes the factor for what
// was summed before, and the first key that a query sees and how many. With whole all are seen.
KERNEL bf16Softmax(const uint8_t *s, int64_t ss, uint8_t *p, uint8_t *state, int64_t keys, int64_t base, int64_t by, int64_t whole) {
  const __m512 factor = _mm512_set1_ps(__builtin_bit_cast(float, (int32_t)by));
  if (whole) softmax(1, s, ss, p, state, keys, base, factor);
  else softmax(0, s, ss, p, state, keys, base, factor);
}

// ScaleLanes multiplies rows of 16 by 16 factors. Where all are 1 there is nothing to do.
KERNEL bf16ScaleLanes(uint8_t *x, int64_t xs, int64_t rows, const uint8_t *by) {
  const __m512 factor = _mm512_loadu_ps(by);
  if (_mm512_cmp_ps_mask(factor, _mm512_set1_ps(1), _CMP_NEQ_UQ) == 0) return;
  ROLLED for (; rows > 0; rows--) {
    _mm512_storeu_ps(x, _mm512_mul_ps(_mm512_loadu_ps(x), factor));
    x += xs;
  }
}

// transpose_keys transposes 16 rows of 16 words, of which m are there.
INLINE void transpose_keys(__m512i v[16], const uint8_t *w, int64_t ws, __mmask32 m) {
  UNROLL for (int i = 0; i < 16; i++) {
    v[i] = _mm512_maskz_loadu_epi16(m, w);
    w += ws;
    OPAQUE(w);
  }
  transpose16(v);
}

// PackTransposed packs 16 rows of cols numbers and 16 that lie elsewhere as packs of 16 columns by
// 32 rows, which begin apart bytes from each other; zeros fill up to two packs. *bad becomes
// nonzero where one is not finite.
KERNEL bf16PackTransposed(uint8_t *dst, int64_t apart, const uint8_t *w, int64_t ws, const uint8_t *next, int64_t ns, int64_t cols, uint32_t *bad) {
  __m512i worst = _mm512_setzero_si512();
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  ROLLED for (; cols > 0; cols -= 32, OPAQUE(cols)) {
    const __mmask32 m = _bzhi_u32(0xffffffff, (uint32_t)(cols < 32 ? cols : 32));
    __m512i v[16];
    transpose_keys(v, w, ws, m);
    uint8_t *out = dst;
    UNROLL for (int i = 0; i < 16; i++) {
      if (i == 8) out += apart - 16 * 64;
      OPAQUE(out);
      _mm512_storeu_si512(out + 128 * i, v[i]);
    }
    transpose_keys(v, next, ns, m);
    // Each word has two columns: the low halves are one, the high halves the next.
    const __m512i low = _mm512_set_epi32(0x003e003c, 0x003a0038, 0x00360034, 0x00320030, 0x002e002c, 0x002a0028, 0x00260024, 0x00220020,
                           0x001e001c, 0x001a0018, 0x00160014, 0x00120010, 0x000e000c, 0x000a0008, 0x00060004, 0x00020000);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(1));
    out = dst;
    UNROLL for (int i = 0; i < 16; i++) {
      if (i == 8) out += apart - 16 * 64;
      OPAQUE(out);
      const __m512i first = _mm512_loadu_si512(out + 128 * i);
      const __m512i a = _mm512_permutex2var_epi16(first, low, v[i]), b = _mm512_permutex2var_epi16(first, high, v[i]);
      worst = _mm512_max_epu16(worst, _mm512_max_epu16(_mm512_and_si512(a, exponent), _mm512_and_si512(b, exponent)));
      _mm512_storeu_si512(out + 128 * i, a);
      _mm512_storeu_si512(out + 128 * i + 64, b);
    }
    dst += times(apart, 2), w += 64, next += 64;
  }
  *bad |= _mm512_cmpeq_epi16_mask(worst, exponent);
}

// NarrowRowsQ8 widens rows of blocks of q8_0, each element one product rounded to bfloat16.
KERNEL bf16NarrowRowsQ8(uint8_t *dst, int64_t ds, const uint8_t *src, int64_t ss, int64_t rows, int64_t blocks) {
  ROLLED for (; rows > 0; rows--) {
    uint8_t *to = dst;
    const uint8_t *from = src;
    ROLLED for (int64_t left = blocks; left > 0; left--, OPAQUE(left)) {
      const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(*(const short *)from));
      const __m512 a = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(from + 2)))), d);
      const __m512 b = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(from + 18)))), d);
      _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(b, a));
      to += 64, from += 34;
    }
    dst += ds, src += ss;
  }
}
