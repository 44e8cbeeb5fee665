// AVX-512 BF16 and VBMI: packs of bfloat16 from codes of a byte whose last bit is the sign, see packbytes.go.
#include "wide.h"

// A row of a pack has 64 bytes of each block of 32 columns. Blocks are PACK bytes apart.
enum { PACK = 1024, NEXT = 16 };

// scaled returns 32 values times by, rounded.
INLINE __m512i scaled(const float *values, __m512 by) {
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(_mm512_loadu_ps(values + 16), by), _mm512_mul_ps(_mm512_loadu_ps(values), by));
}

// Blocks of rows, which are stride bytes apart, share *scale. values are those of the 128 codes without sign. The same place of the
// next NEXT rows is prefetched: they are the next pack.
KERNEL bf16PackBytes(uint8_t *dst, const uint8_t *src, int64_t stride, const float *values, const float *scale, int64_t rows, int64_t blocks) {
  const __m512i index = _mm512_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707, 0x08080808, 0x09090909, 0x0a0a0a0a,
                                          0x0b0b0b0b, 0x0c0c0c0c, 0x0d0d0d0d, 0x0e0e0e0e, 0x0f0f0f0f);
  const __m512i within = _mm512_set1_epi32(0x06040200), even = _mm512_add_epi8(_mm512_slli_epi32(index, 3), within);
  __m512i low[2], high[2];
  UNROLL for (int i = 0; i < 2; i++) { // the low bytes of 64 words, and the high ones
    const __m512i a = scaled(values + 64 * i, _mm512_set1_ps(*scale)), b = scaled(values + 64 * i + 32, _mm512_set1_ps(*scale));
    low[i] = _mm512_permutex2var_epi8(a, even, b);
    high[i] = _mm512_permutex2var_epi8(a, _mm512_or_si512(even, _mm512_set1_epi8(1)), b);
  }
  // Bytes are woven within quarters: each takes 8 columns of the first block and as many of the second.
  const __m512i quarters = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), sign = _mm512_set1_epi8((char)0x80);
  ROLLED for (; rows > 0; rows--) {
    ROLLED for (int64_t b = 0; b < blocks; b += 2, OPAQUE(b)) {
      _mm_prefetch(src + 32 * b + NEXT * stride, _MM_HINT_T1);
      const __mmask64 m = b + 1 < blocks ? ~0ull : 0xffffffffull;
      const __m512i codes = _mm512_permutexvar_epi64(quarters, _mm512_maskz_loadu_epi8(m, src + 32 * b));
      const __m512i l = _mm512_permutex2var_epi8(low[0], codes, low[1]);
      const __m512i h = _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high[0], codes, high[1]), codes, sign, 0x78); // a ^ (b & c)
      _mm512_storeu_si512(dst + PACK * b, _mm512_unpacklo_epi8(l, h));
      if (b + 1 < blocks) _mm512_storeu_si512(dst + PACK * (b + 1), _mm512_unpackhi_epi8(l, h));
    }
    dst += 64, src += stride;
  }
}
