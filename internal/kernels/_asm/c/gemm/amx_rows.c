// AMX: products of stored bfloat16 weights with panels of tokens, in the order of Tile. The weights
// are in the second-level cache, to which the call before has prefetched them. While it computes, a
// kernel prefetches what the next one reads: 8 streams, apart bytes from each other, several lines
// of each per block of k. So memory and tiles work at the same time. Two sums at a time are fastest, as in amx_tile.c.
//
// All groups of 16 rows are multiplied by a step of the panels before the next step, so that the panels stay in the
// first-level cache. Weights stream through it: their loads say that they are used once.
#include "common.h"
#include "amxconfig.h"

static const struct tile_config config = WHOLE_TILES;

#define FETCH(p)                            \
  _mm_prefetch((p), _MM_HINT_T1);           \
  _mm_prefetch((p) + apart, _MM_HINT_T1);   \
  _mm_prefetch((p) + apart * 2, _MM_HINT_T1); \
  _mm_prefetch((p) + apart3, _MM_HINT_T1)

// LINE is the number of bytes of a row's sums.
#define LINE(panels) (panels > 2 ? 256 : 128)

// rows takes groups of 16 rows and up to four panels, xs bytes apart, in steps of so many blocks. Most values wait in
// vector registers.
INLINE void rows(int panels, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *c, int64_t blocks, int64_t groups, const uint8_t *next, int64_t apart, int64_t lines, int64_t step) {
  _tile_loadconfig(&config);
  const int64_t apart3 = times(apart, 3);
  const uint8_t *high = next + times(apart, 4);
  const __m128i further = spill(times(ws, 16)), all = spill(groups), sums = spill((int64_t)c), most = spill(step), between = spill(xs);
  // Of the step: its weights and panels, whether sums continue, and the blocks from it on.
  __m128i weights = spill((int64_t)w), panel = spill((int64_t)x), add = spill(0), left = spill(blocks);
  for (;;) {
    // What is left of the step.
    __m128i count = all, group = weights, out = sums;
    ROLLED do {
      if (reload(add)) {
        c = (uint8_t *)reload(out);
        int64_t line = LINE(panels);
        OPAQUE(line);
        _tile_loadd(0, c, line);
        if (panels > 1) _tile_loadd(1, c + 64, line);
        if (panels > 2) _tile_loadd(2, c + 128, line);
        if (panels > 3) _tile_loadd(3, c + 192, line);
      } else {
        _tile_zero(0);
        if (panels > 1) _tile_zero(1);
        if (panels > 2) _tile_zero(2);
        if (panels > 3) _tile_zero(3);
      }
      w = (const uint8_t *)reload(group), x = (const uint8_t *)reload(panel), blocks = reload(left), step = reload(most);
      if (blocks > step) blocks = step;
      ROLLED do {
        OPAQUE(w), OPAQUE(x), OPAQUE(next), OPAQUE(high), OPAQUE(lines);
        _tile_stream_loadd(4, w, ws);
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
        const uint8_t *other = x;
        UNROLL for (int i = 1; i < panels; i++) {
          other += reload(between);
          OPAQUE(other);
          _tile_loadd(6, other, 64);
          if (i == 1) _tile_dpbf16ps(1, 4, 6);
          if (i == 2) _tile_dpbf16ps(2, 4, 6);
          if (i == 3) _tile_dpbf16ps(3, 4, 6);
        }
        w += 64, x += 1024, blocks--;
        OPAQUE(blocks);
      } while (blocks > 0);
      c = (uint8_t *)reload(out);
      int64_t line = LINE(panels);
      OPAQUE(line);
      _tile_stored(0, c, line);
      if (panels > 1) _tile_stored(1, c + 64, line);
      if (panels > 2) _tile_stored(2, c + 128, line);
      if (panels > 3) _tile_stored(3, c + 192, line);
      c += 16 * LINE(panels), OPAQUE(c);
      out = spill((int64_t)c), group = spill(reload(group) + reload(further));
      groups = reload(count) - 1, OPAQUE(groups);
      count = spill(groups);
    } while (groups > 0);
    step = reload(most), blocks = reload(left) - step;
    if (blocks <= 0) break;
    left = spill(blocks), add = spill(1), panel = spill((int64_t)x), weights = spill(reload(weights) + 64 * step);
  }
  _tile_release();
}

#define ROWS_ARGS const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *c, int64_t blocks, int64_t groups, const uint8_t *next, int64_t apart, int64_t lines, int64_t step
KERNEL amxRows1(ROWS_ARGS) { rows(1, w, ws, x, xs, c, blocks, groups, next, apart, lines, step); }
KERNEL amxRows2(ROWS_ARGS) { rows(2, w, ws, x, xs, c, blocks, groups, next, apart, lines, step); }
KERNEL amxRows3(ROWS_ARGS) { rows(3, w, ws, x, xs, c, blocks, groups, next, apart, lines, step); }
KERNEL amxRows4(ROWS_ARGS) { rows(4, w, ws, x, xs, c, blocks, groups, next, apart, lines, step); }
