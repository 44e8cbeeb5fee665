// AVX-512 BF16: packs of bfloat16 from quantised weights in rows, see pack.go. Needs AVX-512 BF16,
// BW, DQ and VL.
#include "wide.h"

// A row of a pack has 64 bytes of each block. Blocks are PACK bytes apart.
enum { PACK = 1024, SCALES = 16, NEXT = 16 };

// Rows are stride bytes apart, and the next codes of each are prefetched. Each has SCALES scales,
// one for a block, times 2^8.
KERNEL bf16PackE4M3(uint8_t *dst, const uint8_t *src, int64_t stride, const float *scales, int64_t rows, int64_t blocks) {
  const __m512i all = _mm512_set1_epi16(0x3f80), keep = _mm512_set1_epi16((short)0xbf80), exponent = _mm512_set1_epi16(0x7c00);
  ROLLED for (; rows > 0; rows--) {
    ROLLED for (int64_t b = 0; b < blocks; b++, OPAQUE(b)) {
      _mm_prefetch(src + 32 * (b + NEXT), _MM_HINT_T0);
      // Codes as float16, which are too small by 2^8.
      __m512i h = _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(src + 32 * b))), 7);
      h = _mm512_and_si512(h, keep);
      __mmask32 nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(h, all), all);
      h = _mm512_or_si512(h, _mm512_maskz_mov_epi16(nan, exponent));
      const __m512 d = _mm512_set1_ps(scales[b]);
      __m512 x = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(h)), d), y = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)), d);
      _mm512_storeu_si512(dst + PACK * b, (__m512i)_mm512_cvtne2ps_pbh(y, x));
    }
    dst += 64, src += stride, scales += SCALES;
  }
}

// The scales of rows are ss bytes apart. tables has the values of all codes for each scale. The same place of the next NEXT rows is
// prefetched: they are the next pack.
KERNEL bf16PackMXFP4(uint8_t *dst, const uint8_t *src, int64_t stride, const uint8_t *scales, int64_t ss, int64_t rows, int64_t blocks, const uint8_t *tables) {
  const __m512i four = _mm512_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707, 0x08080808, 0x09090909,
                                         0x0a0a0a0a, 0x0b0b0b0b, 0x0c0c0c0c, 0x0d0d0d0d, 0x0e0e0e0e, 0x0f0f0f0f);
  const __m512i down = _mm512_set1_epi32(4 << 16);
  ROLLED for (; rows > 0; rows--) {
    ROLLED for (int64_t b = 0; b < blocks; b++, OPAQUE(b)) {
      _mm_prefetch(src + 16 * b + NEXT * stride, _MM_HINT_T1);
      // A byte has an even column and an odd one. Only the low four bits of an index count, and the
      // table is there twice.
      __m512i codes = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(src + 16 * b))), four);
      __m512i table = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(tables + 32 * scales[b])));
      _mm512_storeu_si512(dst + PACK * b, _mm512_permutexvar_epi16(_mm512_srlv_epi16(codes, down), table));
    }
    dst += 64, src += stride, scales += ss;
  }
}
