// AVX2: queries of one token with paged keys and values, see pages.go. Needs AVX2, FMA and F16C.
#include "common.h"

enum { PAGE = 16 }; // tokens
enum { Q8 = F32 + 1 };

// DONE makes the compiler compute v here: there are too few registers to put it off.
#define DONE(v) ({ __asm__ volatile("" : "+x"(v)); })

// eight_of is one element, or for q8_0 the scale, of each of eight rows.
INLINE __m256 eight_of(int f, const uint8_t *w, int64_t ws) {
#define NEXT(v, bits, i) (w += ws, OPAQUE(w), v = _mm_insert_epi##bits(v, *(const int##bits##_t *)w, i))
  if (f == F32) {
    __m128i a = _mm_cvtsi32_si128(*(const int *)w);
    NEXT(a, 32, 1), NEXT(a, 32, 2), NEXT(a, 32, 3);
    w += ws, OPAQUE(w);
    __m128i b = _mm_cvtsi32_si128(*(const int *)w);
    NEXT(b, 32, 1), NEXT(b, 32, 2), NEXT(b, 32, 3);
    return (__m256)_mm256_set_m128i(b, a);
  }
  __m128i v = _mm_set1_epi16(*(const short *)w);
  DONE(v); // as a vector, not by way of a register
  NEXT(v, 16, 1), NEXT(v, 16, 2), NEXT(v, 16, 3), NEXT(v, 16, 4), NEXT(v, 16, 5), NEXT(v, 16, 6), NEXT(v, 16, 7);
#undef NEXT
  return f == BF16 ? (__m256)_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16) : _mm256_cvtph_ps(v);
}

// words loads 16 bytes of eight rows and transposes them: lane r of v[i] is word i of row r.
INLINE void words(__m256i v[4], const uint8_t *w, int64_t ws) {
  UNROLL for (int r = 0; r < 4; r++) {
    if (r > 0) OPAQUE(w);
    v[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)w)), _mm_loadu_si128((const __m128i *)(w + 4 * ws)), 1);
    w += ws;
  }
  const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
  const __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm256_unpacklo_epi64(a, c), v[1] = _mm256_unpackhi_epi64(a, c);
  v[2] = _mm256_unpacklo_epi64(b, d), v[3] = _mm256_unpackhi_epi64(b, d);
  UNROLL for (int i = 0; i < 4; i++) DONE(v[i]);
}

// add is acc += a b, and stays in this place of the code: the compiler would otherwise move sums
// between registers, and eight of them would not fit.
INLINE void add(__m256 *acc, __m256 a, __m256 b) { __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(*acc) : "x"(a), "x"(b)); }

// ADD adds the products of H queries with a channel of eight keys.
#define ADD(e)                                                                                            \
  do {                                                                                                    \
    __m256 value = (e);                                                                                   \
    DONE(value);                                                                                          \
    UNROLL for (int h = 0; h < H; h++) add(&acc[h], value, _mm256_broadcast_ss((const float *)q + h)); \
    q += 4 * H;                                                                                           \
    OPAQUE(q);                                                                                            \
  } while (0)

// score sets y[h][j] to the products of H queries with 8 keys, each summed in ascending order of
// the channels. Channel c of query h is at q[c H + h].
INLINE void score(int f, int H, uint8_t *y, int64_t ys, const uint8_t *q, const uint8_t *w, int64_t ws, int64_t dim) {
  __m256 acc[8];
  UNROLL for (int h = 0; h < H; h++) acc[h] = _mm256_setzero_ps();
  const int step = f == F32 ? 4 : 8;
  ROLLED for (; f != Q8 && dim >= step; dim -= step, OPAQUE(dim)) {
    __m256i v[4];
    words(v, w, ws);
    w += 16;
    UNROLL for (int i = 0; i < 4; i++) {
      if (f == BF16) {
        ADD((__m256)_mm256_slli_epi32(v[i], 16));
        ADD((__m256)_mm256_and_si256(v[i], _mm256_set1_epi32((int)0xffff0000)));
      } else {
        ADD((__m256)v[i]);
      }
    }
  }
  ROLLED for (; f != Q8 && dim > 0; dim--, OPAQUE(dim)) {
    ADD(eight_of(f, w, ws));
    w += size_of(f);
  }
  ROLLED for (; f == Q8 && dim > 0; dim -= 32, OPAQUE(dim)) {
    const __m256 scale = eight_of(Q8, w, ws);
    w += 2;
    UNROLL for (int half = 0; half < 2; half++) {
      __m256i v[4];
      words(v, w, ws);
      w += 16;
      UNROLL for (int i = 0; i < 4; i++) {
        ADD(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(v[i], 24), 24)), scale));
        ADD(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(v[i], 16), 24)), scale));
        ADD(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(v[i], 8), 24)), scale));
        ADD(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(v[i], 24)), scale));
      }
    }
  }
  UNROLL for (int h = 0; h < H; h++) {
    _mm256_storeu_ps((float *)y, acc[h]);
    y += ys;
    OPAQUE(y);
  }
}

#define SCORE_ARGS uint8_t *y, int64_t ys, const uint8_t *q, const uint8_t *w, const int32_t *pages, int64_t ps, int64_t ws, int64_t dim, int64_t count
INLINE void scores(int f, int H, SCORE_ARGS) {
  ROLLED for (count *= 2; count > 0; count--, OPAQUE(count)) {
    // The keys of an odd half follow the first eight.
    score(f, H, y, ys, q, w + *pages * ps + (count % 2 ? times(ws, 8) : 0), ws, dim);
    y += 32, pages += count % 2;
  }
}

#define SCORES(F, H) \
  KERNEL avx2Scores##F##x##H(SCORE_ARGS) { scores(F, H, y, ys, q, w, pages, ps, ws, dim, count); }
SCORES(BF16, 1) SCORES(BF16, 2) SCORES(BF16, 4) SCORES(BF16, 8)
SCORES(F32, 1) SCORES(F32, 2) SCORES(F32, 4) SCORES(F32, 8)
SCORES(Q8, 1) SCORES(Q8, 2) SCORES(Q8, 4) SCORES(Q8, 8)

// eight are columns 8 i to 8 i + 7 of a row.
INLINE __m256 eight(int f, const uint8_t *v, int i) {
  if (f == F32) return _mm256_loadu_ps((const float *)v + 8 * i);
  return (__m256)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)v + i)), 16);
}

// quarter is quarter i of a block of q8_0.
INLINE __m256 quarter(const uint8_t *block, int i, __m256 scale) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(block + 2 + 8 * i)))), scale);
}

#define WEIGH_ARGS uint8_t *y, int64_t ys, const uint8_t *p, int64_t ss, const uint8_t *w, const int32_t *pages, int64_t ps, int64_t ws, int64_t keys, int64_t cols

// weigh adds y[h][c] += sum over j of p[h][j] v[j][c], in ascending order of the keys, for H
// queries and C vectors of columns, or one column where C is 0. Those of q8_0 are quarters of
// blocks, from quarter first on. cols is for those of AVX-512.
INLINE void weigh(int f, int H, int C, int first, WEIGH_ARGS) {
  const int vectors = C ? C : 1;
  __m256 acc[4][8];
  uint8_t *out = y;
  UNROLL for (int h = 0; h < H; h++) {
    UNROLL for (int c = 0; c < vectors; c++) acc[h][c] = C ? _mm256_loadu_ps((const float *)out + 8 * c) : _mm256_broadcast_ss((const float *)out);
    out += ys;
    OPAQUE(out);
  }
  ROLLED while (keys > 0) {
    const uint8_t *v = w + *pages * ps;
    int64_t n = PAGE < keys ? PAGE : keys;
    keys -= PAGE, pages++;
    ROLLED for (; n > 0; n--, OPAQUE(n)) {
      OPAQUE(p), OPAQUE(v);
      const uint8_t *last = p + ss;
      if (H > 3) OPAQUE(last);
      __m256 scale = _mm256_setzero_ps(), e[8];
      UNROLL for (int c = 0; c < vectors; c++) {
        const uint8_t *block = v + c / 4 * 34;
        if (f == Q8 && c % 4 == 0) scale = _mm256_cvtph_ps(_mm_set1_epi16(*(const short *)block));
        if (f == Q8) e[c] = quarter(block, first + c % 4, scale);
        else e[c] = C ? eight(f, v, c) : f == F32 ? _mm256_broadcast_ss((const float *)v) : (__m256)_mm256_slli_epi32(_mm256_set1_epi16(*(const short *)v), 16);
        if (H == 1) add(&acc[0][c], e[c], _mm256_broadcast_ss((const float *)p));
      }
      UNROLL for (int h = 0; H > 1 && h < H; h++) {
        const __m256 weight = _mm256_broadcast_ss((const float *)(h == 3 ? last + 2 * ss : p + h * ss));
        UNROLL for (int c = 0; c < vectors; c++) add(&acc[h][c], e[c], weight);
      }
      v += ws, p += 4;
    }
  }
  UNROLL for (int h = 0; h < H; h++) {
    UNROLL for (int c = 0; c < vectors; c++) {
      if (C) _mm256_storeu_ps((float *)y + 8 * c, acc[h][c]);
      else *(float *)y = _mm256_cvtss_f32(acc[h][c]);
    }
    y += ys;
    OPAQUE(y);
  }
}

#define WEIGH(F, H, N, C, FIRST) \
  KERNEL avx2Weigh##F##x##H##N(WEIGH_ARGS) { weigh(F, H, C, FIRST, y, ys, p, ss, w, pages, ps, ws, keys, cols); }
WEIGH(BF16, 1, by64, 8, 0) WEIGH(BF16, 2, by32, 4, 0) WEIGH(BF16, 4, by16, 2, 0)
WEIGH(BF16, 1, by8, 1, 0) WEIGH(BF16, 2, by8, 1, 0) WEIGH(BF16, 4, by8, 1, 0)
WEIGH(BF16, 1, by1, 0, 0) WEIGH(BF16, 2, by1, 0, 0) WEIGH(BF16, 4, by1, 0, 0)
WEIGH(F32, 1, by64, 8, 0) WEIGH(F32, 2, by32, 4, 0) WEIGH(F32, 4, by16, 2, 0)
WEIGH(F32, 1, by8, 1, 0) WEIGH(F32, 2, by8, 1, 0) WEIGH(F32, 4, by8, 1, 0)
WEIGH(F32, 1, by1, 0, 0) WEIGH(F32, 2, by1, 0, 0) WEIGH(F32, 4, by1, 0, 0)
WEIGH(Q8, 1, by64, 8, 0) WEIGH(Q8, 1, by32, 4, 0) WEIGH(Q8, 2, by32, 4, 0)
WEIGH(Q8, 4, by16, 2, 0) WEIGH(Q8, 4, next16, 2, 2)
