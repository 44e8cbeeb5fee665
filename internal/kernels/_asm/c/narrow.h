// What the variants with 8 lanes share: loads of weights.
#include "common.h"
#include "folds.h"

INLINE __m256 load(int f, const uint8_t *p) {
  if (f == BF16) return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
  if (f == F16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
  return _mm256_loadu_ps((const float *)p);
}

// load_one is one element in all lanes.
INLINE __m256 load_one(int f, const uint8_t *p) {
  if (f == F32) return _mm256_broadcast_ss((const float *)p);
  uint32_t h = *(const uint16_t *)p;
  if (f == F16) return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
  return _mm256_castsi256_ps(_mm256_set1_epi32((int)(h << 16)));
}

// low has the lanes below n.
INLINE __m256i low(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
