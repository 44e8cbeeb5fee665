// AMX: products of stored bfloat16 weights with one token, in the order of Tile. Memory bandwidth
// alone limits them, as in avx512_one.c, so a tile reads its 16 rows as 8 streams of neighbouring
// rows.
#include "common.h"
#include "amxconfig.h"

enum { STREAMS = 8, AHEAD = 1024 };

// Sums in tile 0, a block of weights in tile 1, the token's 16 pairs in tile 2.
#define CONFIG(r) {1, 0, {0}, {4, 64, 4}, {r, r, 16}}
static const struct tile_config configs[STREAMS + 1] = {CONFIG(8), CONFIG(1), CONFIG(2), CONFIG(3), CONFIG(4), CONFIG(5), CONFIG(6), CONFIG(7), CONFIG(8)};

// last is the number of blocks at the end of a row that prefetch the next row.
INLINE int64_t last(int64_t blocks) {
  OPAQUE(blocks);
  return blocks < AHEAD / 64 ? blocks : AHEAD / 64;
}

#define STREAM(p, r) ((p) + ((r) == 7 ? ss7 : (r) == 6 ? 2 * ss3 : (r) == 5 ? ss5 : (r) == 3 ? ss3 : (r) * ss))

// One computes rows for one token, over blocks of 32 k. x has the pairs of the token.
KERNEL amxOne(const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t blocks, int64_t rows) {
  const __m128i all = spill(rows);
  int64_t ss = times(ws, 1) * (rows >> 3), ss3 = times(ss, 3);
  const int64_t ss5 = times(ss, 5), ss7 = times(ss, 7);
#define BLOCKS                                                                                   \
  ROLLED for (; left > 0; left--, OPAQUE(left)) {                                                \
    OPAQUE(w), OPAQUE(x), OPAQUE(next), OPAQUE(ss), OPAQUE(ss3);                                 \
    _tile_loadd(1, w, ss);                                                                       \
    UNROLL for (int r = 0; r < STREAMS; r++) _mm_prefetch(STREAM(next, r), _MM_HINT_T0);         \
    _tile_loadd(2, x, 4);                                                                        \
    _tile_dpbf16ps(0, 1, 2);                                                                     \
    w += 64, x += 64, next += 64;                                                                \
  }
  _tile_loadconfig(&configs[STREAMS]);
  ROLLED for (int64_t i = rows >> 3; i > 0; i--, OPAQUE(i)) {
    const __m128i count = spill(i), out = spill((int64_t)y), stride = spill(ws);
    _tile_zero(0);
    int64_t left = blocks - last(blocks);
    const uint8_t *next = w + 64 * last(blocks);
    BLOCKS
    left = last(blocks);
    i = reload(count), ws = reload(stride);
    next = w - 64 * (blocks - left) + ws + (i == 1 ? ss7 : 0);
    BLOCKS
    y = (uint8_t *)reload(out);
    _tile_stored(0, y, reload(all) >> 3 << 2);
    w -= 64 * blocks, x -= 64 * blocks, y += 4;
    OPAQUE(w), OPAQUE(y);
    i = reload(count), ws = reload(stride), w += ws;
  }
  rows = reload(all);
  w += ss7, y += 28 * (rows >> 3);
  rows &= 7;
  if (rows > 0) {
    _tile_release();
    _tile_loadconfig(&configs[rows]);
    _tile_zero(0);
    ROLLED for (; blocks > 0; blocks--, OPAQUE(blocks)) {
      OPAQUE(w), OPAQUE(x);
      _tile_loadd(1, w, ws);
      _tile_loadd(2, x, 4);
      _tile_dpbf16ps(0, 1, 2);
      w += 64, x += 64;
    }
    _tile_stored(0, y, 4);
  }
  _tile_release();
}
