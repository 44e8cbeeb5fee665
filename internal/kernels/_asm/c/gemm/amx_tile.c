// AMX: products of bfloat16 tiles, added up in float32.
#include "common.h"
#include "amxconfig.h"

static const struct tile_config config = WHOLE_TILES;

// Two sums at a time take four tiles. Beside a busy thread of the same core a thread has room for about nine results of
// tile loads and products: with more sums at a time they wait for each other there, and are no faster alone.

// packs is Tile for groups of 16 rows, in packs ws bytes apart, and one or two panels of tokens.
INLINE void packs(int panels, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t groups, int64_t add) {
  _tile_loadconfig(&config);
  ROLLED for (; groups > 0; groups--) {
    if (add) {
      _tile_loadd(0, c, cs);
      if (panels > 1) _tile_loadd(1, c + 64, cs);
    } else {
      _tile_zero(0);
      if (panels > 1) _tile_zero(1);
    }
    int64_t left = blocks;
    ROLLED do {
      OPAQUE(w), OPAQUE(x);
      _tile_loadd(4, w, 64);
      _tile_loadd(6, x, 64);
      _tile_dpbf16ps(0, 4, 6);
      if (panels > 1) {
        _tile_loadd(6, x + xs, 64);
        _tile_dpbf16ps(1, 4, 6);
      }
      w += 1024, x += 1024, left--;
      OPAQUE(left);
    } while (left > 0);
    _tile_stored(0, c, cs);
    if (panels > 1) _tile_stored(1, c + 64, cs);
    const int64_t back = times(blocks, 1024);
    w += ws - back, x -= back, c += times(cs, 16);
  }
  _tile_release();
}

#define PACKS_ARGS const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t groups, int64_t add
KERNEL amxPacks1(PACKS_ARGS) { packs(1, w, ws, x, xs, c, cs, blocks, groups, add); }
KERNEL amxPacks2(PACKS_ARGS) { packs(2, w, ws, x, xs, c, cs, blocks, groups, add); }
