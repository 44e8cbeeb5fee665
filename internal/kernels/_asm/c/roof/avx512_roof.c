// The peak rates of a processor: memory reads, and products of values that stay in registers.
// Results are discarded.
#include "common.h"

#define WIDTH 64
#include "roofread.h"
#include "amxconfig.h"

// HELD keeps the compiler from seeing through an accumulator.
#define HELD(v) ({ __asm__ volatile("" : "+v"(v)); })
#define ACCUMULATORS 12

KERNEL roofReadx8(const uint8_t *p, int64_t n, uint8_t *out) { read_all(p, n, out); }
KERNEL roofReadx1(const uint8_t *p, int64_t n, uint8_t *out) { read_as_one_stream(p, n, out); }

// Stream fills n bytes, whole lines, past the caches, which have none of them afterwards.
KERNEL roofStream(uint8_t *p, int64_t n, int64_t with) {
  const __m512i v = _mm512_set1_epi8((char)with);
  ROLLED for (; n > 0; n -= 64, p += 64) _mm512_stream_si512((__m512i *)p, v);
  _mm_sfence();
}

// The kernels below make steps times ACCUMULATORS products of registers.
KERNEL roofFloat(int64_t steps) {
  __m512 a[ACCUMULATORS], x = _mm512_set1_ps(1e-30f), y = x;
  HELD(x), HELD(y);
  UNROLL for (int i = 0; i < ACCUMULATORS; i++) a[i] = _mm512_setzero_ps();
  ROLLED for (; steps > 0; steps--)
    UNROLL for (int i = 0; i < ACCUMULATORS; i++) {
      a[i] = _mm512_fmadd_ps(x, y, a[i]);
      HELD(a[i]);
    }
}

KERNEL roofBFloat(int64_t steps) {
  __m512 a[ACCUMULATORS];
  __m512i bits = _mm512_setzero_si512();
  HELD(bits);
  __m512bh x = (__m512bh)bits;
  UNROLL for (int i = 0; i < ACCUMULATORS; i++) a[i] = _mm512_setzero_ps();
  ROLLED for (; steps > 0; steps--)
    UNROLL for (int i = 0; i < ACCUMULATORS; i++) {
      a[i] = _mm512_dpbf16_ps(a[i], x, x);
      HELD(a[i]);
    }
}

KERNEL roofInts(int64_t steps) {
  __m512i a[ACCUMULATORS], x = _mm512_setzero_si512();
  HELD(x);
  UNROLL for (int i = 0; i < ACCUMULATORS; i++) a[i] = _mm512_setzero_si512();
  ROLLED for (; steps > 0; steps--)
    UNROLL for (int i = 0; i < ACCUMULATORS; i++) {
      a[i] = _mm512_dpbusd_epi32(a[i], x, x);
      HELD(a[i]);
    }
}

static const struct tile_config config = WHOLE_TILES;

// Four tiles of sums, four of factors, as products of large matrices have them.
#define TILES(name, product)                      \
  KERNEL name(int64_t steps) {                    \
    _tile_loadconfig(&config);                    \
    _tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3); \
    _tile_zero(4), _tile_zero(5), _tile_zero(6), _tile_zero(7); \
    ROLLED for (; steps > 0; steps--) {           \
      product(0, 4, 6);                           \
      product(1, 4, 7);                           \
      product(2, 5, 6);                           \
      product(3, 5, 7);                           \
      OPAQUE(steps);                              \
    }                                             \
    _tile_release();                              \
  }

TILES(roofTilesBFloat, _tile_dpbf16ps)
TILES(roofTilesInts, _tile_dpbusd)
