// AVX-512: dot products of codes that are widened in registers. See dots.h. Needs F, BW, DQ and VL.
#include "common.h"
#include "codekinds.h"
#include "rounded.h"

enum { LANES = 16 };
typedef __m512 vector;
// PIN makes the compiler compute v here.
#define PIN(v) ({ __asm__ volatile("" : "+v"(v)); })
#define NAME(name) avx512Dots##name

INLINE vector load(const uint8_t *p) { return _mm512_loadu_ps(p); }
INLINE void store(uint8_t *p, vector v) { _mm512_storeu_ps(p, v); }
INLINE vector fmadd(vector a, vector b, vector c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vector every(const uint8_t *p) { return _mm512_set1_ps(*(const float *)p); }

// fold adds the lanes in halves.
INLINE float fold(vector v) {
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

typedef struct {
  __m512i spread, down;
  __m512 values;
} constants;
typedef struct {
  __m512 a, b; // the values of all codes, or the scale and what follows from the kind
} group;
typedef __m512i chunk;

// Lane l of a chunk of nibbles has columns l and 16 + l, the second 8 bits above the first. The vectors are made here: each kernel
// has all constants of this file behind it, and of vectors of 64 bytes every use is a constant of its own.
INLINE constants constants_of(int kind, const uint8_t *table, int64_t high) {
  constants k;
  __m128i pairs = _mm_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  PIN(pairs);
  __m512i first = _mm512_cvtepu8_epi32(pairs), second = _mm512_slli_epi32(first, 8);
  PIN(second);
  k.spread = _mm512_add_epi32(_mm512_add_epi32(first, second), _mm512_set1_epi32(0x0800));
  k.down = _mm512_mask_set1_epi32(_mm512_set1_epi32((int)high), 0xaaaa, (int)high ^ 4);
  k.values = load(table);
  return k;
}

INLINE __m512 rounded_wide(int64_t to, __m512 v) {
  const __m256 low = _mm512_castps512_ps256(v), high = _mm512_extractf32x8_ps(v, 1);
  if (to == TO_F16) return _mm512_insertf32x8(_mm512_castps256_ps512(rounded(TO_F16, low)), rounded(TO_F16, high), 1);
  return _mm512_insertf32x8(_mm512_castps256_ps512(rounded(TO_BF16, low)), rounded(TO_BF16, high), 1);
}

INLINE group group_of(int kind, const uint8_t *scale, const uint8_t *zero, const uint8_t *table, int64_t round) {
  group g = {every(scale), every(zero)};
  if (kind == TABLE) {
    g.a = _mm512_mul_ps(_mm512_sub_ps(load(table), g.b), g.a);
    if (round != EXACT) g.a = rounded_wide(round, g.a);
  }
  if (kind == SCALED) g.b = every(table);
  return g;
}

INLINE group group_of_byte(const uint8_t *scale, const uint8_t *table, const constants *k) {
  const group g = {_mm512_mul_ps(k->values, every(table + 64 + 4 * (int64_t)*scale))};
  return g;
}

INLINE chunk chunk_of(int kind, const uint8_t *p, const constants *k) {
  if (kind >= INT8) return _mm512_setzero_si512();
  return _mm512_srlv_epi32(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p)), k->spread), k->down);
}

INLINE vector widen(int kind, chunk c, const uint8_t *p, int i, const group *g, const constants *k) {
  if (kind < INT8) return _mm512_permutexvar_ps(i == 0 ? c : _mm512_srli_epi32(c, 8), g->a); // the low four bits count
  const __m128i q = _mm_loadu_si128((const __m128i *)(p + 16 * i));
  const __m512 v = _mm512_cvtepi32_ps(kind == UINT8 ? _mm512_cvtepu8_epi32(q) : _mm512_cvtepi8_epi32(q));
  if (kind != SCALED) return _mm512_mul_ps(_mm512_sub_ps(v, g->b), g->a);
  return _mm512_mul_ps(_mm512_mul_ps(v, g->a), g->b);
}

#include "dots.h"

DOTS(1, 1) DOTS(4, 1) DOTS(4, 2) DOTS(4, 4) DOTS(2, 8)
