// AMX: products of matrices whose numbers are sums of bfloat16 parts.
#include "common.h"

// Eight tiles of 16 rows of 64 bytes.
static const struct __attribute__((aligned(64))) {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// The kernels compute c for the 32 rows of two packs and 32 · couples columns, in panels,
// over blocks of 32 terms. Packs are as bytes apart and panels bs; parts of one lie part
// bytes apart. With add the sums are added to what c has. Tiles 0 to 3 are the sums, 4 and 5
// those of a, 6 and 7 those of b: a tile that serves several products stays.
#define PARTS_ARGS const uint8_t *a, int64_t as, const uint8_t *b, int64_t bs, int64_t part, uint8_t *c, int64_t cs, int64_t blocks, int64_t couples, int64_t add

INLINE void begin(uint8_t *c, int64_t cs, int64_t add) {
  if (add) {
    uint8_t *low = c + times(cs, 16);
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
}

INLINE void end(uint8_t *c, int64_t cs) {
  uint8_t *low = c + times(cs, 16);
  _tile_stored(0, c, cs);
  _tile_stored(1, c + 64, cs);
  _tile_stored(2, low, cs);
  _tile_stored(3, low + 64, cs);
}

// MOVE and BACK move a pointer by what is worked out where it stands.
#define MOVE(p, by) p += times(by, 1), OPAQUE(p)
#define BACK(p, by) p -= times(by, 1), OPAQUE(p)

// BOTH multiplies tiles of both operands, LEFT new ones of a with what is there of b, RIGHT
// new ones of b with what is there of a.
#define BOTH \
  _tile_loadd(4, a, 64), _tile_loadd(6, b, 64), MOVE(b, bs), _tile_loadd(7, b, 64), BACK(b, bs); \
  _tile_dpbf16ps(0, 4, 6), MOVE(a, as), _tile_loadd(5, a, 64), BACK(a, as); \
  _tile_dpbf16ps(1, 4, 7), _tile_dpbf16ps(2, 5, 6), _tile_dpbf16ps(3, 5, 7);
#define LEFT \
  _tile_loadd(4, a, 64), MOVE(a, as), _tile_dpbf16ps(0, 4, 6), _tile_dpbf16ps(1, 4, 7); \
  _tile_loadd(5, a, 64), BACK(a, as), _tile_dpbf16ps(2, 5, 6), _tile_dpbf16ps(3, 5, 7);
#define RIGHT \
  _tile_loadd(6, b, 64), MOVE(b, bs), _tile_dpbf16ps(0, 4, 6), _tile_dpbf16ps(2, 5, 6); \
  _tile_loadd(7, b, 64), BACK(b, bs), _tile_dpbf16ps(1, 4, 7), _tile_dpbf16ps(3, 5, 7);

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

#define COUPLES(BODY) \
  _tile_loadconfig(&config); \
  ROLLED for (; couples > 0; couples--) { \
    begin(c, cs, add); \
    BODY \
    end(c, cs); \
    b += times(bs, 2), c += 128; \
  } \
  _tile_release();

// Rounded: one part each.
KERNEL amxRounded(PARTS_ARGS) {
  COUPLES(EACH(BOTH))
}

// Parts3x1: three parts of a, one of b. The products of small parts come first.
KERNEL amxParts3x1(PARTS_ARGS) {
  COUPLES(EACH(MOVE(a, part); MOVE(a, part); BOTH BACK(a, part); LEFT BACK(a, part);) EACH(BOTH))
}

// Floats: three parts each, the six products that matter. Those of small parts come first,
// in an order in which each has a factor of the one before.
KERNEL amxFloats(PARTS_ARGS) {
  COUPLES(EACH(MOVE(a, part); MOVE(a, part); BOTH BACK(a, part); LEFT MOVE(b, part); RIGHT BACK(a, part); LEFT MOVE(b, part); RIGHT BACK(b, part); BACK(b, part);)
    EACH(BOTH))
}
