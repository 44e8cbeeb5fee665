// Kernels of weights in blocks and activations rounded to blocks of eight bits: see ints.go.
// Needs AVX-512 VNNI and VL.
#include "common.h"

INLINE __m128 fold4(__m256 v) { return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)); }

INLINE float fold(__m256 v) {
  __m128 q = fold4(v);
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

// folds is fold of four vectors at once, with the same additions.
INLINE __m128 folds(__m256 v0, __m256 v1, __m256 v2, __m256 v3) {
  __m128 a = fold4(v0), b = fold4(v1), c = fold4(v2), d = fold4(v3);
  __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
  __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
  return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

// A block of activations is 32 signed codes, the sums of four of them each times -zero, and
// the scale, in 96 bytes.
KERNEL avx512vnniNarrow(uint8_t *dst, const uint8_t *src, int64_t blocks, int64_t zero) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  ROLLED for (; blocks > 0; blocks--) {
    __m512 a = _mm512_loadu_ps(src), b = _mm512_loadu_ps(src + 64);
    __m512i m = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude), _mm512_and_si512(_mm512_castps_si512(b), magnitude));
    uint32_t top = (uint32_t)_mm512_reduce_max_epi32(m);
    float by = 0, d = __builtin_bit_cast(float, 0x7fc00000);
    if (top < 0x7f800000) {
      float largest = __builtin_bit_cast(float, top);
      d = largest / 127;
      if (largest > 0x1p-100f) by = 127 / largest;
    }
    const __m512 factor = _mm512_set1_ps(by);
    __m256i codes = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, factor)))),
                                            _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, factor))), 1);
    __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), codes);
    _mm256_storeu_si256((__m256i *)dst, codes);
    _mm256_storeu_si256((__m256i *)(dst + 32), _mm256_mullo_epi32(sums, _mm256_set1_epi32((int)-zero)));
    *(float *)(dst + 64) = d;
    dst += 96, src += 128;
  }
}

// codes are those of a block of weights plus zero, which is 128 or 8.
INLINE __m256i codes(int bits, const uint8_t *block) {
  if (bits == 8) return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(block + 2)), _mm256_set1_epi8((char)0x80));
  __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(block + 2)));
  return _mm256_and_si256(_mm256_srlv_epi32(both, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), _mm256_set1_epi8(15));
}

// dot computes R rows for T tokens. Each lane of 8 adds the products of its four columns of a
// block as integers, which are scaled and added block by block; the lanes are added in halves.
INLINE void dot(int bits, int R, int T, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, const float *halves) {
  __m256 acc[4][2];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int t = 0; t < T; t++) acc[r][t] = _mm256_setzero_ps();
  ROLLED for (; blocks > 0; blocks--) {
    const uint8_t *row = w;
    UNROLL for (int r = 0; r < R; r++, row += ws) {
      OPAQUE(row);
      _mm_prefetch(row + 1024, _MM_HINT_T0);
      __m256i c = codes(bits, row);
      __m256 d = _mm256_set1_ps(halves[*(const uint16_t *)row]);
      const uint8_t *in = x;
      UNROLL for (int t = 0; t < T; t++, in += xs) {
        if (T > 1) OPAQUE(in);
        __m256i sum = _mm256_dpbusd_epi32(_mm256_loadu_si256((const __m256i *)(in + 32)), c, _mm256_loadu_si256((const __m256i *)in));
        __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(*(const float *)(in + 64)));
        acc[r][t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, acc[r][t]);
      }
    }
    w += bits == 8 ? 34 : 18, x += 96;
    OPAQUE(w), OPAQUE(x);
  }
  UNROLL for (int t = 0; t < T; t++) {
    if (R == 4) {
      _mm_storeu_ps((float *)y, folds(acc[0][t], acc[1][t], acc[2][t], acc[3][t]));
    } else {
      *(float *)y = fold(acc[0][t]);
    }
    y += ys;
    OPAQUE(y);
  }
}

#define DOT(Q, B, R, T)                                                                                                               \
  KERNEL avx512vnniDot##Q##R##x##T(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, const float *halves) { \
    dot(B, R, T, w, ws, x, xs, y, ys, blocks, halves);                                                                                \
  }
DOT(Q8, 8, 4, 1) DOT(Q8, 8, 1, 1) DOT(Q8, 8, 4, 2) DOT(Q8, 8, 1, 2)
DOT(Q4, 4, 4, 1) DOT(Q4, 4, 1, 1) DOT(Q4, 4, 4, 2) DOT(Q4, 4, 1, 2)
