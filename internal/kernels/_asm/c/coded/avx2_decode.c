// Coded bfloat16 weights to words, in AVX2; package coded describes them.
#include "common.h"

enum { GROUP = 192, CODES = 128, MARK = 0xff, OFFSET = 132, MASKS = 16, TABLE = 32 };

INLINE __m256i load32(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE void store32(uint8_t *p, __m256i v) { _mm256_storeu_si256((__m256i *)p, v); }
INLINE __m256i table_at(const uint8_t *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)); }

// words restores 32 words of low bytes at p: 16 in order at out, and 16 that are 32 columns further on.
INLINE void words(uint8_t *out, const uint8_t *p, __m256i high) {
  const __m256i low = load32(p);
  store32(out, _mm256_unpacklo_epi8(low, high));
  store32(out + 64, _mm256_unpackhi_epi8(low, high));
}

// spread is bytes of ones for the bits at p.
INLINE __m256i spread(const uint8_t *p) {
  const __m256i bits = _mm256_set1_epi64x((int64_t)0x8040201008040201);
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(*(const int32_t *)p),
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
}

// by_two looks codes up in both halves of a table; bits at p select the second.
INLINE __m256i by_two(__m256i first, __m256i second, __m256i codes, const uint8_t *p) {
  return _mm256_blendv_epi8(_mm256_shuffle_epi8(first, codes), _mm256_shuffle_epi8(second, codes), spread(p));
}

KERNEL avx2Decode(const uint8_t *tables, const uint8_t *groups, const uint8_t *exceptions, uint8_t *out, int64_t count, int64_t rows) {
  const __m256i nibble = _mm256_set1_epi8(15);
  ROLLED for (; rows > 0; rows--) {
    const __m256i first = table_at(tables);
    ROLLED for (int64_t n = count; n > 0; n--) {
      UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(groups + DISTANCE(4096) + 64 * i, _MM_HINT_T0);
      __m256i codes[2] = {load32(groups + CODES), load32(groups + CODES + 32)};
      if (__builtin_expect(groups[CODES] != MARK, 1)) {
        UNROLL for (int s = 0; s < 2; s++) {
          words(out + 32 * s, groups + 32 * s, _mm256_shuffle_epi8(first, _mm256_and_si256(codes[s], nibble)));
          words(out + 128 + 32 * s, groups + 64 + 32 * s, _mm256_shuffle_epi8(first, _mm256_and_si256(_mm256_srli_epi16(codes[s], 4), nibble)));
        }
      } else {
        const uint32_t offset = *(const uint32_t *)(groups + OFFSET);
        const uint8_t *record = exceptions + (offset & 0x7fffffff);
        if (offset >> 31) {
          UNROLL for (int s = 0; s < 2; s++) {
            words(out + 32 * s, groups + 32 * s, load32(record + 32 * s));
            words(out + 128 + 32 * s, groups + 64 + 32 * s, load32(record + 64 + 32 * s));
          }
        } else {
          const __m256i second = table_at(tables + 16);
          codes[0] = _mm256_blend_epi32(codes[0], _mm256_set1_epi64x(*(const int64_t *)(record + MASKS)), 3);
          UNROLL for (int s = 0; s < 2; s++) {
            words(out + 32 * s, groups + 32 * s, by_two(first, second, _mm256_and_si256(codes[s], nibble), record + 4 * s));
            words(out + 128 + 32 * s, groups + 64 + 32 * s, by_two(first, second, _mm256_and_si256(_mm256_srli_epi16(codes[s], 4), nibble), record + 8 + 4 * s));
          }
        }
      }
      groups += GROUP, out += 256;
    }
    tables += TABLE;
  }
}
