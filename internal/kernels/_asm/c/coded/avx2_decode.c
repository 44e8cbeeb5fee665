// Coded bfloat16 weights to words, in AVX2.
#include "common.h"
#include "codedhalf.h"

// words restores 32 words of low bytes at p: 16 in order at out, and 16 that are 32 columns further on.
INLINE void words(uint8_t *out, const uint8_t *p, __m256i high) {
  const __m256i low = load32(p);
  store32(out, _mm256_unpacklo_epi8(low, high));
  store32(out + 64, _mm256_unpackhi_epi8(low, high));
}

KERNEL avx2Decode(const uint8_t *w, int64_t before, uint8_t *out, int64_t count, int64_t rows) {
  ROLLED for (; rows > 0; rows--) {
    const uint8_t *row = w;
    const __m256i first = table_at(row);
    w += before;
    ROLLED for (int64_t n = count; n > 0; n--) {
      UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(w + DISTANCE(4096) + 64 * i, _MM_HINT_T0);
      UNROLL for (int part = 0; part < 4; part++) {
        words(out + part / 2 * 128 + part % 2 * 32, w + 32 * part, high_bytes(w, part, first, row + 16));
      }
      w += GROUP, out += 256;
    }
  }
}
