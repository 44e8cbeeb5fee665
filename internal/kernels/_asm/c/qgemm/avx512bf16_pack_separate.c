// AVX-512 BF16: packs of bfloat16 from codes in rows whose scales are apart, see packseparate.go. Needs AVX-512 BF16, BW, DQ and VL.
#include "wide.h"

// A row of a pack has 64 bytes of each block of 32 columns. Blocks are PACK bytes apart. The same place of the next NEXT rows is
// prefetched: they are the next pack.
enum { PACK = 1024, NEXT = 16 };

// signed16 widens 16 bytes, which are signed after the xor with flip.
INLINE __m512 signed16(const uint8_t *p, __m128i flip) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_xor_si128(_mm_loadu_si128((const __m128i *)p), flip)));
}

// Rows are stride bytes apart. Blocks have scales and zeros that are each floats apart, and those of rows are apart floats apart.
// Codes are xored with flip.
// Values are rounded after the product with the scale and after that with *factor.
KERNEL bf16PackInt8(uint8_t *dst, const uint8_t *src, int64_t stride, const float *scales, const float *zeros, int64_t apart, int64_t each, const float *factor, int64_t flip, int64_t rows, int64_t blocks) {
  const __m512 by = _mm512_set1_ps(*factor);
  const __m128i f = _mm_set1_epi8((char)flip);
  ROLLED for (; rows > 0; rows--) {
    ROLLED for (int64_t b = 0; b < blocks; b++, OPAQUE(b)) {
      _mm_prefetch(src + 32 * b + NEXT * stride, _MM_HINT_T1);
      const __m512 d = _mm512_set1_ps(scales[b * each]), z = _mm512_set1_ps(zeros[b * each]);
      const __m512 x = _mm512_mul_ps(_mm512_sub_ps(signed16(src + 32 * b, f), z), d), y = _mm512_mul_ps(_mm512_sub_ps(signed16(src + 32 * b + 16, f), z), d);
      _mm512_storeu_si512(dst + PACK * b, (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(y, by), _mm512_mul_ps(x, by)));
    }
    dst += 64, src += stride, scales += apart, zeros += apart;
  }
}

// widened returns 16 scales of E4M3.
INLINE __m512 widened(__m128i codes) {
  const __m256i all = _mm256_set1_epi16(0x3f80);
  // Codes as float16, which are too small by 2^8.
  __m256i h = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7), _mm256_set1_epi16((short)0xbf80));
  const __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(h, all), all);
  h = _mm256_or_si256(h, _mm256_maskz_mov_epi16(nan, _mm256_set1_epi16(0x7c00)));
  return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(256));
}

// Rows are stride bytes apart and their scales, one for 16 columns, ss bytes. Scales are multiplied by global[0] and divided by
// global[1], of which one is 1. There are up to 8 blocks. room is 64 bytes.
KERNEL bf16PackNVFP4(uint8_t *dst, const uint8_t *src, int64_t stride, const uint8_t *scales, int64_t ss, const float *global, int64_t rows, int64_t blocks, uint8_t *room) {
  const __m512 values = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
  const __m512i four = _mm512_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707, 0x08080808, 0x09090909,
                                         0x0a0a0a0a, 0x0b0b0b0b, 0x0c0c0c0c, 0x0d0d0d0d, 0x0e0e0e0e, 0x0f0f0f0f);
  const __m512i down = _mm512_set1_epi32(4 << 16), nibble = _mm512_set1_epi16(15);
  const __m512i second = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1); // the other half has the second table
  const __mmask16 all = low(2 * blocks);
  ROLLED for (; rows > 0; rows--) {
    const __m512 s = _mm512_mul_ps(widened(_mm_maskz_loadu_epi8(all, scales)), _mm512_set1_ps(global[0]));
    _mm512_storeu_ps(room, _mm512_div_ps(s, _mm512_set1_ps(global[1])));
    ROLLED for (int64_t b = 0; b < blocks; b++, OPAQUE(b)) {
      _mm_prefetch(src + 16 * b + NEXT * stride, _MM_HINT_T1);
      const float *by = (const float *)room + 2 * b;
      // A byte has an even column and an odd one.
      __m512i codes = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(src + 16 * b))), four);
      codes = _mm512_ternarylogic_epi32(_mm512_srlv_epi16(codes, down), nibble, second, 0xea); // a & b | c
      const __m512i table = (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(values, _mm512_set1_ps(by[1])), _mm512_mul_ps(values, _mm512_set1_ps(by[0])));
      _mm512_storeu_si512(dst + PACK * b, _mm512_permutexvar_epi16(codes, table));
    }
    dst += 64, src += stride, scales += ss;
  }
}
