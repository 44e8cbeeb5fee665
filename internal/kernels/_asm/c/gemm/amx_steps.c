// AMX: prompts in steps of k, whose packs, panels and sums each lie in one piece.
#include "common.h"
#include "amxconfig.h"

static const struct tile_config config = WHOLE_TILES;

// SOON prefetches lines into the first-level cache. Half of a tile's lines are enough: reading them brings the other half.
#define SOON(p, lines) UNROLL for (int i = 0; i < lines; i++) _mm_prefetch((p) + 64 * i, _MM_HINT_T0)

// TileSteps is Tile for a step of k whose packs, panels and sums each lie in one piece. Packs stay in the first-level
// cache while panels stream through it: their loads say that they are used once. Beside each panel rows of the next
// packs' weights, stride apart, are prefetched into the second-level cache.
#define STEPS_ARGS const uint8_t *w, const uint8_t *x, uint8_t *c, int64_t blocks, int64_t panels, int64_t add, const uint8_t *next, int64_t stride

// amxSteps2 is for two packs. It prefetches a row beside each panel.
KERNEL amxSteps2(STEPS_ARGS) {
  _tile_loadconfig(&config);
  const int64_t size = times(blocks, 1024);
  ROLLED for (; panels > 0; panels--) {
    if (add) {
      _tile_loadd(0, c, 64);
      _tile_loadd(1, c + 1024, 64);
    } else {
      _tile_zero(0);
      _tile_zero(1);
    }
    const uint8_t *end = w + size;
    ROLLED do {
      OPAQUE(w), OPAQUE(x), OPAQUE(next);
      _tile_stream_loadd(6, x, 64);
      _tile_loadd(4, w, 64);
      _tile_dpbf16ps(0, 4, 6);
      SOON(x + 2048, 8);
      _tile_loadd(4, w + size, 64);
      _mm_prefetch(next, _MM_HINT_T1);
      _tile_dpbf16ps(1, 4, 6);
      w += 1024, x += 1024, next += 64;
    } while (w != end);
    w -= size, next += stride - (size >> 4);
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 1024, 64);
    c += 2048;
  }
  _tile_release();
}

// amxSteps4 is for four packs, so that a panel, which comes from the second-level cache, is read half as often. An
// eighth of the next panel's sums is prefetched beside each block, and rows of weights beside each panel.
KERNEL amxSteps4(STEPS_ARGS, int64_t rows) {
  _tile_loadconfig(&config);
  const int64_t size = times(blocks, 1024);
  const __m128i adds = spill(add), stop = spill((int64_t)(c + times(panels, 4096))), further = spill(stride * rows - (size >> 4));
  ROLLED do {
    if (reload(adds)) {
      _tile_loadd(0, c, 64);
      _tile_loadd(1, c + 1024, 64);
      _tile_loadd(2, c + 2048, 64);
      _tile_loadd(3, c + 3072, 64);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const uint8_t *end = w + size;
    ROLLED do {
      OPAQUE(w), OPAQUE(x), OPAQUE(next), OPAQUE(c);
      _tile_stream_loadd(6, x, 64);
      _tile_loadd(4, w, 64);
      _tile_dpbf16ps(0, 4, 6);
      SOON(x + 2048, 4);
      SOON(c + 4096, 4);
      _tile_loadd(5, w + size, 64);
      _tile_dpbf16ps(1, 5, 6);
      SOON(x + 2048 + 256, 4);
      const uint8_t *line = next;
      int64_t left = rows;
      ROLLED do {
        _mm_prefetch(line, _MM_HINT_T1);
        line += stride, left--;
      } while (left > 0);
      const uint8_t *third = w + 2 * size;
      _tile_loadd(4, third, 64);
      _tile_dpbf16ps(2, 4, 6);
      SOON(c + 4352, 4);
      _tile_loadd(5, third + size, 64);
      _tile_dpbf16ps(3, 5, 6);
      w += 1024, x += 1024, c += 512, next += 64;
    } while (w != end);
    w -= size, c -= size >> 1, next += reload(further);
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 1024, 64);
    _tile_stored(2, c + 2048, 64);
    _tile_stored(3, c + 3072, 64);
    c += 4096;
  } while (c != (const uint8_t *)reload(stop));
  _tile_release();
}
