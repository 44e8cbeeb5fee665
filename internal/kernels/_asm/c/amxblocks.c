// Products of integers by tiles, with a scale for each row and block of 32 columns. Nothing but a
// benchmark uses them, which shows why: see BenchmarkTilesOfBlocks.
#include "common.h"

// Tiles 0 to 3 are sums, 4 and 5 blocks of tokens, 6 and 7 of rows in fours of columns.
static const struct __attribute__((aligned(64))) {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} config = {1, 0, {0}, {64, 64, 64, 64, 32, 32, 64, 64}, {16, 16, 16, 16, 16, 16, 8, 8}};

enum { TILE = 1024, TOKENS = 16 * 32, ROWS = 16 * 34 };

#define BLOCK(sums, x_tile, w_tile, i)               \
  do {                                               \
    _tile_zero(sums);                                \
    _tile_loadd(x_tile, x + (i) * TOKENS, 32);       \
    _tile_loadd(w_tile, w + 32 + (i) * ROWS, 64);    \
    _tile_dpbssd(sums, x_tile, w_tile);              \
    _tile_stored(sums, ring + (i) * TILE, 64);       \
  } while (0)

// Blocks computes y[t][r] = sum over blocks of scale[r] times the sum of products, for 16 tokens and
// 16 rows, over groups of four blocks. A block of w is 16 scales and the codes of rows in bands, but
// signed. ring is 8 KiB aligned to 64 bytes: products lie there until those of the next group are under
// way.
KERNEL amxBlocks(const uint8_t *x, const uint8_t *w, uint8_t *y, uint8_t *ring, int64_t groups) {
  __m512 acc[16];
  UNROLL for (int t = 0; t < 16; t++) acc[t] = _mm512_setzero_ps();
  _tile_loadconfig(&config);
  const uint8_t *before = w;
  const int64_t both = (int64_t)ring ^ (int64_t)(ring + 4 * TILE);
  ROLLED for (int64_t i = 0; i <= groups; i++, OPAQUE(i)) {
    if (i < groups) {
      BLOCK(0, 4, 6, 0);
      BLOCK(1, 5, 7, 1);
      BLOCK(2, 4, 6, 2);
      BLOCK(3, 5, 7, 3);
      x += 4 * TOKENS, w += 4 * ROWS;
    }
    ring = (uint8_t *)((int64_t)ring ^ both);
    if (i > 0) {
      const uint8_t *sums = ring;
      UNROLL for (int b = 0; b < 4; b++) {
        const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)before));
        UNROLL for (int t = 0; t < 16; t++) acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + 64 * t)), d, acc[t]);
        before += ROWS, sums += TILE;
        OPAQUE(before), OPAQUE(sums);
      }
    }
  }
  _tile_release();
  UNROLL for (int t = 0; t < 16; t++) _mm512_storeu_ps(y + 64 * t, acc[t]);
}
