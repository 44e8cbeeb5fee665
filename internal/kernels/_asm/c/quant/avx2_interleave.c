// AVX2: interleaves the blocks of 16 rows, a band, and widens them: see interleave.go. Needs AVX2
// and F16C.
#include "common.h"

// multiples_of are multiples of a stride.
INLINE __m256i multiples_of(int64_t stride, int first) {
  const __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
  return _mm256_mullo_epi32(lane, _mm256_set1_epi32((int)stride));
}

INLINE __m256i gather(const uint8_t *src, __m256i at, __m256i m) { return _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), (const int *)src, at, m, 1); }

// ROW is the current block of row r, which begin stride bytes apart. p[i] is row 3i.
#define ROW(r) (p[(r) / 3] + ((r) % 3) * stride)

typedef short scales __attribute__((vector_size(16)));

// begin_band stores the scales of eight rows from row first on.
INLINE void begin_band(uint8_t *dst, const uint8_t *const *p, int64_t stride, int first) {
  scales d = {};
  UNROLL for (int r = 0; r < 8; r++) d[r] = *(const short *)ROW(first + r);
  _mm_storeu_si128((__m128i *)dst, (__m128i)d);
}

// halves transposes the words of four vectors in each half.
INLINE void halves(__m256i v[4]) {
  __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
  __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm256_unpacklo_epi64(a, c), v[1] = _mm256_unpackhi_epi64(a, c);
  v[2] = _mm256_unpacklo_epi64(b, d), v[3] = _mm256_unpackhi_epi64(b, d);
}

// band_q8 interleaves the codes of a block of the eight rows from row first on.
INLINE void band_q8(uint8_t *dst, const uint8_t *const *p, int64_t stride, int first) {
  const __m256i flip = _mm256_set1_epi8((char)0x80);
  __m256i v[8];
  UNROLL for (int i = 0; i < 8; i++) v[i] = _mm256_loadu_si256((const __m256i *)(ROW(first + i) + 2));
  halves(v), halves(v + 4);
  UNROLL for (int j = 0; j < 4; j++) {
    _mm256_storeu_si256((__m256i *)(dst + 64 * j), _mm256_xor_si256(_mm256_permute2x128_si256(v[j], v[4 + j], 0x20), flip));
    _mm256_storeu_si256((__m256i *)(dst + 64 * (4 + j)), _mm256_xor_si256(_mm256_permute2x128_si256(v[j], v[4 + j], 0x31), flip));
  }
}

INLINE void band_q4(uint8_t *dst, const uint8_t *const *p, int64_t stride, int first) {
  __m256i v[4]; // rows i and i + 4
  UNROLL for (int i = 0; i < 4; i++) {
    const __m256i one = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(ROW(first + i) + 2)));
    v[i] = _mm256_inserti128_si256(one, _mm_loadu_si128((const __m128i *)(ROW(first + i + 4) + 2)), 1);
  }
  halves(v);
  UNROLL for (int j = 0; j < 4; j++) _mm256_storeu_si256((__m256i *)(dst + 64 * j), v[j]);
}

INLINE void bands(int bits, uint8_t *dst, const uint8_t *src, int64_t stride, int64_t blocks) {
  const uint8_t *p[6];
  UNROLL for (int i = 0; i < 6; i++) p[i] = src + times(stride, 3 * i);
  ROLLED for (; blocks > 0; blocks--) {
    // Of the next 16 rows: the hardware prefetcher begins anew with each.
    UNROLL for (int r = 0; r < 16; r++) _mm_prefetch(ROW(r) + times(stride, 16), _MM_HINT_T0);
    UNROLL for (int half = 0; half < 2; half++) {
      begin_band(dst + 16 * half, p, stride, 8 * half);
      if (bits == 8) band_q8(dst + 32 + 32 * half, p, stride, 8 * half);
      else band_q4(dst + 32 + 32 * half, p, stride, 8 * half);
    }
    dst += 32 + 64 * bits;
    UNROLL for (int i = 0; i < 6; i++) {
      p[i] += 2 + 4 * bits;
      OPAQUE(p[i]);
    }
  }
}

// Bands interleaves blocks of 16 rows, stride bytes apart.
KERNEL avx2BandsQ8(uint8_t *dst, const uint8_t *src, int64_t stride, int64_t blocks) { bands(8, dst, src, stride, blocks); }
KERNEL avx2BandsQ4(uint8_t *dst, const uint8_t *src, int64_t stride, int64_t blocks) { bands(4, dst, src, stride, blocks); }

// LastBand interleaves blocks of fewer rows, whose codes take size bytes, and adds flip to each code without carry.
KERNEL avx2LastBand(uint8_t *dst, const uint8_t *src, int64_t stride, int64_t rows, int64_t size, int64_t blocks, int64_t flip) {
  const __m256i n = _mm256_set1_epi32((int)rows), lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i m0 = _mm256_cmpgt_epi32(n, lane), m1 = _mm256_cmpgt_epi32(n, _mm256_add_epi32(lane, _mm256_set1_epi32(8)));
  const __m256i at0 = multiples_of(stride, 0), at1 = multiples_of(stride, 8), flips = _mm256_set1_epi8((char)flip);
  ROLLED for (; blocks > 0; blocks--) {
    // The scales are stored with what lies behind them, where codes come next.
    const __m256i scale = _mm256_set1_epi32(0xffff);
    __m256i d = _mm256_packus_epi32(_mm256_and_si256(gather(src, at0, m0), scale), _mm256_and_si256(gather(src, at1, m1), scale));
    d = _mm256_permute4x64_epi64(d, 0xd8);
    _mm_storeu_si128((__m128i *)dst, _mm256_castsi256_si128(d));
    if (rows > 8) _mm_storeu_si128((__m128i *)(dst + 16), _mm256_extracti128_si256(d, 1));
    dst += 2 * rows, src += 2;
    ROLLED for (int64_t left = size; left > 0; left -= 4) {
      _mm256_maskstore_epi32((int *)dst, m0, _mm256_xor_si256(gather(src, at0, m0), flips));
      _mm256_maskstore_epi32((int *)(dst + 32), m1, _mm256_xor_si256(gather(src, at1, m1), flips));
      dst += 4 * rows, src += 4;
    }
  }
}

INLINE __m256 scale(const uint8_t *w) { return _mm256_cvtph_ps(_mm_set1_epi16(*(const short *)w)); }

INLINE void store(uint8_t *dst, int i, __m256i codes, __m256 d) { _mm256_storeu_ps((float *)dst + 8 * i, _mm256_mul_ps(_mm256_cvtepi32_ps(codes), d)); }

// Unband widens one row: blocks begin each bytes apart with scales at w, and codes of four
// columns lie step bytes apart.
KERNEL avx2UnbandQ8(uint8_t *dst, const uint8_t *w, const uint8_t *codes, int64_t step, int64_t each, int64_t blocks) {
  const __m256i at = multiples_of(step, 0);
  ROLLED for (; blocks > 0; blocks--) {
    const __m256 d = scale(w);
    __m256i c = _mm256_xor_si256(_mm256_i32gather_epi32((const int *)codes, at, 1), _mm256_set1_epi8((char)0x80));
    __m128i first = _mm256_castsi256_si128(c), second = _mm256_extracti128_si256(c, 1);
    store(dst, 0, _mm256_cvtepi8_epi32(first), d);
    store(dst, 1, _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(first, first)), d);
    store(dst, 2, _mm256_cvtepi8_epi32(second), d);
    store(dst, 3, _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(second, second)), d);
    dst += 128, w += each, codes += each;
  }
}

KERNEL avx2UnbandQ4(uint8_t *dst, const uint8_t *w, const uint8_t *codes, int64_t step, int64_t each, int64_t blocks) {
  const __m128i at = _mm_mullo_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32((int)step));
  const __m256i zero = _mm256_set1_epi32(8), low = _mm256_set1_epi32(15);
  ROLLED for (; blocks > 0; blocks--) {
    const __m256 d = scale(w);
    __m128i c = _mm_i32gather_epi32((const int *)codes, at, 1);
    __m256i first = _mm256_cvtepu8_epi32(c), second = _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(c, c));
    store(dst, 0, _mm256_sub_epi32(_mm256_and_si256(first, low), zero), d);
    store(dst, 1, _mm256_sub_epi32(_mm256_and_si256(second, low), zero), d);
    store(dst, 2, _mm256_sub_epi32(_mm256_srli_epi32(first, 4), zero), d);
    store(dst, 3, _mm256_sub_epi32(_mm256_srli_epi32(second, 4), zero), d);
    dst += 128, w += each, codes += each;
  }
}
