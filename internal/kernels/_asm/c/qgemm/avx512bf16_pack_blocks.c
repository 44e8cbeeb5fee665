// AVX-512 BF16: packs of bfloat16 from interleaved weights, see pack.go. Needs AVX-512 BF16, BW, DQ
// and VL.
#include "wide.h"

// A pack has 16 rows of 64 bytes for each block.
enum { PACK = 1024 };

// lanes transposes four vectors that have a word of each row: vector i gets the words of row 4q + i
// in quarter q.
INLINE void lanes(__m512i v[4]) {
  __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, c), v[1] = _mm512_unpackhi_epi64(a, c);
  v[2] = _mm512_unpacklo_epi64(b, d), v[3] = _mm512_unpackhi_epi64(b, d);
}

// spread stores 16 bytes of codes of each row, xor flip, at room; those of row r at OF_ROW(r).
INLINE void spread(uint8_t *room, const uint8_t *codes, __m512i flip) {
  __m512i v[4];
  UNROLL for (int i = 0; i < 4; i++) v[i] = _mm512_xor_si512(_mm512_loadu_si512(codes + 64 * i), flip);
  lanes(v);
  UNROLL for (int i = 0; i < 4; i++) _mm512_store_si512(room + 64 * i, v[i]);
}

#define OF_ROW(r) (64 * ((r) % 4) + 16 * ((r) / 4))

INLINE void scales(uint8_t *room, const uint8_t *band) {
  _mm512_store_ps(room, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)band)));
}

INLINE __m512 of_row(const uint8_t *scales, int r) { return _mm512_set1_ps(*(const float *)(scales + 4 * r)); }

INLINE __m512 widened(const uint8_t *codes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)codes)));
}

// fetch prefetches the lines of the same block in the next band, which is packed next.
INLINE void fetch(const uint8_t *next, int size) {
  UNROLL for (int i = 0; i < size; i += 64) _mm_prefetch(next + i, _MM_HINT_T1);
}

// PackBands rounds whole blocks of a band of 16 rows to the values of avx512Unband. The next band is next bytes behind. room is 576
// bytes, aligned to 64.
KERNEL bf16PackBandsQ8(uint8_t *dst, const uint8_t *band, int64_t next, int64_t blocks, uint8_t *room) {
  const __m512i flip = _mm512_set1_epi8((char)0x80);
  uint8_t *d = room + 512;
  ROLLED for (; blocks > 0; blocks--) {
    fetch(band + next, 16 * 34);
    scales(d, band);
    spread(room, band + 32, flip);
    spread(room + 256, band + 32 + 256, flip);
    UNROLL for (int r = 0; r < 16; r++) {
      __m512 a = _mm512_mul_ps(widened(room + OF_ROW(r)), of_row(d, r)), b = _mm512_mul_ps(widened(room + 256 + OF_ROW(r)), of_row(d, r));
      _mm512_storeu_si512(dst + 64 * r, (__m512i)_mm512_cvtne2ps_pbh(b, a));
    }
    dst += PACK, band += 16 * 34;
  }
}

// The values of a row's codes are a table, twice: only the low four bits of an index count.
KERNEL bf16PackBandsQ4(uint8_t *dst, const uint8_t *band, int64_t next, int64_t blocks, uint8_t *room) {
  const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i down = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
  uint8_t *d = room + 512;
  ROLLED for (; blocks > 0; blocks--) {
    fetch(band + next, 16 * 18);
    scales(d, band);
    spread(room, band + 32, _mm512_setzero_si512());
    UNROLL for (int r = 0; r < 16; r++) {
      __m512 t = _mm512_mul_ps(values, of_row(d, r));
      __m512i codes = _mm512_cvtepu8_epi16(_mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)(room + OF_ROW(r)))));
      __m512i v = _mm512_permutexvar_epi16(_mm512_srlv_epi16(codes, down), (__m512i)_mm512_cvtne2ps_pbh(t, t));
      _mm512_storeu_si512(dst + 64 * r, v);
    }
    dst += PACK, band += 16 * 18;
  }
}
