// AVX-512 kernels of quantised weights: see quant.go for the formats. Needs F, BW, DQ and
// VL, and BMI2.
#include "wide.h"

// halves are 16 codes of E4M3 as float16, which are too small by 2^8.
INLINE __m256i halves(__m128i codes) {
  __m256i h = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7), _mm256_set1_epi16((short)0xbf80));
  const __m256i all = _mm256_set1_epi16(0x3f80);
  __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(h, all), all);
  return _mm256_or_si256(h, _mm256_maskz_set1_epi16(nan, 0x7c00));
}

// scale[0] is the block's scale times 2^8.
KERNEL avx512UnpackE4M3(uint8_t *dst, const uint8_t *src, int64_t n, const float *scale) {
  const __m512 by = _mm512_set1_ps(*scale);
  ROLLED for (; n >= 32; n -= 32) {
    __m256i a = halves(_mm_loadu_si128((const __m128i *)src));
    __m256i b = halves(_mm_loadu_si128((const __m128i *)(src + 16)));
    _mm512_storeu_ps(dst, _mm512_mul_ps(_mm512_cvtph_ps(a), by));
    _mm512_storeu_ps(dst + 64, _mm512_mul_ps(_mm512_cvtph_ps(b), by));
    dst += 128, src += 32;
  }
  ROLLED for (; n > 0; n -= 16) {
    const __mmask16 m = n >= 16 ? 0xffff : low(n);
    __m256i a = halves(_mm_maskz_loadu_epi8(m, src));
    _mm512_mask_storeu_ps(dst, m, _mm512_mul_ps(_mm512_cvtph_ps(a), by));
    dst += 64, src += 16;
  }
}

// powered are the values of E2M1 times 2^(exponent - 127).
INLINE __m512 powered(const uint8_t *exponent) {
#define VALUES(s) _mm512_setr_ps(0, 0.5f * s, 1 * s, 1.5f * s, 2 * s, 3 * s, 4 * s, 6 * s, -0.f, -0.5f * s, -1 * s, -1.5f * s, -2 * s, -3 * s, -4 * s, -6 * s)
  __m512i e = _mm512_set1_epi32(*exponent);
  // The first power is no normal number: it is made of two. The last is no number.
  const __mmask16 first = _mm512_testn_epi32_mask(e, e), last = _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255));
  __m512i power = _mm512_mask_mov_epi32(_mm512_slli_epi32(e, 23), first, _mm512_set1_epi32(64 << 23));
  power = _mm512_mask_mov_epi32(power, last, _mm512_set1_epi32(0x7fc00000));
  return _mm512_mul_ps(_mm512_mask_mov_ps(VALUES(1), first, VALUES(0x1p-64f)), _mm512_castsi512_ps(power));
}

KERNEL avx512UnpackMXFP4(uint8_t *dst, const uint8_t *src, const uint8_t *scales, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    const __m512 table = powered(scales);
    // Only the low four bits of an index count.
    __m128i even = _mm_loadu_si128((const __m128i *)src), odd = _mm_srli_epi16(even, 4);
    _mm512_storeu_ps(dst, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(even, odd)), table));
    _mm512_storeu_ps(dst + 64, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_unpackhi_epi8(even, odd)), table));
    dst += 128, src += 16, scales++;
  }
}

// scaled is (code - zero) * scale.
INLINE __m512 scaled(__m512i codes, __m512 zero, __m512 scale) {
  __m512 q = _mm512_cvtepi32_ps(_mm512_and_si512(codes, _mm512_set1_epi32(15)));
  return _mm512_mul_ps(_mm512_sub_ps(q, zero), scale);
}

// ahead is where the words are that come next, in bytes.
KERNEL avx512UnpackNibbles(uint8_t *dst, const uint8_t *words, int64_t shift, const uint8_t *scale, const uint8_t *zero, int64_t n, int64_t ahead) {
  const __m128i down = _mm_cvtsi64_si128(shift);
  ROLLED for (; n > 0; n -= 16) {
    const __mmask16 m = n >= 16 ? 0xffff : low(n);
    _mm_prefetch(words + ahead, _MM_HINT_T0);
    __m512i codes = _mm512_srl_epi32(_mm512_maskz_loadu_epi32(m, words), down);
    _mm512_mask_storeu_ps(dst, m, scaled(codes, _mm512_maskz_loadu_ps(m, zero), _mm512_maskz_loadu_ps(m, scale)));
    dst += 64, words += 64, scale += 64, zero += 64;
  }
}

// n is a multiple of 8. ahead is where the words are that come next, in bytes.
KERNEL avx512UnpackInterleaved(uint8_t *dst, const uint8_t *words, const uint8_t *scale, const uint8_t *zero, int64_t n, int64_t ahead) {
  _mm_prefetch(words + ahead, _MM_HINT_T0);
  const __m512i down = _mm512_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28, 0, 16, 4, 20, 8, 24, 12, 28);
  const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  ROLLED for (; n > 0; n -= 16) {
    const __mmask16 m = n >= 16 ? 0xffff : 0xff;
    __m512i pair = _mm512_castsi128_si512(_mm_maskz_loadu_epi32(n >= 16 ? 3 : 1, words));
    __m512i codes = _mm512_srlv_epi32(_mm512_permutexvar_epi32(spread, pair), down);
    _mm512_mask_storeu_ps(dst, m, scaled(codes, _mm512_maskz_loadu_ps(m, zero), _mm512_maskz_loadu_ps(m, scale)));
    dst += 64, words += 8, scale += 64, zero += 64;
  }
}
