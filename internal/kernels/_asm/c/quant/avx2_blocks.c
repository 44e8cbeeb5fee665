// AVX2 kernels of weights in blocks: see blocks.go for the formats. Needs AVX2, FMA and F16C.
#include "common.h"
#include "folds.h"

INLINE __m256 scale(const uint8_t *block) { return _mm256_cvtph_ps(_mm_set1_epi16(*(const short *)block)); }

// scaled are the values of eight codes.
INLINE __m256 scaled(__m256i codes, __m256 d) { return _mm256_mul_ps(_mm256_cvtepi32_ps(codes), d); }

// value is quarter i of a block of Q8 or Q4.
INLINE __m256 value(int bits, const uint8_t *block, int i, __m256 d) {
  if (bits == 8) return scaled(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(block + 2 + 8 * i))), d);
  __m256i codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(block + 2 + 8 * (i % 2))));
  codes = i < 2 ? _mm256_and_si256(codes, _mm256_set1_epi32(15)) : _mm256_srli_epi32(codes, 4);
  return scaled(_mm256_sub_epi32(codes, _mm256_set1_epi32(8)), d);
}

INLINE void unpack(int bits, uint8_t *dst, const uint8_t *src, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    __m256 d = scale(src);
    UNROLL for (int i = 0; i < 4; i++) _mm256_storeu_ps((float *)dst + 8 * i, value(bits, src, i, d));
    dst += 128, src += bits == 8 ? 34 : 18;
  }
}

KERNEL avx2UnpackQ8(uint8_t *dst, const uint8_t *src, int64_t blocks) { unpack(8, dst, src, blocks); }
KERNEL avx2UnpackQ4(uint8_t *dst, const uint8_t *src, int64_t blocks) { unpack(4, dst, src, blocks); }

// dot computes R rows: y[r] = sum over k of w[r][k] x[k], in the order of Mul. halves has the
// value of every float16: loads are free here, conversions are not.
INLINE void dot(int bits, int R, const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t blocks, const float *halves) {
  __m256 acc[4];
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
  ROLLED for (; blocks > 0; blocks--) {
    const uint8_t *row = w;
    UNROLL for (int r = 0; r < R; r++, row += ws) {
      OPAQUE(row);
      _mm_prefetch(row + 1024, _MM_HINT_T0);
      __m256 d = _mm256_set1_ps(halves[*(const uint16_t *)row]);
      UNROLL for (int i = 0; i < 4; i++) acc[r] = _mm256_fmadd_ps(value(bits, row, i, d), _mm256_loadu_ps((const float *)x + 8 * i), acc[r]);
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
KERNEL avx2DotQ84(DOT_ARGS) { dot(8, 4, w, ws, x, y, blocks, halves); }
KERNEL avx2DotQ81(DOT_ARGS) { dot(8, 1, w, ws, x, y, blocks, halves); }
KERNEL avx2DotQ44(DOT_ARGS) { dot(4, 4, w, ws, x, y, blocks, halves); }
KERNEL avx2DotQ41(DOT_ARGS) { dot(4, 1, w, ws, x, y, blocks, halves); }

// magnitude is the larger of m and the bits of v without sign.
INLINE __m256i magnitude(__m256i m, __m256 v) {
  return _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff)));
}

// largest is the bits of the largest magnitude; those of a NaN are larger than all.
INLINE uint32_t largest(const __m256 *v) {
  __m256i m = magnitude(magnitude(magnitude(magnitude(_mm256_setzero_si256(), v[0]), v[1]), v[2]), v[3]);
  __m128i q = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  q = _mm_max_epi32(q, _mm_unpackhi_epi64(q, q));
  q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 1));
  return (uint32_t)_mm_cvtsi128_si32(q);
}

INLINE uint32_t to_half(float d) { return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(d), 0), 0); }
INLINE float from_half(uint32_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)h))); }
INLINE float inverse(float d) { return d == 0 ? 0 : 1 / d; }

// narrow keeps the low bytes of 16 small integers.
INLINE __m128i narrow(__m256i a, __m256i b) {
  __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
  return _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
}

KERNEL avx2PackQ8(uint8_t *dst, const uint8_t *src, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    __m256 v[4];
    UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps((const float *)src + 8 * i);
    uint32_t top = largest(v), h = 0x7e00;
    if (top < 0x7f800000) h = to_half(__builtin_bit_cast(float, top) / 127);
    __m256 by = _mm256_set1_ps(h < 0x7c00 ? inverse(from_half(h)) : 0);
    *(uint16_t *)dst = (uint16_t)h;
    const __m256i most = _mm256_set1_epi32(127), least = _mm256_set1_epi32(-127);
#define CODES(v) _mm256_max_epi32(_mm256_min_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(v, by)), most), least)
    _mm_storeu_si128((__m128i *)(dst + 2), narrow(CODES(v[0]), CODES(v[1])));
    _mm_storeu_si128((__m128i *)(dst + 18), narrow(CODES(v[2]), CODES(v[3])));
#undef CODES
    dst += 34, src += 128;
  }
}

// eight are values of a block, read where they are used: registers are few.
INLINE __m256 eight(const uint8_t *src, int i) { return _mm256_loadu_ps((const float *)src + 8 * i); }

// q4 are the codes of v for the inverse of a scale, less 8, as floats.
INLINE __m256 q4(__m256 v, float by) {
  __m256 q = _mm256_round_ps(_mm256_mul_ps(v, _mm256_set1_ps(by)), 8);
  return _mm256_max_ps(_mm256_min_ps(q, _mm256_set1_ps(7)), _mm256_set1_ps(-8));
}

// sums are those of x q and of q q.
INLINE void sums(const uint8_t *src, float by, float *xq, float *qq) {
  __m256 x[2], s[2];
  UNROLL for (int i = 0; i < 2; i++) {
    OPAQUE(src);
    __m256 p = q4(eight(src, i), by), q = q4(eight(src, i + 2), by);
    x[i] = _mm256_add_ps(_mm256_mul_ps(eight(src, i), p), _mm256_mul_ps(eight(src, i + 2), q));
    s[i] = _mm256_add_ps(_mm256_mul_ps(p, p), _mm256_mul_ps(q, q));
  }
  *xq = fold(_mm256_add_ps(x[0], x[1]));
  *qq = fold(_mm256_add_ps(s[0], s[1]));
}

INLINE __m256i q4_codes(const uint8_t *src, int i, float by) {
  __m256i low = _mm256_cvtps_epi32(_mm256_add_ps(q4(eight(src, i), by), _mm256_set1_ps(8)));
  __m256i high = _mm256_cvtps_epi32(_mm256_add_ps(q4(eight(src, i + 2), by), _mm256_set1_ps(8)));
  return _mm256_or_si256(low, _mm256_slli_epi32(high, 4));
}

// The choice of the scale is explained at packQ4.
KERNEL avx2PackQ4(uint8_t *dst, const uint8_t *src, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    const __m256 v[4] = {eight(src, 0), eight(src, 1), eight(src, 2), eight(src, 3)};
    uint32_t top = largest(v), h = 0;
    float xq, qq;
    if (top >= 0x7f800000) {
      h = 0x7e00;
    } else if (top > 0) {
      float m = __builtin_bit_cast(float, top | 0x80000000);
      __m256 is = _mm256_setzero_ps();
      UNROLL for (int i = 0; i < 4; i++) is = _mm256_or_ps(is, _mm256_cmp_ps(v[i], _mm256_set1_ps(m), _CMP_EQ_OQ));
      if (!_mm256_movemask_ps(is)) m = -m;
      float best = 0, d = 0;
      ROLLED for (float s = -6.75f; s >= -8.75f; s -= 0.25f) {
        sums(src, s / m, &xq, &qq);
        float score = xq * xq / qq;
        if (score > best) best = score, d = xq / qq;
      }
      h = to_half(d);
      if ((h & 0x7fff) < 0x7c00) {
        sums(src, inverse(from_half(h)), &xq, &qq);
        if (qq > 0) h = to_half(xq / qq);
      }
    }
    float by = (h & 0x7fff) < 0x7c00 ? inverse(from_half(h)) : 0;
    *(uint16_t *)dst = (uint16_t)h;
    // Bytes of both halves, which only the last step may saturate.
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(q4_codes(src, 0, by), q4_codes(src, 1, by)), 0xd8);
    _mm_storeu_si128((__m128i *)(dst + 2), _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
    dst += 18, src += 128;
  }
}
