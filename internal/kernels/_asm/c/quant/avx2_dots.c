// AVX2: dot products of codes that are widened in registers. See dots.h. Needs AVX2, FMA and F16C.
#include "common.h"
#include "codekinds.h"
#include "folds.h"
#include "rounded.h"

enum { LANES = 8 };
typedef __m256 vector;
// PIN makes the compiler compute v here.
#define PIN(v) ({ __asm__ volatile("" : "+x"(v)); })
#define NAME(name) avx2Dots##name

INLINE vector load(const uint8_t *p) { return _mm256_loadu_ps((const float *)p); }
INLINE void store(uint8_t *p, vector v) { _mm256_storeu_ps((float *)p, v); }
INLINE vector fmadd(vector a, vector b, vector c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vector every(const uint8_t *p) { return _mm256_broadcast_ss((const float *)p); }

typedef struct {
  __m256i down;
} constants;
typedef struct {
  __m256 a, b;
} group;
typedef char chunk; // of nothing: widen reads eight codes

INLINE constants constants_of(int kind, const uint8_t *table, int64_t high) {
  const constants k = {_mm256_xor_si256(_mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), _mm256_set1_epi32((int)high))};
  return k;
}

// group_of has the values of both halves of the codes, or the scale and what follows from the kind.
INLINE group group_of(int kind, const uint8_t *scale, const uint8_t *zero, const uint8_t *table, int64_t round) {
  group g = {every(scale), every(zero)};
  if (kind == TABLE) {
    const __m256 by = g.a, less = g.b;
    g.a = _mm256_mul_ps(_mm256_sub_ps(load(table), less), by), g.b = _mm256_mul_ps(_mm256_sub_ps(load(table + 32), less), by);
    if (round == TO_BF16) g.a = rounded(TO_BF16, g.a), g.b = rounded(TO_BF16, g.b);
    if (round == TO_F16) g.a = rounded(TO_F16, g.a), g.b = rounded(TO_F16, g.b);
  }
  if (kind == SCALED) g.b = every(table);
  return g;
}

INLINE group group_of_byte(const uint8_t *scale, const uint8_t *table, const constants *k) {
  const __m256 by = every(table + 64 + 4 * (int64_t)*scale);
  const group g = {_mm256_mul_ps(load(table), by), _mm256_mul_ps(load(table + 32), by)};
  return g;
}

INLINE chunk chunk_of(int kind, const uint8_t *p, const constants *k) { return 0; }

INLINE vector widen(int kind, chunk c, const uint8_t *p, int i, const group *g, const constants *k) {
  if (kind < INT8) {
    const __m256i at = _mm256_srlv_epi32(_mm256_set1_epi32(*(const int *)(p + 4 * i)), k->down); // the low three bits count
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(g->a, at), _mm256_permutevar8x32_ps(g->b, at), _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
  }
  const __m128i q = _mm_loadl_epi64((const __m128i *)(p + 8 * i));
  const __m256 v = _mm256_cvtepi32_ps(kind == UINT8 ? _mm256_cvtepu8_epi32(q) : _mm256_cvtepi8_epi32(q));
  if (kind != SCALED) return _mm256_mul_ps(_mm256_sub_ps(v, g->b), g->a);
  return _mm256_mul_ps(_mm256_mul_ps(v, g->a), g->b);
}

#include "dots.h"

DOTS(1, 1) DOTS(2, 1) DOTS(2, 2) DOTS(1, 4) DOTS(1, 8)
