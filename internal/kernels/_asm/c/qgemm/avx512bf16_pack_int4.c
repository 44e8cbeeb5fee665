// AVX-512 BF16: packs of bfloat16 from 4-bit weights that are stored transposed: a row of the pack
// is a column of them. See pack.go. Needs AVX-512 BF16, BW, DQ and VL.
#include "wide.h"

// A pack has 16 rows of 64 bytes for each block.
enum { PACK = 1024 };

// tables stores for each column the values of its 16 codes, twice: only the low four bits of an index
// count.
INLINE void tables(uint8_t *room, const float *scale, const float *zero) {
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  ROLLED for (int64_t i = 0; i < 16; i++, OPAQUE(i)) {
    __m512 v = _mm512_mul_ps(_mm512_sub_ps(codes, _mm512_set1_ps(zero[i])), _mm512_set1_ps(scale[i]));
    _mm512_store_si512(room + 64 * i, (__m512i)_mm512_cvtne2ps_pbh(v, v));
  }
}

INLINE __m512i values(__m512i codes, const uint8_t *room, int column) {
  return _mm512_permutexvar_epi16(codes, _mm512_load_si512(room + 64 * column));
}

// A word has 8 rows. Words are stride bytes apart, and 16 columns are consecutive. scale and zero
// have the values of the columns for all blocks. room is 1280 bytes, aligned to 64.
KERNEL bf16PackNibbleRows(uint8_t *dst, const uint8_t *words, int64_t stride, const float *scale, const float *zero, int64_t blocks, uint8_t *room) {
  const __m512i four = _mm512_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707, 0x08080808, 0x09090909,
                                         0x0a0a0a0a, 0x0b0b0b0b, 0x0c0c0c0c, 0x0d0d0d0d, 0x0e0e0e0e, 0x0f0f0f0f);
  const __m512i down = _mm512_set1_epi32(4 << 16);
  uint8_t *spread = room + 1024;
  tables(room, scale, zero);
  ROLLED for (; blocks > 0; blocks--) {
    __m512i v[4];
    UNROLL for (int i = 0; i < 4; i++) {
      OPAQUE(words);
      _mm_prefetch(words + 64, _MM_HINT_T0); // of the next pack
      v[i] = _mm512_loadu_si512(words);
      words += stride;
    }
    __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    _mm512_store_si512(spread, _mm512_unpacklo_epi64(a, c));
    _mm512_store_si512(spread + 64, _mm512_unpackhi_epi64(a, c));
    _mm512_store_si512(spread + 128, _mm512_unpacklo_epi64(b, d));
    _mm512_store_si512(spread + 192, _mm512_unpackhi_epi64(b, d));
    UNROLL for (int r = 0; r < 16; r++) {
      __m512i codes = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(spread + 64 * (r % 4) + 16 * (r / 4))));
      codes = _mm512_srlv_epi16(_mm512_shuffle_epi8(codes, four), down);
      _mm512_storeu_si512(dst + 64 * r, values(codes, room, r));
    }
    dst += PACK;
  }
}

// A word has 8 columns: bits 4i have column 0, 2, 4, 6, 1, 3, 5, 7. Rows are stride bytes apart.
KERNEL bf16PackNibbleColumns(uint8_t *dst, const uint8_t *words, int64_t stride, const float *scale, const float *zero, int64_t blocks, uint8_t *room) {
  const __m512i lane = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i even = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)stride)), odd = _mm512_add_epi32(even, _mm512_set1_epi32((int)stride));
  // Packs share cache lines: each prefetches its part of the next ones.
  const uint8_t *next = words + 64 + ((int64_t)words >> 3 & 7) * 4 * stride;
  tables(room, scale, zero);
  ROLLED for (; blocks > 0; blocks--) {
    UNROLL for (int i = 0; i < 4; i++) {
      _mm_prefetch(next, _MM_HINT_T0);
      next += stride;
    }
    next += times(stride, 28);
    UNROLL for (int h = 0; h < 2; h++) {
      const __m512i a = _mm512_i32gather_epi32(even, words + 4 * h, 1), b = _mm512_i32gather_epi32(odd, words + 4 * h, 1);
      // The low words of all rows, and the high ones.
      const __m512i v[2] = {_mm512_mask_mov_epi16(a, 0xaaaaaaaa, _mm512_slli_epi32(b, 16)), _mm512_mask_mov_epi16(_mm512_srli_epi32(a, 16), 0xaaaaaaaa, b)};
      UNROLL for (int i = 0; i < 8; i++) {
        const int column = 8 * h + i % 4 * 2 + i / 4;
        _mm512_storeu_si512(dst + 64 * column, values(_mm512_srli_epi16(v[i / 4], i % 4 * 4), room, column));
      }
    }
    dst += PACK, words += times(stride, 32);
  }
}
