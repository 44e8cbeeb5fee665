// AVX2: products of FP8 and MXFP4 weights where they lie with a few tokens in float32: see codes.go.
// Needs AVX2, FMA and F16C.
#include "common.h"
#include "folds.h"

// Kernels compute a row of each of some streams, ws bytes apart, R at a time: their scales are each bytes
// apart, one for a chunk of columns, and sums are eight lanes for each row and token. Codes are fetched
// AHEAD bytes early, or where more than two tokens pass pieces of rows, as many as ahead says.
enum { AHEAD = 1024 };
#define CODES_ARGS const uint8_t *w, int64_t ws, int64_t rows, const uint8_t *scales, int64_t each, const uint8_t *x, uint8_t *sums, int64_t n, int64_t chunk, uint8_t *scratch, int64_t ahead

// scaled adds the sums of a chunk times its scale to those of a row.
INLINE void scaled(int T, uint8_t *sums, const __m256 *part, __m256 scale) {
  UNROLL for (int t = 0; t < T; t++) {
    float *sum = (float *)(sums + 32 * t);
    _mm256_storeu_ps(sum, _mm256_fmadd_ps(part[t], scale, _mm256_loadu_ps(sum)));
  }
}

#define ROW(r) (w + ((r) == 3 ? ws3 : (r) * ws))

// e4m3: codes, first the even and then the odd ones of 32, become halves that are too small by 2^8; these are stored, as widening what is in
// memory takes half the work. Where there is a code that is no number the last word of scratch
// is set, and the results are not to be used.
INLINE void e4m3(int R, int T, CODES_ARGS) {
  __m256i bad = _mm256_setzero_si256();
  const __m128i whole = away(n), part_of = away(chunk);
  ROLLED for (; rows > 0; rows -= R, OPAQUE(rows)) {
    const uint8_t *scale = scales;
    ROLLED for (int64_t left = back(whole); left > 0; scale += 4) {
      __m256 part[8];
      UNROLL for (int i = 0; i < R * T; i++) part[i] = _mm256_setzero_ps();
      int64_t i = back(part_of), ws3 = times(ws, 3);
      i = left < i ? left : i;
      left -= i;
      ROLLED for (; i > 0; i -= 32, OPAQUE(i)) {
        UNROLL for (int r = 0; r < R; r++) {
          OPAQUE(w);
          if (R > 2) OPAQUE(ws3);
          _mm_prefetch(ROW(r) + (T > 2 ? ahead : AHEAD), _MM_HINT_T0);
          const __m256i c = _mm256_loadu_si256((const __m256i *)ROW(r)), mask = _mm256_set1_epi16((short)0xbf80);
          // Adding one reaches the highest bit of a code only where all others are set.
          bad = _mm256_or_si256(bad, _mm256_xor_si256(c, _mm256_add_epi8(c, _mm256_set1_epi8(1))));
          _mm256_storeu_si256((__m256i *)(scratch + 64 * r), _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(c, 8), 1), mask));
          _mm256_storeu_si256((__m256i *)(scratch + 64 * r + 32), _mm256_and_si256(_mm256_srai_epi16(c, 1), mask));
          AFTER(w, bad);
        }
        UNROLL for (int q = 0; q < 4; q++) {
          UNROLL for (int r = 0; r < R; r++) {
            OPAQUE(x);
            __m256 v;
            __asm__ volatile("vcvtph2ps %1, %0" : "=x"(v) : "m"(*(const __m128i *)(scratch + 64 * r + 16 * q)));
            UNROLL for (int t = 0; t < T; t++) part[r * T + t] = _mm256_fmadd_ps(v, _mm256_loadu_ps((const float *)(x + 128 * t + 32 * q)), part[r * T + t]);
          }
        }
        w += 32, x += 128 * T;
      }
      OPAQUE(each);
      UNROLL for (int r = 0; r < R; r++) scaled(T, sums + 32 * T * r, part + T * r, _mm256_broadcast_ss((const float *)(scale + (r == 3 ? times(each, 3) : r * each))));
    }
    const int64_t back_by = back(whole);
    w += times(ws, R) - back_by, x -= times(back_by, 4 * T), scales += times(each, R), sums += 32 * T * R;
  }
  *(int64_t *)(scratch + 256) |= !_mm256_testz_si256(bad, _mm256_set1_epi8((char)0x80));
}

// mxfp4: chunks are two blocks of 32 columns, one in each half of a vector.
INLINE void mxfp4(int R, int T, CODES_ARGS) {
  // Values are bfloat16 in two tables of bytes.
  const __m256i high = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, (char)0x80, (char)0xbf, (char)0xbf, (char)0xbf, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0));
  const __m256i low = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0, 0, 0, (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0));
  const __m128i whole = away(n);
  ROLLED for (; rows > 0; rows -= R, OPAQUE(rows)) {
    const uint8_t *scale = scales;
    ROLLED for (n = back(whole); n > 0; n -= 64, scale += 8, OPAQUE(n)) {
      __m256 part[8];
      UNROLL for (int i = 0; i < R * T; i++) part[i] = _mm256_setzero_ps();
      int64_t ws3 = times(ws, 3);
      UNROLL for (int r = 0; r < R; r++) {
        __m256i codes;
        OPAQUE(w);
        if (R > 2) OPAQUE(ws3);
        if (n > 32) codes = _mm256_loadu_si256((const __m256i *)ROW(r));
        else codes = _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)ROW(r)));
        _mm_prefetch(ROW(r) + (T > 2 ? ahead : AHEAD), _MM_HINT_T0);
        UNROLL for (int odd = 0; odd < 2; odd++) {
          __m256i c = _mm256_and_si256(odd ? _mm256_srli_epi16(codes, 4) : codes, _mm256_set1_epi8(15));
          const __m256i h = _mm256_shuffle_epi8(high, c), l = _mm256_shuffle_epi8(low, c);
          UNROLL for (int i = 0; i < 4; i++) {
            OPAQUE(x);
            const __m256i both = i < 2 ? _mm256_unpacklo_epi8(l, h) : _mm256_unpackhi_epi8(l, h);
            const __m256 v = (__m256)(i % 2 ? _mm256_and_si256(both, _mm256_set1_epi32((int)0xffff0000)) : _mm256_slli_epi32(both, 16));
            UNROLL for (int t = 0; t < T; t++) part[r * T + t] = _mm256_fmadd_ps(v, _mm256_loadu_ps((const float *)(x + 256 * t + 128 * odd + 32 * i)), part[r * T + t]);
          }
        }
      }
      OPAQUE(each);
      UNROLL for (int r = 0; r < R; r++) {
        const __m256 s = _mm256_castpd_ps(_mm256_broadcast_sd((const double *)(scale + (r == 3 ? times(each, 3) : r * each))));
        scaled(T, sums + 32 * T * r, part + T * r, _mm256_permutevar_ps(s, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)));
      }
      w += 32, x += 256 * T;
    }
    const int64_t blocks = (back(whole) + 32) >> 6;
    w += times(ws, R) - 32 * blocks, x -= times(blocks, 256 * T), scales += times(each, R), sums += 32 * T * R;
  }
}

#define CODES(R, M, T)                                                                                              \
  KERNEL avx2CodesE4M3x##R##x##T(CODES_ARGS) { e4m3(R, T, w, ws, rows, scales, each, x, sums, n, chunk, scratch, ahead); } \
  KERNEL avx2CodesMXFP4x##M##x##T(CODES_ARGS) { mxfp4(M, T, w, ws, rows, scales, each, x, sums, n, chunk, scratch, ahead); }
CODES(4, 4, 1) CODES(4, 4, 2) CODES(2, 2, 4) CODES(1, 1, 8) CODES(1, 1, 1) CODES(1, 1, 2) CODES(1, 1, 4)

// Fold adds the lanes of the sums of rows and tokens, which are too small by a factor.
KERNEL avx2CodesFold(uint8_t *y, int64_t yr, int64_t ys, const uint8_t *sums, int64_t rows, int64_t tokens, const float *by) {
  ROLLED for (; rows > 0; rows--, OPAQUE(rows)) {
    uint8_t *to = y;
    ROLLED for (int64_t t = tokens; t > 0; t--, OPAQUE(t)) {
      *(float *)to = fold(_mm256_loadu_ps((const float *)sums)) * *by;
      to += ys, sums += 32;
    }
    y += yr;
  }
}

// Powers makes floats of n scales of MXFP4, a multiple of 8.
KERNEL avx2CodesPowers(uint8_t *dst, const uint8_t *src, int64_t n) {
  ROLLED for (; n > 0; n -= 8) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)src));
    // The first is no normal number, the last is none.
    const __m256i ends = _mm256_or_si256(_mm256_cmpeq_epi32(e, _mm256_setzero_si256()), _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255)));
    const __m256i s = _mm256_or_si256(_mm256_slli_epi32(e, 23), _mm256_and_si256(ends, _mm256_set1_epi32(0x400000)));
    _mm256_storeu_si256((__m256i *)dst, s);
    dst += 32, src += 8;
  }
}

// Pack lays n elements of a token out for MXFP4, whole blocks, step bytes from pair of blocks to pair.
KERNEL avx2CodesPack(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) {
  ROLLED for (; n > 0; n -= 64, OPAQUE(n)) {
    UNROLL for (int h = 0; h < 2; h++) { // columns 16h to 16h+15 of both blocks
      __m256 v[4];
      UNROLL for (int i = 0; i < 4; i++) {
        const float *from = (const float *)src + 16 * h + 4 * i;
        v[i] = _mm256_zextps128_ps256(_mm_loadu_ps(from));
        if (n > 32) v[i] = _mm256_insertf128_ps(v[i], _mm_loadu_ps(from + 32), 1);
      }
      const __m256 a = _mm256_unpacklo_ps(v[0], v[1]), b = _mm256_unpackhi_ps(v[0], v[1]);
      const __m256 c = _mm256_unpacklo_ps(v[2], v[3]), d = _mm256_unpackhi_ps(v[2], v[3]);
      // Column 4i+j of v[i] goes to lane i of vector j.
      const __m256 out[4] = {_mm256_shuffle_ps(a, c, 0x44), _mm256_shuffle_ps(a, c, 0xee), _mm256_shuffle_ps(b, d, 0x44), _mm256_shuffle_ps(b, d, 0xee)};
      UNROLL for (int j = 0; j < 4; j++) _mm256_storeu_ps((float *)dst + 32 * (j % 2) + 16 * h + 8 * (j / 2), out[j]);
    }
    dst += step, src += 256;
  }
}
