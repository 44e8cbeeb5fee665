// Groups of coded bfloat16 weights in vectors of 256 bits; package coded describes them. Included after common.h.
enum { GROUP = 192, CODES = 128, MARK = 0xff, OFFSET = 132, MASKS = 16, TABLE = 32 };

INLINE __m256i load32(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE void store32(uint8_t *p, __m256i v) { _mm256_storeu_si256((__m256i *)p, v); }
INLINE __m256i table_at(const uint8_t *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)); }

// spread is bytes of ones for the bits at p.
INLINE __m256i spread(const uint8_t *p) {
  const __m256i bits = _mm256_set1_epi64x((int64_t)0x8040201008040201);
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(*(const int32_t *)p),
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
}

// lookup_in_halves looks codes up in both halves of a table; bits at p select the second.
INLINE __m256i lookup_in_halves(__m256i first, __m256i second, __m256i codes, const uint8_t *p) {
  return _mm256_blendv_epi8(_mm256_shuffle_epi8(first, codes), _mm256_shuffle_epi8(second, codes), spread(p));
}

// high_bytes are those of the 32 low bytes with number part of a group.
INLINE __m256i high_bytes(const uint8_t *group, int part, __m256i first, const uint8_t *second, const uint8_t *exceptions) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const uint8_t *at = group + CODES + part % 2 * 32;
  __m256i codes = load32(at);
  if (__builtin_expect(group[CODES] != MARK, 1)) return _mm256_shuffle_epi8(first, _mm256_and_si256(part < 2 ? codes : _mm256_srli_epi16(codes, 4), nibble));
  const uint32_t offset = *(const uint32_t *)(group + OFFSET);
  const uint8_t *record = exceptions + (offset & 0x7fffffff);
  if (offset >> 31) return load32(record + 32 * part);
  if (part % 2 == 0) codes = _mm256_blend_epi32(codes, _mm256_set1_epi64x(*(const int64_t *)(record + MASKS)), 3);
  return lookup_in_halves(first, table_at(second), _mm256_and_si256(part < 2 ? codes : _mm256_srli_epi16(codes, 4), nibble), record + 4 * part);
}
