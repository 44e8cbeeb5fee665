// AVX2: products of rows of blocks, as they are stored, with one token of 8-bit blocks: see
// stored.go. Needs AVX2, FMA and F16C.
#include "common.h"

// Blocks of activations are those of avx2_int8.c. For Q8 each code is 16 times a small number, the
// first 32 bytes, plus another, the next 32.
enum { BLOCK_Q8 = 76, SCALE_Q8 = 64, BLOCK_Q4 = 40, SCALE_Q4 = 32, SHIFT_Q4 = 36 };

// ROW is the current block of row r of 8, which begin stride bytes apart. p[i] is row 3i.
#define ROW(r) (p[(r) / 3] + ((r) % 3) * stride)

typedef short scales __attribute__((vector_size(16)));

INLINE __m256i words(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// couple adds the words of vectors in each half: those of a to elements 0 and 2, those of b to 1 and 3.
INLINE __m256i couple(__m256i a, __m256i b) { return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)); }

// four adds the words of four vectors in each half to its elements 0 to 3.
INLINE __m256i four(__m256i *v) {
  const __m256i a = couple(v[0], v[1]), b = couple(v[2], v[3]);
  return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

// sums_q8 returns the sums of a block of 8 rows. A pair of products is below 2^15.
INLINE __m256i sums_q8(const uint8_t *const *p, int64_t stride, const uint8_t *x) {
  const __m256i high = _mm256_and_si256(_mm256_slli_epi16(_mm256_loadu_si256((const __m256i *)x), 4), _mm256_set1_epi8((char)0xf0));
  const __m256i in = _mm256_add_epi8(high, _mm256_loadu_si256((const __m256i *)(x + 32)));
  __m256i v[8];
  UNROLL for (int r = 0; r < 8; r++) {
    const __m256i codes = _mm256_loadu_si256((const __m256i *)(ROW(r) + 2));
    v[r] = words(_mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(in, codes)));
  }
  const __m256i a = four(v), b = four(v + 4);
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

INLINE __m128i codes_q4(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(p + 2)); }

INLINE __m256i twice(const uint8_t *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)); }

INLINE __m256i sums_q4(const uint8_t *const *p, int64_t stride, const uint8_t *x) {
  const __m256i low = _mm256_set1_epi8(15), in0 = twice(x), in1 = twice(x + 16);
  __m256i v[4]; // rows r and r + 4
  UNROLL for (int r = 0; r < 4; r++) {
    const __m256i all = _mm256_inserti128_si256(_mm256_castsi128_si256(codes_q4(ROW(r))), codes_q4(ROW(r + 4)), 1);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(all, 4), low);
    v[r] = words(_mm256_add_epi16(_mm256_maddubs_epi16(_mm256_and_si256(all, low), in0), _mm256_maddubs_epi16(high, in1)));
  }
  return _mm256_add_epi32(four(v), words(_mm256_set1_epi32(*(const int *)(x + SHIFT_Q4))));
}

INLINE void stored(int bits, const uint8_t *w, int64_t stride, const uint8_t *x, uint8_t *y, int64_t blocks) {
  const uint8_t *p[3];
  UNROLL for (int i = 0; i < 3; i++) p[i] = w + times(stride, 3 * i);
  __m256 sum = _mm256_setzero_ps();
  ROLLED for (; blocks > 0; blocks--) {
    // Of the next eight rows: the hardware prefetcher begins anew with each.
    UNROLL for (int r = 0; r < 8; r++) _mm_prefetch(ROW(r) + times(stride, 8), _MM_HINT_T0);
    scales d = {};
    UNROLL for (int r = 0; r < 8; r++) d[r] = *(const short *)ROW(r);
    const __m256i all = bits == 8 ? sums_q8(p, stride, x) : sums_q4(p, stride, x);
    const __m256 scale = _mm256_broadcast_ss((const float *)(x + (bits == 8 ? SCALE_Q8 : SCALE_Q4)));
    sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(all), _mm256_mul_ps(_mm256_cvtph_ps((__m128i)d), scale), sum);
    UNROLL for (int i = 0; i < 3; i++) {
      p[i] += 2 + 4 * bits;
      OPAQUE(p[i]);
    }
    x += bits == 8 ? BLOCK_Q8 : BLOCK_Q4;
  }
  _mm256_storeu_ps((float *)y, sum);
}

KERNEL avx2intsStoredQ8(const uint8_t *w, int64_t stride, const uint8_t *x, uint8_t *y, int64_t blocks) { stored(8, w, stride, x, y, blocks); }
KERNEL avx2intsStoredQ4(const uint8_t *w, int64_t stride, const uint8_t *x, uint8_t *y, int64_t blocks) { stored(4, w, stride, x, y, blocks); }
