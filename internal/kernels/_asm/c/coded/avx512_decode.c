// Coded bfloat16 weights to words, in AVX-512.
#include "wide.h"
#include "codedgroup.h"

KERNEL avx512Decode(const uint8_t *tables, const uint8_t *groups, const uint8_t *exceptions, uint8_t *out, int64_t count, int64_t rows) {
  ROLLED for (; rows > 0; rows--) {
    const __m512i first = table_at(tables);
    ROLLED for (int64_t n = count; n > 0; n--) {
      UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(groups + DISTANCE(4096) + 64 * i, _MM_HINT_T0);
      const struct group g = decode_group(groups, first, tables + 16, exceptions);
      UNROLL for (int i = 0; i < 4; i++) _mm512_storeu_si512(out + 64 * i, g.v[i]);
      groups += GROUP, out += 256;
    }
    tables += TABLE;
  }
}
