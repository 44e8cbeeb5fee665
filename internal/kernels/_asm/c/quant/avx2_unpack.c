// AVX2 kernels of quantised weights: see quant.go for the formats. Needs AVX2, FMA and F16C.
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

// mxfp4 are the values of a block as float16 in two halves of high bytes, whose low ones
// are 0, and the power of two that they are multiplied by.
typedef struct {
  __m128i first, second;
  __m256 by;
} block;

INLINE block mxfp4(const uint8_t *codes, const uint8_t *scale) {
  const __m128i values = _mm_setr_epi8(0, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46, (char)0x80, (char)0xb8, (char)0xbc, (char)0xbe,
                                       (char)0xc0, (char)0xc2, (char)0xc4, (char)0xc6);
  // Half of them go with twice the first power, which is no normal number.
  const __m128i halved = _mm_setr_epi8(0, 0x34, 0x38, 0x3a, 0x3c, 0x3e, 0x40, 0x42, (char)0x80, (char)0xb4, (char)0xb8, (char)0xba,
                                       (char)0xbc, (char)0xbe, (char)0xc0, (char)0xc2);
  const __m128i nibble = _mm_set1_epi8(15);
  __m256i e = _mm256_set1_epi32(*scale);
  __m128i first = _mm_cmpeq_epi32(_mm256_castsi256_si128(e), _mm_setzero_si128());
  __m128i table = _mm_blendv_epi8(values, halved, first);
  // The last exponent is no number.
  __m256i last = _mm256_and_si256(_mm256_cmpeq_epi32(e, _mm256_set1_epi32(255)), _mm256_set1_epi32(0x400000));
  __m256i by = _mm256_or_si256(_mm256_slli_epi32(_mm256_max_epi32(e, _mm256_set1_epi32(1)), 23), last);
  __m128i c = _mm_loadu_si128((const __m128i *)codes);
  __m128i even = _mm_shuffle_epi8(table, _mm_and_si128(c, nibble));
  __m128i odd = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(c, 4), nibble));
  return (block){_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd), _mm256_castsi256_ps(by)};
}

// EIGHT are values 8i to 8i+7 of block b.
#define EIGHT(b, i) \
  _mm256_mul_ps(_mm256_cvtph_ps((i) % 2 ? _mm_unpackhi_epi8(_mm_setzero_si128(), (i) < 2 ? b.first : b.second) \
                                        : _mm_unpacklo_epi8(_mm_setzero_si128(), (i) < 2 ? b.first : b.second)), b.by)

KERNEL avx2UnpackMXFP4(uint8_t *dst, const uint8_t *src, const uint8_t *scales, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    const block b = mxfp4(src, scales);
    UNROLL for (int i = 0; i < 4; i++) _mm256_storeu_ps((float *)dst + 8 * i, EIGHT(b, i));
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
