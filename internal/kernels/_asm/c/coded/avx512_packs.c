// Coded bfloat16 weights to packs of gemm's TileSteps, in AVX-512.
#include "wide.h"
#include "codedgroup.h"

enum { ROWS = 16, BLOCK = 64 * ROWS };

// avx512DecodePacks decodes groups of rows, which begin stride bytes apart. w has their tables, p the first group. A pack has 16 rows,
// and the next one begins apart bytes after it. In a pack 32 columns of all rows follow one another.
KERNEL avx512DecodePacks(const uint8_t *w, const uint8_t *p, int64_t stride, uint8_t *out, int64_t groups, int64_t rows, int64_t apart) {
  const int64_t next = stride - times(groups, GROUP), lines = times(groups, 4 * BLOCK);
  ROLLED for (; rows > 0; rows -= ROWS) {
    uint8_t *to = out;
    ROLLED for (int64_t n = rows < ROWS ? rows : ROWS; n > 0; n--) {
      const __m512i first = table_at(w);
      const uint8_t *end = to + lines;
      ROLLED do {
        const struct group g = decode_group(p, first, w + 16);
        UNROLL for (int i = 0; i < 4; i++) _mm512_storeu_si512(to + BLOCK * i, g.v[i]);
        p += GROUP, to += 4 * BLOCK;
      } while (to != end);
      to += 64 - lines, w += stride, p += next;
    }
    out += apart;
  }
}

// avx512DecodeLongPack decodes one pack, group by group: the lines of long rows, 1 KiB apart, share few sets of the first-level
// cache.
KERNEL avx512DecodeLongPack(const uint8_t *w, const uint8_t *p, int64_t stride, uint8_t *out, int64_t groups, int64_t rows) {
  ROLLED for (; groups > 0; groups--) {
    const uint8_t *row = w, *at = p;
    uint8_t *to = out;
    ROLLED for (int64_t n = rows < ROWS ? rows : ROWS; n > 0; n--) {
      const struct group g = decode_group(at, table_at(row), row + 16);
      UNROLL for (int i = 0; i < 4; i++) _mm512_storeu_si512(to + BLOCK * i, g.v[i]);
      row += stride, at += stride, to += 64;
    }
    p += GROUP, out += 4 * BLOCK;
  }
}
