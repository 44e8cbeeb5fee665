// AMX: products of matrices whose numbers are sums of bfloat16 parts.
#include "common.h"

// Eight tiles of 16 rows of 64 bytes.
static const struct __attribute__((aligned(64))) {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// Parts computes c for the 32 rows of two packs and 32 · couples columns, in panels, over
// blocks of 32 terms. Packs and panels are size bytes apart. list is whether the sums are
// added to what c has, then for each pair of parts whose products are summed 1 and how far
// a and b move before it, then 0 and how far they move to the next couple.
KERNEL amxParts(const uint8_t *a, const uint8_t *b, int64_t size, uint8_t *c, int64_t cs, int64_t blocks, int64_t couples, const int64_t *list) {
  _tile_loadconfig(&config);
  ROLLED for (; couples > 0; couples--) {
    if (list[0]) {
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
    const int64_t *pair = list + 1;
    ROLLED for (; pair[0]; pair += 3) {
      a += pair[1], b += pair[2];
      int64_t left = blocks;
      ROLLED do {
        OPAQUE(a), OPAQUE(b);
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + size, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + size, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += 1024, b += 1024, left--;
        OPAQUE(left);
      } while (left > 0);
    }
    uint8_t *low = c + times(cs, 16);
    _tile_stored(0, c, cs);
    _tile_stored(1, c + 64, cs);
    _tile_stored(2, low, cs);
    _tile_stored(3, low + 64, cs);
    a += pair[1], b += pair[2], c += 128;
  }
  _tile_release();
}
