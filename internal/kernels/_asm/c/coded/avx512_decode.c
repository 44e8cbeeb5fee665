// Coded bfloat16 weights to words, in AVX-512.
#include "wide.h"
#include "codedgroup.h"

KERNEL avx512Decode(const uint8_t *w, int64_t before, uint8_t *out, int64_t count, int64_t rows) {
  ROLLED for (; rows > 0; rows--) {
    const uint8_t *row = w;
    const __m512i first = table_at(row);
    w += before;
    ROLLED for (int64_t n = count; n > 0; n--) {
      UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(w + DISTANCE(4096) + 64 * i, _MM_HINT_T0);
      const struct group g = decode_group(w, first, row + 16);
      UNROLL for (int i = 0; i < 4; i++) _mm512_storeu_si512(out + 64 * i, g.v[i]);
      w += GROUP, out += 256;
    }
  }
}
