// What the variants with 16 lanes share: loads and the ends of dot products.
#include "common.h"

// low has the lanes below n < 256.
INLINE __mmask16 low(int64_t n) { return (__mmask16)_bzhi_u32(0xffff, (uint32_t)n); }

// load widens 16 elements of format f.
INLINE __m512 load(int f, const uint8_t *p) {
  if (f == BF16) return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
  if (f == F16) return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
  return _mm512_loadu_ps(p);
}

INLINE __m512 load_mask(int f, const uint8_t *p, __mmask16 m) {
  if (f == F32) return _mm512_maskz_loadu_ps(m, p);
  __m256i h = _mm256_maskz_loadu_epi16(m, p);
  if (f == F16) return _mm512_cvtph_ps(h);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

// fold adds the lanes in halves.
INLINE __m128 fold4(__m512 v) {
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

INLINE float fold(__m512 v) {
  __m128 q = fold4(v);
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

// folds is fold of four vectors at once, with the same additions.
INLINE __m128 folds(__m512 v0, __m512 v1, __m512 v2, __m512 v3) {
  __m128 a = fold4(v0), b = fold4(v1), c = fold4(v2), d = fold4(v3);
  __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
  __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
  return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

// fold8 is fold of eight vectors at once, with the same additions: quarter q has the sums of
// v[q] and v[4 + q] in its elements 0 and 2.
INLINE __m512 fold8(const __m512 v[8]) {
  __m512 h[4], q[2];
  UNROLL for (int i = 0; i < 4; i++) {
    const __m512 a = v[2 * i], b = v[2 * i + 1];
    h[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  UNROLL for (int i = 0; i < 2; i++) {
    const __m512 a = h[2 * i], b = h[2 * i + 1];
    q[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  const __m512 p = _mm512_add_ps(_mm512_shuffle_ps(q[0], q[1], 0x44), _mm512_shuffle_ps(q[0], q[1], 0xee));
  return _mm512_add_ps(p, _mm512_movehdup_ps(p));
}

// ends writes the sums of R rows and T tokens, y[t][r], ys bytes from token to token.
INLINE void ends(int R, int T, __m512 acc[4][8], uint8_t *y, int64_t ys) {
  if (R == 3 && T > 4) {
    UNROLL for (int i = 0; i < R * (8 - T); i++) acc[i % R][T + i / R] = acc[i % R][0]; // unused
    const __m512 a = fold8(acc[0]), b = fold8(acc[1]), c = fold8(acc[2]);
    __m512 sums[2] = {_mm512_shuffle_ps(_mm512_unpacklo_ps(a, b), c, 0x04), _mm512_shuffle_ps(_mm512_unpackhi_ps(a, b), c, 0x24)};
    UNROLL for (int t = 0; t < T; t++) {
      _mm_mask_storeu_ps(y, 7, _mm512_castps512_ps128(sums[t / 4]));
      sums[t / 4] = _mm512_shuffle_f32x4(sums[t / 4], sums[t / 4], 0x39); // the next quarter
      y += ys;
      OPAQUE(y);
    }
    return;
  }
  UNROLL for (int t = 0; t < T; t++) {
    if (R == 4) _mm_storeu_ps((float *)y, folds(acc[0][t], acc[1][t], acc[2][t], acc[3][t]));
    else if (R > 1) _mm_mask_storeu_ps((float *)y, (1 << R) - 1, folds(acc[0][t], acc[1][t], acc[R - 1][t], acc[R - 1][t]));
    else *(float *)y = fold(acc[0][t]);
    y += ys;
    OPAQUE(y);
  }
}

// transpose16 transposes 16 vectors of 16 words.
INLINE void transpose16(__m512i v[16]) {
  __m512i t[16];
  UNROLL for (int i = 0; i < 16; i += 4) {
    __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]), b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]), d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c), t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d), t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  // t[i + j] has in quarter q the words 4q + j of rows i to i + 3.
  UNROLL for (int j = 0; j < 4; j++) {
    __m512i a = _mm512_shuffle_i32x4(t[j], t[4 + j], 0x88), b = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0x88);
    __m512i c = _mm512_shuffle_i32x4(t[j], t[4 + j], 0xdd), d = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0xdd);
    v[j] = _mm512_shuffle_i32x4(a, b, 0x88), v[8 + j] = _mm512_shuffle_i32x4(a, b, 0xdd);
    v[4 + j] = _mm512_shuffle_i32x4(c, d, 0x88), v[12 + j] = _mm512_shuffle_i32x4(c, d, 0xdd);
  }
}
