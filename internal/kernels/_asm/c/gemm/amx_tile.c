// AMX: products of bfloat16 tiles, added up in float32.
#include "common.h"

// Eight tiles of 16 rows of 64 bytes.
static const struct __attribute__((aligned(64))) {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// pack is Tile for 16 rows, in one pack, and one or two panels of tokens.
INLINE void pack(int panels, const uint8_t *w, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t add) {
  _tile_loadconfig(&config);
  if (add) {
    _tile_loadd(0, c, cs);
    if (panels > 1) _tile_loadd(1, c + 64, cs);
  } else {
    _tile_zero(0);
    if (panels > 1) _tile_zero(1);
  }
  ROLLED do {
    OPAQUE(w), OPAQUE(x);
    _tile_loadd(4, w, 64);
    _tile_loadd(6, x, 64);
    if (panels > 1) _tile_loadd(7, x + xs, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (panels > 1) _tile_dpbf16ps(1, 4, 7);
    w += 1024, x += 1024, blocks--;
    OPAQUE(blocks);
  } while (blocks > 0);
  _tile_stored(0, c, cs);
  if (panels > 1) _tile_stored(1, c + 64, cs);
  _tile_release();
}

#define PACK_ARGS const uint8_t *w, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t add
KERNEL amxPack1(PACK_ARGS) { pack(1, w, x, xs, c, cs, blocks, add); }
KERNEL amxPack2(PACK_ARGS) { pack(2, w, x, xs, c, cs, blocks, add); }

// PanelPair is avx512bf16Tile for groups of 32 rows, in packs ws bytes apart, and one pair of panels xs bytes apart.
KERNEL amxPanelPair(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t groups, int64_t add) {
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

// SOON prefetches the first half of a tile into the first-level cache; reading it brings the other half.
#define SOON(p) UNROLL for (int i = 0; i < 8; i++) _mm_prefetch((p) + 64 * i, _MM_HINT_T0)

// TileSteps is Tile for a step of k whose packs, panels and sums each lie in one piece. Packs stay in the first-level
// cache while panels stream through it: their loads say that they are used once. Beside each pair of panels it prefetches
// two rows of the next packs' weights, stride apart, into the second-level cache.
KERNEL amxTileSteps(const uint8_t *w, const uint8_t *x, uint8_t *c, int64_t blocks, int64_t couples, int64_t add, const uint8_t *next, int64_t stride) {
  _tile_loadconfig(&config);
  const int64_t size = times(blocks, 1024);
  ROLLED for (; couples > 0; couples--) {
    int64_t line = 128;
    OPAQUE(line);
    if (add) {
      _tile_loadd(0, c, line);
      _tile_loadd(1, c + 64, line);
      _tile_loadd(2, c + 2048, line);
      _tile_loadd(3, c + 2112, line);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const __m128i left = spill(couples), sums = spill((int64_t)c);
    const uint8_t *low = w + size, *right = x + size, *end = low;
    ROLLED do {
      OPAQUE(w), OPAQUE(x), OPAQUE(low), OPAQUE(right), OPAQUE(next);
      _tile_stream_loadd(6, x, 64);
      _tile_stream_loadd(7, right, 64);
      _tile_loadd(4, w, 64);
      _tile_loadd(5, low, 64);
      SOON(x + 2048);
      _tile_dpbf16ps(0, 4, 6);
      _mm_prefetch(next, _MM_HINT_T1);
      _tile_dpbf16ps(1, 4, 7);
      SOON(right + 2048);
      _tile_dpbf16ps(2, 5, 6);
      _mm_prefetch(next + stride, _MM_HINT_T1);
      _tile_dpbf16ps(3, 5, 7);
      w += 1024, x += 1024, low += 1024, right += 1024, next += 64;
    } while (w != end);
    couples = reload(left), c = (uint8_t *)reload(sums);
    w -= size, x = right, next += times(stride, 2) - times(blocks, 64);
    line = 128;
    OPAQUE(line);
    _tile_stored(0, c, line);
    _tile_stored(1, c + 64, line);
    _tile_stored(2, c + 2048, line);
    _tile_stored(3, c + 2112, line);
    c += 4096;
  }
  _tile_release();
}
