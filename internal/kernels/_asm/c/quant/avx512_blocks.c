// AVX-512 kernels of weights in blocks: see blocks.go for the formats. Needs F, BW, DQ and
// VL, and BMI2.
#include "wide.h"

// scale is that of a block in all lanes.
INLINE __m512 scale(const uint8_t *block) { return _mm512_cvtph_ps(_mm256_set1_epi16(*(const short *)block)); }

// q8 is half h of a block of Q8, whose codes are bytes.
INLINE __m512 q8(const uint8_t *block, int h, __m512 d) {
  __m128i codes = _mm_loadu_si128((const __m128i *)(block + 2 + 16 * h));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), d);
}

// q4_values are those of the codes of a block of Q4.
INLINE __m512 q4_values(__m512 d) {
  return _mm512_mul_ps(_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7), d);
}

// q4_codes has the first half of a block's codes in the low four bits of its lanes, which
// are all that an index counts, and the second above them.
INLINE __m512i q4_codes(const uint8_t *block) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(block + 2))); }

KERNEL avx512UnpackQ8(uint8_t *dst, const uint8_t *src, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    __m512 d = scale(src);
    _mm512_storeu_ps(dst, q8(src, 0, d));
    _mm512_storeu_ps(dst + 64, q8(src, 1, d));
    dst += 128, src += 34;
  }
}

KERNEL avx512UnpackQ4(uint8_t *dst, const uint8_t *src, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    __m512 table = q4_values(scale(src));
    __m512i codes = q4_codes(src);
    _mm512_storeu_ps(dst, _mm512_permutexvar_ps(codes, table));
    _mm512_storeu_ps(dst + 64, _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), table));
    dst += 128, src += 18;
  }
}

// dot computes R rows: y[r] = sum over k of w[r][k] x[k], in the order of Mul. halves has the
// value of every float16: loads are free here, conversions are not.
INLINE void dot(int bits, int R, const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t blocks, const float *halves) {
  __m512 acc[4];
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
  ROLLED for (; blocks > 0; blocks--) {
    const __m512 in0 = _mm512_loadu_ps(x), in1 = _mm512_loadu_ps(x + 64);
    const uint8_t *row = w;
    UNROLL for (int r = 0; r < R; r++, row += ws) {
      OPAQUE(row);
      _mm_prefetch(row + 1024, _MM_HINT_T0);
      __m512 d = _mm512_set1_ps(halves[*(const uint16_t *)row]);
      if (bits == 8) {
        acc[r] = _mm512_fmadd_ps(q8(row, 0, d), in0, acc[r]);
        acc[r] = _mm512_fmadd_ps(q8(row, 1, d), in1, acc[r]);
      } else {
        __m512 table = q4_values(d);
        __m512i codes = q4_codes(row);
        acc[r] = _mm512_fmadd_ps(_mm512_permutexvar_ps(codes, table), in0, acc[r]);
        acc[r] = _mm512_fmadd_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), table), in1, acc[r]);
      }
    }
    w += bits == 8 ? 34 : 18, x += 128;
    OPAQUE(w), OPAQUE(x);
  }
  if (R == 4) {
    _mm_storeu_ps((float *)y, folds(acc[0], acc[1], acc[2], acc[3]));
  } else {
    *(float *)y = fold(acc[0]);
  }
}

#define DOT_ARGS const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t blocks, const float *halves
KERNEL avx512DotQ84(DOT_ARGS) { dot(8, 4, w, ws, x, y, blocks, halves); }
KERNEL avx512DotQ81(DOT_ARGS) { dot(8, 1, w, ws, x, y, blocks, halves); }
KERNEL avx512DotQ44(DOT_ARGS) { dot(4, 4, w, ws, x, y, blocks, halves); }
KERNEL avx512DotQ41(DOT_ARGS) { dot(4, 1, w, ws, x, y, blocks, halves); }

// largest is the bits of the largest magnitude; those of a NaN are larger than all.
INLINE uint32_t largest(__m512 a, __m512 b) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i m = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude), _mm512_and_si512(_mm512_castps_si512(b), magnitude));
  return (uint32_t)_mm512_reduce_max_epi32(m);
}

INLINE uint32_t to_half(float d) { return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(d), 0), 0); }
INLINE float from_half(uint32_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)h))); }
INLINE float inverse(float d) { return d == 0 ? 0 : 1 / d; }

KERNEL avx512PackQ8(uint8_t *dst, const uint8_t *src, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    __m512 a = _mm512_loadu_ps(src), b = _mm512_loadu_ps(src + 64);
    uint32_t top = largest(a, b);
    uint32_t h = 0x7e00;
    if (top < 0x7f800000) h = to_half(__builtin_bit_cast(float, top) / 127);
    __m512 by = _mm512_set1_ps(h < 0x7c00 ? inverse(from_half(h)) : 0);
    *(uint16_t *)dst = (uint16_t)h;
    const __m512i most = _mm512_set1_epi32(127), least = _mm512_set1_epi32(-127);
#define CODES(v) _mm512_cvtepi32_epi8(_mm512_max_epi32(_mm512_min_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(v, by)), most), least))
    _mm_storeu_si128((__m128i *)(dst + 2), CODES(a));
    _mm_storeu_si128((__m128i *)(dst + 18), CODES(b));
#undef CODES
    dst += 34, src += 128;
  }
}

// q4 are the codes of v for the inverse of a scale, less 8, as floats.
INLINE __m512 q4(__m512 v, float by) {
  __m512 q = _mm512_roundscale_ps(_mm512_mul_ps(v, _mm512_set1_ps(by)), 8);
  return _mm512_max_ps(_mm512_min_ps(q, _mm512_set1_ps(7)), _mm512_set1_ps(-8));
}

// sums are those of x q and of q q.
INLINE void sums(__m512 a, __m512 b, float by, float *xq, float *qq) {
  __m512 p = q4(a, by), q = q4(b, by);
  *xq = fold(_mm512_add_ps(_mm512_mul_ps(a, p), _mm512_mul_ps(b, q)));
  *qq = fold(_mm512_add_ps(_mm512_mul_ps(p, p), _mm512_mul_ps(q, q)));
}

// The choice of the scale is explained at packQ4.
KERNEL avx512PackQ4(uint8_t *dst, const uint8_t *src, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    __m512 a = _mm512_loadu_ps(src), b = _mm512_loadu_ps(src + 64);
    uint32_t top = largest(a, b), h = 0;
    float xq, qq;
    if (top >= 0x7f800000) {
      h = 0x7e00;
    } else if (top > 0) {
      float m = __builtin_bit_cast(float, top | 0x80000000);
      __m512 v = _mm512_set1_ps(m);
      if (!(_mm512_cmp_ps_mask(a, v, _CMP_EQ_OQ) | _mm512_cmp_ps_mask(b, v, _CMP_EQ_OQ))) m = -m;
      __m128 best = _mm_setzero_ps(), d = best;
      ROLLED for (float s = -6.75f; s >= -8.75f; s -= 0.25f) { // without a branch, so that the turns overlap
        sums(a, b, s / m, &xq, &qq);
        __m128 score = _mm_set_ss(xq * xq / qq), more = _mm_cmpgt_ss(score, best);
        best = _mm_blendv_ps(best, score, more);
        d = _mm_blendv_ps(d, _mm_set_ss(xq / qq), more);
      }
      h = to_half(_mm_cvtss_f32(d));
      if ((h & 0x7fff) < 0x7c00) {
        sums(a, b, inverse(from_half(h)), &xq, &qq);
        if (qq > 0) h = to_half(xq / qq);
      }
    }
    float by = (h & 0x7fff) < 0x7c00 ? inverse(from_half(h)) : 0;
    *(uint16_t *)dst = (uint16_t)h;
    __m512i p = _mm512_cvtps_epi32(_mm512_add_ps(q4(a, by), _mm512_set1_ps(8)));
    __m512i q = _mm512_cvtps_epi32(_mm512_add_ps(q4(b, by), _mm512_set1_ps(8)));
    _mm_storeu_si128((__m128i *)(dst + 2), _mm512_cvtepi32_epi8(_mm512_or_si512(p, _mm512_slli_epi32(q, 4))));
    dst += 18, src += 128;
  }
}

// Sixteen blocks of Q4 at once, a lane each. x has their values, a vector for each column.

INLINE __m512 q4_lanes(const uint8_t *x, int i, __m512 by) {
  __m512 q = _mm512_roundscale_ps(_mm512_mul_ps(_mm512_load_ps(x + 64 * i), by), 8);
  return _mm512_max_ps(_mm512_min_ps(q, _mm512_set1_ps(7)), _mm512_set1_ps(-8));
}

// leaf are the products of columns i and i + 16; squares of codes are added to qq.
INLINE __m512 leaf(const uint8_t *x, int i, __m512 by, __m512 *qq) {
  OPAQUE(x);
  __m512 p = q4_lanes(x, i, by);
  OPAQUE(x);
  __m512 q = q4_lanes(x, i + 16, by);
  *qq = _mm512_fmadd_ps(p, p, _mm512_fmadd_ps(q, q, *qq)); // small integers: exact
  return _mm512_add_ps(_mm512_mul_ps(_mm512_load_ps(x + 64 * i), p), _mm512_mul_ps(_mm512_load_ps(x + 64 * (i + 16)), q));
}

INLINE __m512 pair(const uint8_t *x, int i, __m512 by, __m512 *qq) {
  __m512 a = leaf(x, i, by, qq);
  return _mm512_add_ps(a, leaf(x, i + 8, by, qq));
}

INLINE __m512 four(const uint8_t *x, int i, __m512 by, __m512 *qq) {
  __m512 a = pair(x, i, by, qq);
  return _mm512_add_ps(a, pair(x, i + 4, by, qq));
}

INLINE __m512 half(const uint8_t *x, int i, __m512 by, __m512 *qq) {
  __m512 a = four(x, i, by, qq);
  return _mm512_add_ps(a, four(x, i + 2, by, qq));
}

// sums_lanes is sums, with the same additions.
INLINE __m512 sums_lanes(const uint8_t *x, __m512 by, __m512 *qq) {
  *qq = _mm512_setzero_ps();
  __m512 a = half(x, 0, by, qq);
  return _mm512_add_ps(a, half(x, 1, by, qq));
}

// to_half_lanes are float16 of d in words of 32 bits.
INLINE __m512i to_half_lanes(__m512 d) { return _mm512_cvtepu16_epi32(_mm512_cvtps_ph(d, 0)); }

INLINE __mmask16 finite_lanes(__m512i h) {
  return _mm512_cmplt_epi32_mask(_mm512_and_si512(h, _mm512_set1_epi32(0x7fff)), _mm512_set1_epi32(0x7c00));
}

// inverse_lanes is 0 where there is no inverse.
INLINE __m512 inverse_lanes(__m512i h) {
  __mmask16 has = _mm512_mask_test_epi32_mask(finite_lanes(h), h, _mm512_set1_epi32(0x7fff));
  return _mm512_maskz_div_ps(has, _mm512_set1_ps(1), _mm512_cvtph_ps(_mm512_cvtepi32_epi16(h)));
}

// byte is byte i of the blocks' codes, of which n bytes come before it in a word.
INLINE __m512i byte(const uint8_t *x, int i, int n, __m512 by) {
  OPAQUE(x);
  const __m512 zero = _mm512_set1_ps(8);
  __m512i p = _mm512_cvtps_epi32(_mm512_add_ps(q4_lanes(x, i, by), zero)), q = _mm512_cvtps_epi32(_mm512_add_ps(q4_lanes(x, i + 16, by), zero));
  return _mm512_slli_epi32(_mm512_or_si512(p, _mm512_slli_epi32(q, 4)), 8 * n);
}

INLINE __m512i word(const uint8_t *x, int i, __m512 by) {
  __m512i w = _mm512_or_si512(byte(x, i, 0, by), byte(x, i + 1, 1, by));
  return _mm512_or_si512(w, _mm512_or_si512(byte(x, i + 2, 2, by), byte(x, i + 3, 3, by)));
}

// all_lanes is made where it is used: the compiler would keep a copy for each use on the stack.
INLINE __mmask16 all_lanes(void) {
  uint32_t m = 0xffff;
  OPAQUE(m);
  return (__mmask16)m;
}

// PackQ4x16 is PackQ4 for groups of 16 blocks. x is room for one group's values, 2 KiB aligned
// to 64 bytes.
KERNEL avx512PackQ4x16(uint8_t *dst, const uint8_t *src, int64_t groups, uint8_t *x) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  ROLLED for (; groups > 0; groups--) {
    __m512i top = _mm512_setzero_si512();
    ROLLED for (int64_t i = 0; i < 32; i++) {
      __m512 v = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), all_lanes(), _mm512_slli_epi32(lane, 7), src + 4 * i, 1);
      top = _mm512_max_epi32(top, _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff)));
      _mm512_store_ps(x + 64 * i, v);
    }
    // The sign of the largest is negative where one of the values is.
    const __m512 most = _mm512_castsi512_ps(top), least = _mm512_castsi512_ps(_mm512_or_si512(top, _mm512_set1_epi32((int)0x80000000)));
    __mmask16 below = 0;
    ROLLED for (int64_t i = 0; i < 32; i++) below |= _mm512_cmp_ps_mask(_mm512_load_ps(x + 64 * i), least, _CMP_EQ_OQ);
    const __m512 m = _mm512_mask_mov_ps(most, below, least);
    __m512 best = _mm512_setzero_ps(), d = best, qq;
    ROLLED for (float s = -6.75f; s >= -8.75f; s -= 0.25f) {
      __m512 xq = sums_lanes(x, _mm512_div_ps(_mm512_set1_ps(s), m), &qq);
      __m512 score = _mm512_div_ps(_mm512_mul_ps(xq, xq), qq);
      __mmask16 more = _mm512_cmp_ps_mask(score, best, _CMP_GT_OQ);
      best = _mm512_mask_mov_ps(best, more, score);
      d = _mm512_mask_div_ps(d, more, xq, qq);
    }
    __m512i h = to_half_lanes(d);
    __m512 xq = sums_lanes(x, inverse_lanes(h), &qq);
    const __mmask16 refined = _mm512_mask_cmp_ps_mask(finite_lanes(h), qq, _mm512_setzero_ps(), _CMP_GT_OQ);
    h = _mm512_mask_mov_epi32(h, refined, to_half_lanes(_mm512_div_ps(xq, qq)));
    h = _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(top, top), h);
    h = _mm512_mask_mov_epi32(h, _mm512_cmpge_epi32_mask(top, _mm512_set1_epi32(0x7f800000)), _mm512_set1_epi32(0x7e00));
    const __m512 by = inverse_lanes(h);
    const __m512i at = _mm512_add_epi32(_mm512_slli_epi32(lane, 4), _mm512_slli_epi32(lane, 1));
    __m512i first = _mm512_or_si512(byte(x, 0, 2, by), byte(x, 1, 3, by));
    _mm512_mask_i32scatter_epi32(dst, all_lanes(), at, _mm512_or_si512(h, first), 1);
    _mm512_mask_i32scatter_epi32(dst + 4, all_lanes(), at, word(x, 2, by), 1);
    _mm512_mask_i32scatter_epi32(dst + 8, all_lanes(), at, word(x, 6, by), 1);
    _mm512_mask_i32scatter_epi32(dst + 12, all_lanes(), at, word(x, 10, by), 1);
    _mm512_mask_i32scatter_epi32(dst + 14, all_lanes(), at, word(x, 12, by), 1);
    dst += 16 * 18, src += 16 * 128;
  }
}
