// AMX: products of coded bfloat16 weights and up to 64 tokens, in the order of gemm's Tile. While a group of each of 16 rows
// is multiplied, the next one is decoded into tiles beside it, and groups ahead of it are prefetched. So memory, decoding
// and products work at the same time. Steps of several groups are slower: with the tokens and what is prefetched they leave
// no room in the first-level cache.
#include "wide.h"
#include "codedgroup.h"
#include "amxconfig.h"

enum { ROWS = 16, TILE = 1024, STEP = 4 * TILE, AHEAD = 4 };

// Sums are in tiles 0 to 3, weights in tile 4, tokens in tile 6; one token is a column of 4 bytes.
#define CONFIG(r, columns) {1, 0, {0}, {columns, columns, columns, columns, 64, 0, columns}, {r, r, r, r, r, 0, 16}}
#define CONFIGS(n) {CONFIG(1, n), CONFIG(2, n), CONFIG(3, n), CONFIG(4, n), CONFIG(5, n), CONFIG(6, n), CONFIG(7, n), CONFIG(8, n), CONFIG(9, n), CONFIG(10, n), CONFIG(11, n), CONFIG(12, n), CONFIG(13, n), CONFIG(14, n), CONFIG(15, n), CONFIG(16, n)}
static const struct tile_config configs[2][ROWS] = {CONFIGS(4), CONFIGS(64)};

INLINE void clear_sums(int panels) {
  _tile_zero(0);
  if (panels > 1) _tile_zero(1);
  if (panels > 2) _tile_zero(2);
  if (panels > 3) _tile_zero(3);
}

// multiply multiplies a tile of weights by tokens.
INLINE void multiply(int panels, const uint8_t *w, const uint8_t *x, int64_t xs) {
  _tile_loadd(4, w, 64);
  if (panels == 0) {
    _tile_loadd(6, x, 4);
  } else {
    _tile_loadd(6, x, 64);
  }
  _tile_dpbf16ps(0, 4, 6);
  if (panels > 1) {
    _tile_loadd(6, x + xs, 64);
    _tile_dpbf16ps(1, 4, 6);
  }
  if (panels > 2) {
    _tile_loadd(6, x + 2 * xs, 64);
    _tile_dpbf16ps(2, 4, 6);
  }
  if (panels > 3) {
    const uint8_t *third = x + 2 * xs;
    _tile_loadd(6, third + xs, 64);
    _tile_dpbf16ps(3, 4, 6);
  }
}

// LINE is the number of bytes of a row's sums.
#define LINE(panels) (panels == 0 ? 4 : panels <= 2 ? 128 : 256)

INLINE void store_sums(int panels, uint8_t *c) {
  _tile_stored(0, c, LINE(panels));
  if (panels > 1) _tile_stored(1, c + 64, LINE(panels));
  if (panels > 2) _tile_stored(2, c + 128, LINE(panels));
  if (panels > 3) _tile_stored(3, c + 192, LINE(panels));
}

// fetch prefetches a line of each of eight streams, apart bytes from each other, into the second-level cache.
INLINE __m128i fetch(__m128i at, __m128i distance) {
  const int64_t apart = reload(distance), apart3 = times(apart, 3);
  const uint8_t *p = (const uint8_t *)reload(at), *high = p + times(apart, 4);
  _mm_prefetch(p, _MM_HINT_T1);
  _mm_prefetch(p + apart, _MM_HINT_T1);
  _mm_prefetch(p + apart * 2, _MM_HINT_T1);
  _mm_prefetch(p + apart3, _MM_HINT_T1);
  _mm_prefetch(high, _MM_HINT_T1);
  _mm_prefetch(high + apart, _MM_HINT_T1);
  _mm_prefetch(high + apart * 2, _MM_HINT_T1);
  _mm_prefetch(high + apart3, _MM_HINT_T1);
  return spill((int64_t)p + 64);
}

// strips multiplies count strips of so many rows. panels is 0 for one token. tiles has room for two steps. Most values wait
// in vector registers.
INLINE void strips(int panels, const uint8_t *w, int64_t before, const uint8_t *x, int64_t xs, uint8_t *c, int64_t groups, int64_t rows, int64_t count, uint8_t *tiles, const uint8_t *next, int64_t apart, int64_t lines) {
  _tile_loadconfig(&configs[panels > 0][rows - 1]);
  clear_sums(panels);
  const __m128i strip = spill((before + groups * GROUP) * ROWS), stride = spill(before + groups * GROUP), begin = spill((int64_t)x), between = spill(xs), all = spill(groups), each = spill(rows), head = spill(before);
  // What is left: strips to decode, and groups of a strip to decode and to multiply.
  __m128i out = spill((int64_t)c), left = spill(count), undecoded = all, unmultiplied = spill(groups + 1), here = spill((int64_t)tiles), there = spill((int64_t)tiles + STEP);
  __m128i following = spill((int64_t)next);
  const __m128i distance = spill(apart), most = spill(lines);
  const uint8_t *p = w + before;
  for (;;) {
    if (reload(left) > 0) {
      int64_t ahead = AHEAD * GROUP, r = reload(each);
      const int64_t more = reload(undecoded) - AHEAD;
      if (more <= 0) ahead = (int64_t)w + reload(strip) - (int64_t)p - more * GROUP; // in the next strip
      uint8_t *to = (uint8_t *)reload(here);
      ROLLED do {
        OPAQUE(p), OPAQUE(w), OPAQUE(to), OPAQUE(ahead);
        UNROLL for (int i = 0; i < 3; i++) _mm_prefetch(p + ahead + 64 * i, _MM_HINT_T0);
        const struct group g = decode_group(p, table_at(w), w + 16);
        UNROLL for (int i = 0; i < 4; i++) _mm512_storeu_si512(to + TILE * i, g.v[i]);
        const int64_t ws = reload(stride);
        p += ws, w += ws, to += 64, r--;
      } while (r > 0);
      const int64_t back = reload(each) * reload(stride);
      p += GROUP - back, w -= back;
    }
    if (reload(unmultiplied) <= reload(all)) {
      const uint8_t *from = (const uint8_t *)reload(there);
      UNROLL for (int i = 0; i < 4; i++) {
        multiply(panels, from + TILE * i, x + (panels == 0 ? 64 : TILE) * i, panels > 1 ? reload(between) : 0);
        if (panels > 0 && reload(most) > i) following = fetch(following, distance);
        if (panels > 0 && reload(most) > 4 + i) following = fetch(following, distance);
      }
      x += 4 * (panels == 0 ? 64 : TILE);
    }
    unmultiplied = spill(reload(unmultiplied) - 1);
    if (reload(unmultiplied) == 0) {
      store_sums(panels, (uint8_t *)reload(out));
      if (reload(left) == 0) break;
      clear_sums(panels);
      out = spill(reload(out) + ROWS * LINE(panels));
      unmultiplied = all, x = (const uint8_t *)reload(begin);
    }
    undecoded = spill(reload(undecoded) - 1);
    if (reload(undecoded) == 0) {
      w += reload(strip), p = w + reload(head);
      undecoded = all, left = spill(reload(left) - 1);
    }
    const __m128i swap = here;
    here = there, there = swap;
  }
  _tile_release();
}

#define ARGS const uint8_t *w, int64_t before, const uint8_t *x, int64_t xs, uint8_t *c, int64_t groups, int64_t rows, int64_t count, uint8_t *tiles, const uint8_t *next, int64_t apart, int64_t lines
KERNEL amxCodedToken(ARGS) { strips(0, w, before, x, xs, c, groups, rows, count, tiles, next, apart, lines); }
KERNEL amxCodedPanel(ARGS) { strips(1, w, before, x, xs, c, groups, rows, count, tiles, next, apart, lines); }
KERNEL amxCodedPanels(ARGS) { strips(2, w, before, x, xs, c, groups, rows, count, tiles, next, apart, lines); }
KERNEL amxCodedPanels3(ARGS) { strips(3, w, before, x, xs, c, groups, rows, count, tiles, next, apart, lines); }
KERNEL amxCodedPanels4(ARGS) { strips(4, w, before, x, xs, c, groups, rows, count, tiles, next, apart, lines); }
