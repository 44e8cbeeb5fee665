// AVX2: products of stored FP8 and MXFP4 weights with a small batch of float32 tokens, see
// minifloat.go. Needs AVX2, FMA and F16C.
#include "common.h"
#include "folds.h"

// Kernels compute one row of each of several streams, ws bytes apart, R at a time. Their scales are
// each bytes apart, one for each chunk of columns. Sums have eight lanes for each row and token.
// Codes are prefetched AHEAD bytes early; with more than two tokens the argument ahead is the
// distance.
enum { AHEAD = DISTANCE(1024) };
#define CODES_ARGS const uint8_t *w, int64_t ws, int64_t rows, const uint8_t *scales, int64_t each, const uint8_t *x, uint8_t *sums, int64_t n, int64_t chunk, uint8_t *scratch, int64_t ahead

// scaled adds the sums of a chunk times its scale to those of a row.
INLINE void scaled(int T, uint8_t *sums, const __m256 *part, __m256 scale) {
  UNROLL for (int t = 0; t < T; t++) {
    float *sum = (float *)(sums + 32 * t);
    _mm256_storeu_ps(sum, _mm256_fmadd_ps(part[t], scale, _mm256_loadu_ps(sum)));
  }
}

#define ROW(r) (w + ((r) == 3 ? ws3 : (r) * ws))

// e4m3: of 32 codes first the even and then the odd ones become float16 numbers that are too small
// by 2^8. They are stored, because widening from memory takes half as many operations. If a code is
// a NaN, the last word of scratch is set, and the results must not be used.
INLINE void e4m3(int R, int T, CODES_ARGS) {
  __m256i bad = _mm256_setzero_si256();
  const __m128i whole = spill(n), part_of = spill(chunk);
  ROLLED for (; rows > 0; rows -= R, OPAQUE(rows)) {
    const uint8_t *scale = scales;
    ROLLED for (int64_t left = reload(whole); left > 0; scale += 4) {
      __m256 part[8];
      UNROLL for (int i = 0; i < R * T; i++) part[i] = _mm256_setzero_ps();
      int64_t i = reload(part_of), ws3 = times(ws, 3);
      i = left < i ? left : i;
      left -= i;
      ROLLED for (; i > 0; i -= 32, OPAQUE(i)) {
        UNROLL for (int r = 0; r < R; r++) {
          OPAQUE(w);
          if (R > 2) OPAQUE(ws3);
          _mm_prefetch(ROW(r) + (T > 2 ? ahead : AHEAD), _MM_HINT_T0);
          const __m256i c = _mm256_loadu_si256((const __m256i *)ROW(r)), mask = _mm256_set1_epi16((short)0xbf80);
          // Adding one sets the highest bit of a code only if all others are set.
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
    const int64_t back_by = reload(whole);
    w += times(ws, R) - back_by, x -= times(back_by, 4 * T), scales += times(each, R), sums += 32 * T * R;
  }
  *(int64_t *)(scratch + 256) |= !_mm256_testz_si256(bad, _mm256_set1_epi8((char)0x80));
}

// eight returns values 8i to 8i+7 of 64, which are bfloat16 in two tables of bytes.
INLINE __m256 eight(__m256i codes, int i) {
  const __m256i high = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, (char)0x80, (char)0xbf, (char)0xbf, (char)0xbf, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0));
  const __m256i low = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0, 0, 0, (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0));
  const __m256i c = _mm256_and_si256(i < 4 ? codes : _mm256_srli_epi16(codes, 4), _mm256_set1_epi8(15));
  const __m256i h = _mm256_shuffle_epi8(high, c), l = _mm256_shuffle_epi8(low, c);
  const __m256i both = i % 4 < 2 ? _mm256_unpacklo_epi8(l, h) : _mm256_unpackhi_epi8(l, h);
  return (__m256)(i % 2 ? _mm256_and_si256(both, _mm256_set1_epi32((int)0xffff0000)) : _mm256_slli_epi32(both, 16));
}

// mxfp4: a chunk is two blocks of 32 columns, one in each half of a vector.
INLINE void mxfp4(int R, int T, CODES_ARGS) {
  volatile int64_t *whole = (volatile int64_t *)scratch;
  *whole = n;
  ROLLED for (; rows > 0; rows -= R, OPAQUE(rows)) {
    const uint8_t *scale = scales;
    ROLLED for (n = *whole; n > 0; n -= 64, scale += 8, OPAQUE(n)) {
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
        UNROLL for (int i = 0; i < 8; i++) {
          OPAQUE(x);
          const __m256 v = eight(codes, i);
          UNROLL for (int t = 0; t < T; t++) part[r * T + t] = _mm256_fmadd_ps(v, _mm256_loadu_ps((const float *)(x + 256 * t + 32 * i)), part[r * T + t]);
        }
      }
      OPAQUE(each);
      UNROLL for (int r = 0; r < R; r++) {
        const __m256 s = _mm256_castpd_ps(_mm256_broadcast_sd((const double *)(scale + (r == 3 ? times(each, 3) : r * each))));
        scaled(T, sums + 32 * T * r, part + T * r, _mm256_permutevar_ps(s, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)));
      }
      w += 32, x += 256 * T;
    }
    const int64_t blocks = (*whole + 32) >> 6;
    w += times(ws, R) - 32 * blocks, x -= times(blocks, 256 * T), scales += times(each, R), sums += 32 * T * R;
  }
}

// With many tokens three rows of a chunk are widened to memory, from VALUES on in scratch, and
// multiplied by four tokens at a time: twelve independent sums hide the latency of the additions.
enum { VALUES = 320 };

// add is acc += a b, and stays in this place of the code, so that the registers suffice.
INLINE void add(__m256 *acc, __m256 a, __m256 b) { __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(*acc) : "x"(a), "x"(b)); }

// pass adds a chunk of n columns to the sums of four of T tokens. The values of each row and token
// are Q consecutive vectors.
INLINE void pass(int Q, int T, int of, const uint8_t *values, const uint8_t *x, uint8_t *sums, const uint8_t *scale, int64_t each, int64_t n) {
  __m256 part[12]; // row r of token t is 4r + t
  UNROLL for (int i = 0; i < 12; i++) part[i] = _mm256_setzero_ps();
  ROLLED for (; n > 0; n -= 8 * Q, OPAQUE(n)) {
    UNROLL for (int q = 0; q < Q; q++) {
      OPAQUE(values), OPAQUE(x);
      __m256 v[3];
      UNROLL for (int r = 0; r < 3; r++) v[r] = _mm256_loadu_ps((const float *)(values + of * r + 32 * q));
      UNROLL for (int t = 0; t < 4; t++) {
        const __m256 in = _mm256_loadu_ps((const float *)(x + 32 * Q * t + 32 * q));
        UNROLL for (int r = 0; r < 3; r++) add(&part[4 * r + t], v[r], in);
      }
    }
    values += 32 * Q, x += 32 * Q * T;
  }
  UNROLL for (int r = 0; r < 3; r++) {
    OPAQUE(each);
    __m256 s;
    if (Q == 4) s = _mm256_broadcast_ss((const float *)(scale + r * each));
    else s = _mm256_permutevar_ps(_mm256_castpd_ps(_mm256_broadcast_sd((const double *)(scale + r * each))), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    UNROLL for (int t = 0; t < 4; t++) {
      float *sum = (float *)(sums + 32 * T * r + 32 * t);
      _mm256_storeu_ps(sum, _mm256_fmadd_ps(part[4 * r + t], s, _mm256_loadu_ps(sum)));
    }
  }
}

// e4m3_many is e4m3 of three rows. Scratch begins with the NaN codes found so far and with values
// that are not needed for a while.
INLINE void e4m3_many(int T, CODES_ARGS) {
  volatile int64_t *kept = (volatile int64_t *)scratch + 4;
  kept[0] = chunk, kept[1] = ahead, kept[2] = each;
  _mm256_storeu_si256((__m256i *)scratch, _mm256_setzero_si256());
  ROLLED for (; n > 0; n = kept[3]) {
    int64_t now = kept[0];
    now = n < now ? n : now;
    kept[3] = n - now;
    ROLLED for (int64_t r = 0; r < 3; r++, OPAQUE(r)) {
      uint8_t *to = scratch + VALUES + 512 * r;
      const int64_t next = kept[1];
      __m256i one = _mm256_set1_epi8(1), mask = _mm256_set1_epi16((short)0xbf80), bad = _mm256_loadu_si256((const __m256i *)scratch);
      __asm__ volatile("" : "+x"(one), "+x"(mask));
      ROLLED for (int64_t i = now; i > 0; i -= 32, OPAQUE(i)) {
        _mm_prefetch(w + next, _MM_HINT_T0);
        const __m256i c = _mm256_loadu_si256((const __m256i *)w);
        bad = _mm256_or_si256(bad, _mm256_xor_si256(c, _mm256_add_epi8(c, one)));
        const __m256i h[2] = {_mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(c, 8), 1), mask), _mm256_and_si256(_mm256_srai_epi16(c, 1), mask)};
        UNROLL for (int q = 0; q < 4; q++)
          _mm256_storeu_ps((float *)to + 8 * q, _mm256_cvtph_ps(q % 2 ? _mm256_extracti128_si256(h[q / 2], 1) : _mm256_castsi256_si128(h[q / 2])));
        w += 32, to += 128;
      }
      _mm256_storeu_si256((__m256i *)scratch, bad);
      w += ws - now;
    }
    OPAQUE(ws);
    w += now - ws - 2 * ws;
    UNROLL for (int t = 0; t < T; t += 4) {
      OPAQUE(now), OPAQUE(x), OPAQUE(sums), OPAQUE(scratch);
      pass(4, T, 512, scratch + VALUES, x + 128 * t, sums + 32 * t, scales, kept[2], now);
    }
    x += times(now, 4 * T), scales += 4;
  }
  *(int64_t *)(scratch + 256) |= !_mm256_testz_si256(_mm256_loadu_si256((const __m256i *)scratch), _mm256_set1_epi8((char)0x80));
}

// mxfp4_many is mxfp4 of three rows.
INLINE void mxfp4_many(int T, CODES_ARGS) {
  ROLLED for (; n > 0; n -= 64, OPAQUE(n)) {
    const uint8_t *from = w;
    uint8_t *to = scratch + VALUES;
    ROLLED for (int r = 0; r < 3; r++) {
      __m256i codes;
      if (n > 32) codes = _mm256_loadu_si256((const __m256i *)from);
      else codes = _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)from));
      _mm_prefetch(from + ahead, _MM_HINT_T0);
      UNROLL for (int i = 0; i < 8; i++) _mm256_storeu_ps((float *)to + 8 * i, eight(codes, i));
      from += ws, to += 256;
    }
    UNROLL for (int t = 0; t < T; t += 4) {
      int64_t now = 64;
      OPAQUE(now), OPAQUE(x), OPAQUE(sums);
      pass(8, T, 256, scratch + VALUES, x + 256 * t, sums + 32 * t, scales, each, now);
    }
    w += 32, x += 256 * T, scales += 8;
  }
}

#define CODES(R, M, T)                                                                                              \
  KERNEL avx2MinifloatE4M3x##R##x##T(CODES_ARGS) { e4m3(R, T, w, ws, rows, scales, each, x, sums, n, chunk, scratch, ahead); } \
  KERNEL avx2MinifloatMXFP4x##M##x##T(CODES_ARGS) { mxfp4(M, T, w, ws, rows, scales, each, x, sums, n, chunk, scratch, ahead); }
CODES(4, 4, 1) CODES(4, 4, 2) CODES(1, 1, 8) CODES(1, 1, 1) CODES(1, 1, 2) CODES(1, 1, 4)

#define MANY(T)                                                                                                              \
  KERNEL avx2MinifloatE4M3x3x##T(CODES_ARGS) { e4m3_many(T, w, ws, rows, scales, each, x, sums, n, chunk, scratch, ahead); } \
  KERNEL avx2MinifloatMXFP4x3x##T(CODES_ARGS) { mxfp4_many(T, w, ws, rows, scales, each, x, sums, n, chunk, scratch, ahead); }
MANY(4) MANY(8)

// Fold adds the lanes of the sums of rows and tokens, which are too small by a factor.
KERNEL avx2MinifloatFold(uint8_t *y, int64_t yr, int64_t ys, const uint8_t *sums, int64_t rows, int64_t tokens, const float *by) {
  ROLLED for (; rows > 0; rows--, OPAQUE(rows)) {
    uint8_t *to = y;
    ROLLED for (int64_t t = tokens; t > 0; t--, OPAQUE(t)) {
      *(float *)to = fold(_mm256_loadu_ps((const float *)sums)) * *by;
      to += ys, sums += 32;
    }
    y += yr;
  }
}

// Powers converts n scales of MXFP4 to float32; n is a multiple of 8.
KERNEL avx2MinifloatPowers(uint8_t *dst, const uint8_t *src, int64_t n) {
  ROLLED for (; n > 0; n -= 8) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)src));
    // Exponent 0 is subnormal, and the last one is a NaN.
    const __m256i ends = _mm256_or_si256(_mm256_cmpeq_epi32(e, _mm256_setzero_si256()), _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255)));
    const __m256i s = _mm256_or_si256(_mm256_slli_epi32(e, 23), _mm256_and_si256(ends, _mm256_set1_epi32(0x400000)));
    _mm256_storeu_si256((__m256i *)dst, s);
    dst += 32, src += 8;
  }
}

// Pack lays n elements of a token out for MXFP4, in whole blocks. Pairs of blocks are step bytes
// apart.
KERNEL avx2MinifloatPack(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) {
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
