// Groups of coded bfloat16 weights in vectors of 256 bits; package coded describes them. Included after common.h.
#include "codedrecord.h"

INLINE __m256i load32(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE void store32(uint8_t *p, __m256i v) { _mm256_storeu_si256((__m256i *)p, v); }
INLINE __m256i table_at(const uint8_t *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)); }

// spread is bytes of ones for 32 bits.
INLINE __m256i spread(int32_t mask) {
  const __m256i bits = _mm256_set1_epi64x((int64_t)0x8040201008040201);
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(mask),
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
}

// lookup_in_halves looks codes up in both halves of a table; the bits of mask select the second.
INLINE __m256i lookup_in_halves(__m256i first, __m256i second, __m256i codes, int32_t mask) {
  return _mm256_blendv_epi8(_mm256_shuffle_epi8(first, codes), _mm256_shuffle_epi8(second, codes), spread(mask));
}

// raw_bytes are 32 of the high bytes of a group, words 4 part to 4 part + 3 of its record.
INLINE __m256i raw_bytes(const uint8_t *group, int part) {
  const int k = 4 * part;
  const __m256i units = _mm256_setr_epi32(k / 3, (k + 1) / 3, (k + 2) / 3, (k + 3) / 3, 0, 0, 0, 0);
  const __m128i offsets = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(load32(group + OFFSETS), units));
  const __m128i places = _mm_setr_epi32(k % 3 * 8, (k + 1) % 3 * 8, (k + 2) % 3 * 8, (k + 3) % 3 * 8);
  return _mm256_i32gather_epi64((const long long *)group, _mm_add_epi32(offsets, places), 1);
}

// high_bytes are those of the 32 low bytes with number part of a group.
INLINE __m256i high_bytes(const uint8_t *group, int part, __m256i first, const uint8_t *second) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const uint8_t *at = group + CODES + part % 2 * 32;
  __m256i codes = load32(at);
  if (!is_exception(group)) return _mm256_shuffle_epi8(first, _mm256_and_si256(part < 2 ? codes : _mm256_srli_epi16(codes, 4), nibble));
  if (is_raw(group)) return raw_bytes(group, part);
  const uint8_t *unit = unit_of(group);
  if (part % 2 == 0) codes = _mm256_blend_epi32(codes, _mm256_set1_epi64x(word_at(unit + 16)), 3);
  const int32_t mask = *(const int32_t *)(unit + 4 * part);
  return lookup_in_halves(first, table_at(second), _mm256_and_si256(part < 2 ? codes : _mm256_srli_epi16(codes, 4), nibble), mask);
}
