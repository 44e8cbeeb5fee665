// AVX2 kernels of quantised weights: see quant.go for the formats. Needs AVX2 and F16C.
#include "common.h"

// low has the lanes below n.
INLINE __m256i low(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// halves are 8 codes of E4M3 as float16, which are too small by 2^8.
INLINE __m128i halves(__m128i codes) {
  __m128i h = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7), _mm_set1_epi16((short)0xbf80));
  const __m128i all = _mm_set1_epi16(0x3f80);
  __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(h, all), all);
  return _mm_or_si128(h, _mm_and_si128(nan, _mm_set1_epi16(0x7c00)));
}

// scale[0] is the block's scale times 2^8.
KERNEL avx2UnpackE4M3(uint8_t *dst, const uint8_t *src, int64_t n, const float *scale) {
  const __m256 by = _mm256_set1_ps(*scale);
  ROLLED for (; n >= 8; n -= 8) {
    __m128i h = halves(_mm_loadl_epi64((const __m128i *)src));
    _mm256_storeu_ps((float *)dst, _mm256_mul_ps(_mm256_cvtph_ps(h), by));
    dst += 32, src += 8;
  }
  ROLLED for (; n > 0; n--) {
    __m256 v = _mm256_mul_ps(_mm256_cvtph_ps(halves(_mm_cvtsi32_si128(*src))), by);
    *(float *)dst = _mm256_cvtss_f32(v);
    dst += 4, src++;
  }
}

KERNEL avx2UnpackMXFP4(uint8_t *dst, const uint8_t *src, const uint8_t *scales, int64_t blocks) {
  // The high bytes of the values as float16; the low ones are 0.
  const __m128i values = _mm_setr_epi8(0, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46, (char)0x80, (char)0xb8, (char)0xbc, (char)0xbe,
                                       (char)0xc0, (char)0xc2, (char)0xc4, (char)0xc6);
  const __m128i nibble = _mm_set1_epi8(15), none = _mm_setzero_si128();
  ROLLED for (; blocks > 0; blocks--) {
    uint32_t exponent = *scales, bits = exponent << 23;
    __m256 half = _mm256_set1_ps(1);
    if (exponent == 0) { // two factors, as the power itself is no normal number
      half = _mm256_set1_ps(0x1p-64f);
      bits = (127 - 63) << 23;
    }
    if (exponent == 255) bits = 0x7fc00000;
    const __m256 by = _mm256_castsi256_ps(_mm256_set1_epi32((int)bits));
    __m128i codes = _mm_loadu_si128((const __m128i *)src);
    __m128i even = _mm_shuffle_epi8(values, _mm_and_si128(codes, nibble));
    __m128i odd = _mm_shuffle_epi8(values, _mm_and_si128(_mm_srli_epi16(codes, 4), nibble));
    __m128i first = _mm_unpacklo_epi8(even, odd), second = _mm_unpackhi_epi8(even, odd);
#define PUT(i, h) _mm256_storeu_ps((float *)dst + 8 * (i), _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtph_ps(h), half), by))
    PUT(0, _mm_unpacklo_epi8(none, first));
    PUT(1, _mm_unpackhi_epi8(none, first));
    PUT(2, _mm_unpacklo_epi8(none, second));
    PUT(3, _mm_unpackhi_epi8(none, second));
    dst += 128, src += 16, scales++;
  }
}

// scaled is (code - zero) * scale.
INLINE __m256 scaled(__m256i codes, __m256 zero, __m256 scale) {
  __m256 q = _mm256_cvtepi32_ps(_mm256_and_si256(codes, _mm256_set1_epi32(15)));
  return _mm256_mul_ps(_mm256_sub_ps(q, zero), scale);
}

// ahead is where the words are that come next, in bytes.
KERNEL avx2UnpackNibbles(uint8_t *dst, const uint8_t *words, int64_t shift, const uint8_t *scale, const uint8_t *zero, int64_t n, int64_t ahead) {
  const __m128i down = _mm_cvtsi64_si128(shift);
  ROLLED for (; n >= 8; n -= 8) {
    _mm_prefetch(words + ahead, _MM_HINT_T0);
    __m256i codes = _mm256_srl_epi32(_mm256_loadu_si256((const __m256i *)words), down);
    _mm256_storeu_ps((float *)dst, scaled(codes, _mm256_loadu_ps((const float *)zero), _mm256_loadu_ps((const float *)scale)));
    dst += 32, words += 32, scale += 32, zero += 32;
  }
  if (n > 0) {
    const __m256i m = low(n);
    __m256i codes = _mm256_srl_epi32(_mm256_maskload_epi32((const int *)words, m), down);
    _mm256_maskstore_ps((float *)dst, m, scaled(codes, _mm256_maskload_ps((const float *)zero, m), _mm256_maskload_ps((const float *)scale, m)));
  }
}

// n is a multiple of 8. ahead is where the words are that come next, in bytes.
KERNEL avx2UnpackInterleaved(uint8_t *dst, const uint8_t *words, const uint8_t *scale, const uint8_t *zero, int64_t n, int64_t ahead) {
  _mm_prefetch(words + ahead, _MM_HINT_T0);
  const __m256i down = _mm256_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28);
  ROLLED for (; n > 0; n -= 8) {
    __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(*(const int *)words), down);
    _mm256_storeu_ps((float *)dst, scaled(codes, _mm256_loadu_ps((const float *)zero), _mm256_loadu_ps((const float *)scale)));
    dst += 32, words += 4, scale += 32, zero += 32;
  }
}
