// AMX: products of matrices whose numbers are sums of bfloat16 parts.
#include "common.h"
#include "amxconfig.h"

static const struct tile_config config = WHOLE_TILES;

// The kernels compute c for the 32 rows of two packs and 32 · couples columns, in panels,
// over blocks of 32 terms. Packs are as bytes apart and panels bs; parts of one lie part
// bytes apart. With add the sums are added to what c has.
//
// Tiles 0 and 1 are the sums of both packs with one panel, 2 a part of a pack and 3 one of the panel.
// Four more tiles would save loads, but while another thread uses the core, a thread has room for the
// results of some nine tiles: with eight in use, each load and product then waits for the one before.
#define PARTS_ARGS const uint8_t *a, int64_t as, const uint8_t *b, int64_t bs, int64_t part, uint8_t *c, int64_t cs, int64_t blocks, int64_t couples, int64_t add

INLINE void begin(uint8_t *c, int64_t cs, int64_t add) {
  if (add) {
    _tile_loadd(0, c, cs);
    _tile_loadd(1, c + times(cs, 16), cs);
  } else {
    _tile_zero(0);
    _tile_zero(1);
  }
}

INLINE void end(uint8_t *c, int64_t cs) {
  _tile_stored(0, c, cs);
  _tile_stored(1, c + times(cs, 16), cs);
}

// MOVE and BACK move a pointer by what is worked out where it stands.
#define MOVE(p, by) p += times(by, 1), OPAQUE(p)
#define BACK(p, by) p -= times(by, 1), OPAQUE(p)

// RIGHT loads a part of the panel. LEFT multiplies it by a part of both packs.
#define RIGHT _tile_loadd(3, b, 64);
#define LEFT \
  _tile_loadd(2, a, 64), MOVE(a, as), _tile_dpbf16ps(0, 2, 3); \
  _tile_loadd(2, a, 64), BACK(a, as), _tile_dpbf16ps(1, 2, 3);

// EACH does something for each block and returns to the first.
#define EACH(BODY) { \
  int64_t left = blocks; \
  ROLLED do { \
    BODY \
    a += 1024, b += 1024, left--; \
    OPAQUE(a), OPAQUE(b); \
    OPAQUE(left); \
  } while (left > 0); \
  left = blocks; \
  OPAQUE(left); \
  a -= left << 10, b -= left << 10; \
}

#define PANELS(BODY) \
  _tile_loadconfig(&config); \
  ROLLED for (couples *= 2; couples > 0; couples--) { \
    begin(c, cs, add); \
    BODY \
    end(c, cs); \
    b += times(bs, 1), c += 64; \
  } \
  _tile_release();

// Rounded: one part each.
KERNEL amxRounded(PARTS_ARGS) {
  PANELS(EACH(RIGHT LEFT))
}

// Parts3x1: three parts of a, one of b. The products of small parts come first.
KERNEL amxParts3x1(PARTS_ARGS) {
  PANELS(EACH(MOVE(a, part); MOVE(a, part); RIGHT LEFT BACK(a, part); LEFT BACK(a, part);) EACH(RIGHT LEFT))
}

// Floats: three parts each, the six products that matter. Those of small parts come first,
// in an order in which each has a factor of the one before.
KERNEL amxFloats(PARTS_ARGS) {
  PANELS(EACH(MOVE(a, part); MOVE(a, part); RIGHT LEFT BACK(a, part); LEFT MOVE(b, part); RIGHT LEFT BACK(a, part); LEFT MOVE(b, part); RIGHT LEFT BACK(b, part); BACK(b, part);)
    EACH(RIGHT LEFT))
}
