// AMX: products of bfloat16 tiles, added up in float32.
#include "common.h"

// Eight tiles of 16 rows of 64 bytes.
static const struct __attribute__((aligned(64))) {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// Tile is avx512bf16Tile for 32 rows, in two packs ws bytes apart.
KERNEL amxTile(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t couples, int64_t add) {
  _tile_loadconfig(&config);
  ROLLED for (; couples > 0; couples--) {
    uint8_t *low = c + times(cs, 16);
    if (add) {
      _tile_loadd(0, c, cs);
      _tile_loadd(1, c + 64, cs);
      _tile_loadd(2, low, cs);
      _tile_loadd(3, low + 64, cs);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    int64_t left = blocks;
    ROLLED do {
      OPAQUE(w), OPAQUE(x);
      _tile_loadd(4, w, 64);
      _tile_loadd(6, x, 64);
      _tile_loadd(7, x + xs, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, w + ws, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      w += 1024, x += 1024, left--;
      OPAQUE(left);
    } while (left > 0);
    // Going back costs no register across the loop.
    const int64_t back = times(blocks, 1024);
    w -= back;
    _tile_stored(0, c, cs);
    _tile_stored(1, c + 64, cs);
    low = c + times(cs, 16);
    _tile_stored(2, low, cs);
    _tile_stored(3, low + 64, cs);
    x += times(xs, 2) - back, c += 128;
  }
  _tile_release();
}

// rows is Tile for one or two panels of tokens and groups of 16 rows, ws bytes apart, whose
// blocks begin wb bytes apart: weights as they lie, or one pack. It fetches nothing ahead:
// the processor follows 16 rows by itself, and a fetch takes a buffer from its loads.
INLINE void rows(int panels, const uint8_t *w, int64_t ws, int64_t wb, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t groups, int64_t add) {
  _tile_loadconfig(&config);
  ROLLED for (; groups > 0; groups--) {
    if (add) {
      _tile_loadd(0, c, cs);
      if (panels > 1) _tile_loadd(1, c + 64, cs);
    } else {
      _tile_zero(0);
      if (panels > 1) _tile_zero(1);
    }
    const uint8_t *at = w;
    int64_t left = blocks;
    ROLLED do {
      OPAQUE(at), OPAQUE(x);
      _tile_loadd(4, at, ws);
      _tile_loadd(6, x, 64);
      if (panels > 1) _tile_loadd(7, x + xs, 64);
      _tile_dpbf16ps(0, 4, 6);
      if (panels > 1) _tile_dpbf16ps(1, 4, 7);
      at += wb, x += 1024, left--;
      OPAQUE(left);
    } while (left > 0);
    _tile_stored(0, c, cs);
    if (panels > 1) _tile_stored(1, c + 64, cs);
    x -= times(blocks, 1024), w += times(ws, 16), c += times(cs, 16);
  }
  _tile_release();
}

#define ROWS_ARGS const uint8_t *w, int64_t ws, int64_t wb, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t groups, int64_t add
KERNEL amxRows1(ROWS_ARGS) { rows(1, w, ws, wb, x, xs, c, cs, blocks, groups, add); }
KERNEL amxRows2(ROWS_ARGS) { rows(2, w, ws, wb, x, xs, c, cs, blocks, groups, add); }

// lying is rows for weights as they lie, which come from memory: a tile's rows lie ws bytes apart
// and the next tile's first wn bytes behind, so that each row of tiles is a stream of many rows that
// follow one another; sums likewise.
INLINE void lying(int panels, const uint8_t *w, int64_t ws, int64_t wn, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t cn, int64_t blocks, int64_t groups) {
  _tile_loadconfig(&config);
  ROLLED for (; groups > 0; groups--) {
    _tile_zero(0);
    if (panels > 1) _tile_zero(1);
    if (panels > 2) _tile_zero(2);
    if (panels > 3) _tile_zero(3);
    const uint8_t *at = w;
    int64_t left = blocks;
    ROLLED do {
      OPAQUE(at), OPAQUE(x);
      _tile_loadd(4, at, ws);
      _tile_loadd(5, x, 64);
      if (panels > 1) _tile_loadd(6, x + xs, 64);
      _tile_dpbf16ps(0, 4, 5);
      if (panels > 2) _tile_loadd(7, x + times(xs, 2), 64);
      if (panels > 1) _tile_dpbf16ps(1, 4, 6);
      if (panels > 3) _tile_loadd(5, x + times(xs, 3), 64);
      if (panels > 2) _tile_dpbf16ps(2, 4, 7);
      if (panels > 3) _tile_dpbf16ps(3, 4, 5);
      at += 64, x += 1024, left--;
      OPAQUE(left);
    } while (left > 0);
    _tile_stored(0, c, cs);
    if (panels > 1) _tile_stored(1, c + 64, cs);
    if (panels > 2) _tile_stored(2, c + 128, cs);
    if (panels > 3) _tile_stored(3, c + 192, cs);
    x -= times(blocks, 1024), w += wn, c += cn;
  }
  _tile_release();
}

#define LYING_ARGS const uint8_t *w, int64_t ws, int64_t wn, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t cn, int64_t blocks, int64_t groups
KERNEL amxLying1(LYING_ARGS) { lying(1, w, ws, wn, x, xs, c, cs, cn, blocks, groups); }
KERNEL amxLying2(LYING_ARGS) { lying(2, w, ws, wn, x, xs, c, cs, cn, blocks, groups); }
KERNEL amxLying3(LYING_ARGS) { lying(3, w, ws, wn, x, xs, c, cs, cn, blocks, groups); }
KERNEL amxLying4(LYING_ARGS) { lying(4, w, ws, wn, x, xs, c, cs, cn, blocks, groups); }

// Both is rows for two panels and groups of 32 rows as they lie, in the caches.
KERNEL amxBoth(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t groups) {
  _tile_loadconfig(&config);
  ROLLED for (; groups > 0; groups--) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const uint8_t *low = w + times(ws, 16);
    int64_t left = blocks;
    ROLLED do {
      OPAQUE(w), OPAQUE(x), OPAQUE(low);
      _tile_loadd(4, w, ws);
      _tile_loadd(6, x, 64);
      _tile_loadd(7, x + xs, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, low, ws);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      w += 64, low += 64, x += 1024, left--;
      OPAQUE(left);
    } while (left > 0);
    _tile_stored(0, c, cs);
    _tile_stored(1, c + 64, cs);
    uint8_t *under = c + times(cs, 16);
    _tile_stored(2, under, cs);
    _tile_stored(3, under + 64, cs);
    x -= times(blocks, 1024), w += times(ws, 32) - times(blocks, 64), c += times(cs, 32);
  }
  _tile_release();
}

// Couple is Tile for groups of 32 rows, in packs ws bytes apart, and one couple of panels.
KERNEL amxCouple(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t groups, int64_t add) {
  _tile_loadconfig(&config);
  ROLLED for (; groups > 0; groups--) {
    uint8_t *low = c + times(cs, 16);
    if (add) {
      _tile_loadd(0, c, cs);
      _tile_loadd(1, c + 64, cs);
      _tile_loadd(2, low, cs);
      _tile_loadd(3, low + 64, cs);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    int64_t left = blocks;
    ROLLED do {
      OPAQUE(w), OPAQUE(x);
      _tile_loadd(4, w, 64);
      _tile_loadd(6, x, 64);
      _tile_loadd(7, x + xs, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, w + ws, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      w += 1024, x += 1024, left--;
      OPAQUE(left);
    } while (left > 0);
    _tile_stored(0, c, cs);
    _tile_stored(1, c + 64, cs);
    low = c + times(cs, 16);
    _tile_stored(2, low, cs);
    _tile_stored(3, low + 64, cs);
    const int64_t back = times(blocks, 1024);
    w += times(ws, 2) - back, x -= back, c += times(cs, 32);
  }
  _tile_release();
}
