// Products of weights in bands with activations in blocks of eight bits: see bands.go and
// ints.go. Needs AVX2, FMA and F16C.
#include "common.h"

// A block of activations for Q4 is 32 signed codes, the scale, and the sum of the codes times
// -zero. For Q8 the codes are words, those of even columns of four before those of odd ones.
enum { SCALE4 = 32, SCALE8 = 64 };

INLINE int scale_at(int bits) { return bits == 8 ? SCALE8 : SCALE4; }

// magnitude is the larger of m and the bits of v without sign.
INLINE __m256i magnitude(__m256i m, __m256 v) {
  return _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff)));
}

INLINE __m256 eight(const uint8_t *src, int i) { return _mm256_loadu_ps((const float *)src + 8 * i); }

INLINE void narrow(int bits, uint8_t *dst, const uint8_t *src, int64_t blocks) {
  ROLLED for (; blocks > 0; blocks--) {
    __m256i m = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < 4; i++) m = magnitude(m, eight(src, i));
    __m128i q = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    q = _mm_max_epi32(q, _mm_unpackhi_epi64(q, q));
    q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 1));
    uint32_t top = (uint32_t)_mm_cvtsi128_si32(q);
    float by = 0, d = __builtin_bit_cast(float, 0x7fc00000);
    if (top < 0x7f800000) {
      float largest = __builtin_bit_cast(float, top);
      d = largest / 127;
      if (largest > 0x1p-100f) by = 127 / largest;
    }
    const __m256 factor = _mm256_set1_ps(by);
    __m256i all = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < 4; i += 2) {
      __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(eight(src, i), factor)), b = _mm256_cvtps_epi32(_mm256_mul_ps(eight(src, i + 1), factor));
      all = _mm256_add_epi32(all, _mm256_add_epi32(a, b));
      __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
      if (bits == 8) {
        const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
        _mm256_storeu_si256((__m256i *)(dst + 16 * i), _mm256_shuffle_epi8(w, order));
      } else {
        _mm_storeu_si128((__m128i *)(dst + 8 * i), _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
      }
    }
    q = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    q = _mm_add_epi32(q, _mm_unpackhi_epi64(q, q));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 1));
    *(float *)(dst + scale_at(bits)) = d;
    *(int *)(dst + scale_at(bits) + 4) = (bits == 8 ? -128 : -8) * _mm_cvtsi128_si32(q);
    dst += scale_at(bits) + 8, src += 128;
  }
}

KERNEL avx2intsNarrowQ8(uint8_t *dst, const uint8_t *src, int64_t blocks) { narrow(8, dst, src, blocks); }
KERNEL avx2intsNarrowQ4(uint8_t *dst, const uint8_t *src, int64_t blocks) { narrow(4, dst, src, blocks); }

INLINE __m256i every(const uint8_t *p) { return _mm256_set1_epi32(*(const int *)p); }

// eights adds to acc the products of eight rows' codes c of four columns, or of Q4 of eight, to
// acc: as words for Q4, of which a block's sums are small enough. x is chunk j of a block.
INLINE __m256i eights(int bits, __m256i acc, __m256i c, const uint8_t *x, int j) {
  if (bits == 8) {
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_and_si256(c, _mm256_set1_epi16(255)), every(x + 8 * j)));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_srli_epi16(c, 8), every(x + 8 * j + 4)));
  }
  const __m256i low = _mm256_set1_epi8(15);
  acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(_mm256_and_si256(c, low), every(x + 4 * j)));
  return _mm256_add_epi16(acc, _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(c, 4), low), every(x + 4 * j + 16)));
}

// scaled adds a block's sums, d times the token's scale.
INLINE __m256 scaled(int bits, __m256 sum, __m256i acc, __m256 d, const uint8_t *x) {
  if (bits == 4) acc = _mm256_madd_epi16(acc, _mm256_set1_epi16(1));
  acc = _mm256_add_epi32(acc, every(x + scale_at(bits) + 4));
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc), _mm256_mul_ps(d, _mm256_broadcast_ss((const float *)(x + scale_at(bits)))), sum);
}

// mul computes the rows of a band for T tokens. A lane is a row: it adds the products of a
// block as integers, which are scaled and added block by block.
INLINE void mul(int bits, int T, const uint8_t *w, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) {
  __m256 sum[2][2];
  UNROLL for (int t = 0; t < T; t++) UNROLL for (int h = 0; h < 2; h++) {
    sum[h][t] = _mm256_setzero_ps();
    if (add) sum[h][t] = _mm256_loadu_ps((const float *)(y + t * ys) + 8 * h);
  }
  ROLLED for (; blocks > 0; blocks--) {
    __m256i acc[2][2];
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int h = 0; h < 2; h++) acc[h][t] = _mm256_setzero_si256();
    UNROLL for (int j = 0; j < bits; j++) {
      _mm_prefetch(w + 4096 + 64 * j, _MM_HINT_T0);
      UNROLL for (int h = 0; h < 2; h++) {
        OPAQUE(w), OPAQUE(x); // or all loads would come first
        __m256i c = _mm256_loadu_si256((const __m256i *)(w + 32 + 64 * j + 32 * h));
        UNROLL for (int t = 0; t < T; t++) acc[h][t] = eights(bits, acc[h][t], c, x + t * xs, j);
      }
    }
    UNROLL for (int h = 0; h < 2; h++) {
      OPAQUE(w), OPAQUE(x);
      const __m256 d = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(w + 16 * h)));
      UNROLL for (int t = 0; t < T; t++) sum[h][t] = scaled(bits, sum[h][t], acc[h][t], d, x + t * xs);
    }
    w += 32 + 64 * bits, x += scale_at(bits) + 8;
    OPAQUE(w), OPAQUE(x);
  }
  UNROLL for (int t = 0; t < T; t++) UNROLL for (int h = 0; h < 2; h++) _mm256_storeu_ps((float *)(y + t * ys) + 8 * h, sum[h][t]);
}

#define MUL_BAND const uint8_t *w, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add
KERNEL avx2intsMulQ82(MUL_BAND) { mul(8, 2, w, x, xs, y, ys, blocks, add); }
KERNEL avx2intsMulQ81(MUL_BAND) { mul(8, 1, w, x, xs, y, ys, blocks, add); }
KERNEL avx2intsMulQ42(MUL_BAND) { mul(4, 2, w, x, xs, y, ys, blocks, add); }
KERNEL avx2intsMulQ41(MUL_BAND) { mul(4, 1, w, x, xs, y, ys, blocks, add); }

// edge is mul of up to eight rows of a band of some rows for one token, from w on, where their
// scales begin; codes lie behind all scales. y has what is added to.
INLINE void edge(int bits, const uint8_t *w, int64_t codes, int64_t rows, int64_t take, const uint8_t *x, uint8_t *y, int64_t blocks) {
  const __m256i m = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)take), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256 sum = _mm256_loadu_ps((const float *)y);
  ROLLED for (; blocks > 0; blocks--) {
    __m256i acc = _mm256_setzero_si256();
    const uint8_t *c = w + codes;
    UNROLL for (int j = 0; j < bits; j++) {
      acc = eights(bits, acc, _mm256_maskload_epi32((const int *)c, m), x, j);
      c += 4 * rows;
      OPAQUE(c);
    }
    // Sixteen bytes of a block are always there; what is no scale meets zeros that are not kept.
    sum = scaled(bits, sum, acc, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w)), x);
    w += times(rows, 2 + 4 * bits), x += scale_at(bits) + 8;
    OPAQUE(w), OPAQUE(x);
  }
  _mm256_storeu_ps((float *)y, sum);
}

#define EDGE_ARGS const uint8_t *w, int64_t codes, int64_t rows, int64_t take, const uint8_t *x, uint8_t *y, int64_t blocks
KERNEL avx2intsEdgeQ8(EDGE_ARGS) { edge(8, w, codes, rows, take, x, y, blocks); }
KERNEL avx2intsEdgeQ4(EDGE_ARGS) { edge(4, w, codes, rows, take, x, y, blocks); }
