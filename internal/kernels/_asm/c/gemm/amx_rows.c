// AMX: products of stored bfloat16 weights with panels of tokens, in the order of Tile. The weights
// are in the second-level cache, to which the call before has prefetched them. While it computes, a
// kernel prefetches what the next one reads: 8 streams, apart bytes from each other, several lines
// of each per block of k. So memory and tiles work at the same time. Two sums at a time are fastest, as in amx_tile.c.
#include "common.h"
#include "amxconfig.h"

static const struct tile_config config = WHOLE_TILES;

#define FETCH(p)                            \
  _mm_prefetch((p), _MM_HINT_T1);           \
  _mm_prefetch((p) + apart, _MM_HINT_T1);   \
  _mm_prefetch((p) + apart * 2, _MM_HINT_T1); \
  _mm_prefetch((p) + apart3, _MM_HINT_T1)

// rows takes groups of 16 rows and one or two panels, xs bytes apart. A row of sums has 128 bytes.
INLINE void rows(int panels, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *c, int64_t blocks, int64_t groups, const uint8_t *next, int64_t apart, int64_t lines) {
  _tile_loadconfig(&config);
  const int64_t apart3 = times(apart, 3);
  const uint8_t *high = next + times(apart, 4);
  const __m128i step = spill(times(ws, 16));
  ROLLED for (; groups > 0; groups--, OPAQUE(groups)) {
    _tile_zero(0);
    if (panels > 1) _tile_zero(1);
    const __m128i count = spill(groups), sums = spill((int64_t)c), all = spill(blocks), begin = spill((int64_t)w), panel = spill((int64_t)x);
    ROLLED for (; blocks > 0; blocks--, OPAQUE(blocks)) {
      OPAQUE(w), OPAQUE(x), OPAQUE(next), OPAQUE(high), OPAQUE(lines);
      _tile_loadd(4, w, ws);
      if (lines > 0) {
        FETCH(next);
        FETCH(high);
        next += 64, high += 64;
      }
      _tile_loadd(6, x, 64);
      _tile_dpbf16ps(0, 4, 6);
      if (lines > 1) {
        FETCH(next);
        FETCH(high);
        next += 64, high += 64;
      }
      if (panels > 1) {
        _tile_loadd(6, x + xs, 64);
        _tile_dpbf16ps(1, 4, 6);
      }
      w += 64, x += 1024;
    }
    c = (uint8_t *)reload(sums);
    int64_t line = 128;
    OPAQUE(line);
    _tile_stored(0, c, line);
    if (panels > 1) _tile_stored(1, c + 64, line);
    c += 2048, OPAQUE(c);
    blocks = reload(all), groups = reload(count), w = (const uint8_t *)(reload(begin) + reload(step)), x = (const uint8_t *)reload(panel);
  }
  _tile_release();
}

#define ROWS_ARGS const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *c, int64_t blocks, int64_t groups, const uint8_t *next, int64_t apart, int64_t lines
KERNEL amxRows1(ROWS_ARGS) { rows(1, w, ws, x, xs, c, blocks, groups, next, apart, lines); }
KERNEL amxRows2(ROWS_ARGS) { rows(2, w, ws, x, xs, c, blocks, groups, next, apart, lines); }
