// AVX-512 VNNI: products of rows of blocks, as they are stored, with one token of 8-bit blocks: see
// stored.go. Needs AVX-512 VNNI, BW, DQ and VL.
#include "wide.h"

enum { BLOCK = 40, SCALE = 32, SHIFT = 36 }; // of activations, in bytes: see avx512vnni_int8.c

// ROW is the current block of row r of 8, which begin stride bytes apart. p[i] is row 3i.
#define ROW(r) (p[(r) / 3] + ((r) % 3) * stride)

typedef short scales __attribute__((vector_size(32)));

INLINE __m512i both(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }

// couple adds the words of vectors in each quarter: those of a to elements 0 and 2, those of b to 1 and 3.
INLINE __m512i couple(__m512i a, __m512i b) { return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)); }

// four adds the words of four vectors in each quarter to its elements 0 to 3.
INLINE __m512i four(__m512i *v) {
  const __m512i a = couple(v[0], v[1]), b = couple(v[2], v[3]);
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// sums_q8 returns the sums of N blocks of 8 rows, those of the second in the upper half.
INLINE __m512i sums_q8(int N, const uint8_t *const *p, int64_t stride, const uint8_t *x) {
  const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  const __m512i flip = _mm512_set1_epi8((char)0x80);
  const __m256i first = _mm256_loadu_si256((const __m256i *)x);
  const __m512i in = N == 1 ? _mm512_zextsi256_si512(first) : both(first, _mm256_loadu_si256((const __m256i *)(x + BLOCK)));
  __m512i v[8];
  UNROLL for (int r = 0; r < 8; r++) {
    const __m256i codes = _mm256_loadu_si256((const __m256i *)(ROW(r) + 2));
    const __m512i all = N == 1 ? _mm512_zextsi256_si512(codes) : both(codes, _mm256_loadu_si256((const __m256i *)(ROW(r) + 36)));
    v[r] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_xor_si512(all, flip), in);
  }
  const __m512i a = four(v), b = four(v + 4);
  return _mm512_add_epi32(_mm512_permutex2var_epi64(a, even, b), _mm512_permutex2var_epi64(a, odd, b));
}

INLINE __m128i codes_q4(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(p + 2)); }

INLINE __m256i twice(const uint8_t *p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)); }

INLINE __m512i sums_q4(int N, const uint8_t *const *p, int64_t stride, const uint8_t *x) {
  const __m512i low = _mm512_set1_epi8(15);
  const __m512i in0 = N == 1 ? _mm512_zextsi256_si512(twice(x)) : both(twice(x), twice(x + BLOCK));
  const __m512i in1 = N == 1 ? _mm512_zextsi256_si512(twice(x + 16)) : both(twice(x + 16), twice(x + BLOCK + 16));
  __m512i v[4]; // rows r and r + 4 of each block
  UNROLL for (int r = 0; r < 4; r++) {
    __m512i all = _mm512_zextsi256_si512(_mm256_inserti128_si256(_mm256_castsi128_si256(codes_q4(ROW(r))), codes_q4(ROW(r + 4)), 1));
    if (N == 2) all = _mm512_inserti32x4(_mm512_inserti32x4(all, codes_q4(ROW(r) + 18), 2), codes_q4(ROW(r + 4) + 18), 3);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(all, 4), low);
    v[r] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(all, low), in0), high, in1);
  }
  return four(v);
}

// add adds the products of N blocks of 8 rows to their sums, in the order of the blocks.
INLINE __m256 add(int bits, int N, const uint8_t *const *p, int64_t stride, const uint8_t *x, __m256 sum) {
  const int size = 2 + 4 * bits;
  scales d = {};
  UNROLL for (int r = 0; r < 8; r++) UNROLL for (int i = 0; i < N; i++) d[8 * i + r] = *(const short *)(ROW(r) + i * size);
  const __m512i all = bits == 8 ? sums_q8(N, p, stride, x) : sums_q4(N, p, stride, x);
  const __mmask16 second = 0xff00;
  __m512i shift = _mm512_set1_epi32(*(const int *)(x + SHIFT));
  __m512 scale = _mm512_set1_ps(*(const float *)(x + SCALE));
  if (N == 2) {
    shift = _mm512_mask_set1_epi32(shift, second, *(const int *)(x + BLOCK + SHIFT));
    scale = _mm512_mask_broadcastss_ps(scale, second, _mm_load_ss((const float *)(x + BLOCK + SCALE)));
  }
  const __m512 value = _mm512_cvtepi32_ps(_mm512_add_epi32(all, shift)), by = _mm512_mul_ps(_mm512_cvtph_ps((__m256i)d), scale);
  sum = _mm256_fmadd_ps(_mm512_castps512_ps256(value), _mm512_castps512_ps256(by), sum);
  return N == 1 ? sum : _mm256_fmadd_ps(_mm512_extractf32x8_ps(value, 1), _mm512_extractf32x8_ps(by, 1), sum);
}

INLINE void stored(int bits, const uint8_t *w, int64_t stride, const uint8_t *x, uint8_t *y, int64_t blocks) {
  const uint8_t *p[3];
  UNROLL for (int i = 0; i < 3; i++) p[i] = w + times(stride, 3 * i);
  __m256 sum = _mm256_setzero_ps();
  ROLLED for (; blocks > 1; blocks -= 2) {
    UNROLL for (int r = 0; r < 8; r++) { // of the next eight rows: the hardware prefetcher begins anew with each
      _mm_prefetch(ROW(r) + times(stride, 8), _MM_HINT_T0);
      if (bits == 8) _mm_prefetch(ROW(r) + times(stride, 8) + 64, _MM_HINT_T0);
    }
    sum = add(bits, 2, p, stride, x, sum);
    UNROLL for (int i = 0; i < 3; i++) {
      p[i] += 2 * (2 + 4 * bits);
      OPAQUE(p[i]);
    }
    x += 2 * BLOCK;
  }
  if (blocks > 0) sum = add(bits, 1, p, stride, x, sum);
  _mm256_storeu_ps((float *)y, sum);
}

KERNEL avx512vnniStoredQ8(const uint8_t *w, int64_t stride, const uint8_t *x, uint8_t *y, int64_t blocks) { stored(8, w, stride, x, y, blocks); }
KERNEL avx512vnniStoredQ4(const uint8_t *w, int64_t stride, const uint8_t *x, uint8_t *y, int64_t blocks) { stored(4, w, stride, x, y, blocks); }
