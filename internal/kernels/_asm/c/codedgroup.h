// Groups of coded bfloat16 weights in vectors of 512 bits; package coded describes them. Included after wide.h.
#include "codedrecord.h"

// A group is 128 words in order.
struct group { __m512i v[4]; };

INLINE __m512i table_at(const uint8_t *p) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p)); }

// words restores 64 words of low and high bytes.
INLINE void words(__m512i *to, __m512i low, __m512i high) {
  to[0] = _mm512_unpacklo_epi8(low, high);
  to[1] = _mm512_unpackhi_epi8(low, high);
}

// raw_places are the offsets of the 16 words of a record from its group, which are three to a unit. The numbers are read
// anew each time, or they would hold vector registers.
INLINE __m512i raw_places(__m512i codes) {
  static const volatile __m128i numbers[2] = {{0x0303020202010101, 0x0605050504040403}, {0x0800100800100800, 0x0010080010080010}};
  const __m512i units = _mm512_permutexvar_epi32(_mm512_cvtepi8_epi32(numbers[0]), codes);
  return _mm512_add_epi32(units, _mm512_cvtepi8_epi32(numbers[1]));
}

// decode_group restores the group at p. first is the first half of the row's table, second the address of the other.
INLINE struct group decode_group(const uint8_t *p, __m512i first, const uint8_t *second) {
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512i codes = _mm512_loadu_si512(p + CODES), high0, high1;
  if (!is_exception(p)) {
    high0 = _mm512_shuffle_epi8(first, _mm512_and_si512(codes, nibble));
    high1 = _mm512_shuffle_epi8(first, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
  } else {
    if (is_raw(p)) {
      const __m512i places = raw_places(codes);
      high0 = _mm512_i32gather_epi64(_mm512_castsi512_si256(places), p, 1);
      high1 = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(places, 1), p, 1);
    } else {
      const uint8_t *unit = unit_of(p);
      codes = _mm512_mask_set1_epi64(codes, 1, word_at(unit + 16));
      const __m512i t = table_at(second), c0 = _mm512_and_si512(codes, nibble), c1 = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
      high0 = _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(first, c0), (__mmask64)word_at(unit), t, c0);
      high1 = _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(first, c1), (__mmask64)word_at(unit + 8), t, c1);
    }
  }
  struct group g;
  words(g.v, _mm512_loadu_si512(p), high0);
  words(g.v + 2, _mm512_loadu_si512(p + 64), high1);
  return g;
}
