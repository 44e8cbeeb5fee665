// Products of rows of GGUF blocks with tokens of 8-bit blocks, see qgemm/rows.go. Included after common.h.
#include "ggml.h"
#include "folds.h"

// 256 columns of a token: signed codes, eight scales, eight sums of codes times their scale, and 16 sums of
// codes as 16-bit words.
enum { SCALES = 256, SUMS = 288, SUMS16 = 320, STEP = 352 };

// AHEAD is the distance of the prefetch from a block of R rows, which the caller spreads over those of a unit: the same
// block of the unit behind them. With AVX2 there are too few registers, and the distance is one in the row.
#ifdef __AVX512VNNI__
#define AHEAD times(ws, R)
#else
#define AHEAD DISTANCE(1024)
#endif

// dot returns the products of codes, four to a lane. Signs of codes are moved to x. No sum of two products leaves 16
// bits.
INLINE __m256i dot(int f, __m256i codes, __m256i x) {
  if (has_signs(f)) x = _mm256_sign_epi8(x, codes), codes = _mm256_abs_epi8(codes);
#ifdef __AVX512VNNI__
  return _mm256_dpbusd_epi32(_mm256_setzero_si256(), codes, x);
#else
  return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1));
#endif
}

INLINE __m256 product(int f, const uint8_t *b, int g, const uint8_t *x, const uint8_t *points) {
  return _mm256_cvtepi32_ps(dot(f, codes_of(f, b, g, points), load32(x)));
}

INLINE __m256 every(const uint8_t *p) { return _mm256_broadcast_ss((const float *)p); }
INLINE __m256 eight_at(const uint8_t *p) { return _mm256_loadu_ps((const float *)p); }

// A total is the sums of a row: of products, and of least values.
struct total { __m256 sum, least; };

// add32 adds a block of 32 columns. halves are the values of all float16, which MX4 does not have.
INLINE void add32(int f, struct total *t, const uint8_t *b, const uint8_t *x, const uint8_t *scale, const uint8_t *halves) {
  const __m256 own_scale = f == MX4 ? power(b) : every(halves + 4 * (uint64_t)two(b));
  t->sum = _mm256_fmadd_ps(_mm256_mul_ps(product(f, b, 0, x, halves), every(scale)), own_scale, t->sum);
  if (has_signs(f)) return;
  const __m128 m = _mm_load_ss((const float *)(halves + 4 * (uint64_t)two(f == Q5_0 ? b : b + 2)));
  const __m128 own = f == Q5_0 ? _mm_mul_ss(m, _mm_set_ss((float)-zero_of(f))) : m;
  t->least = _mm256_zextps128_ps256(_mm_fmadd_ss(own, _mm_load_ss((const float *)(scale + SUMS - SCALES)), _mm256_castps256_ps128(t->least)));
}

// lanes has element 2 g of v in its low half and element 2 g + 1 in its high half.
INLINE __m256 lanes(__m256 v, int g) { return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(2 * g, 2 * g, 2 * g, 2 * g, 2 * g + 1, 2 * g + 1, 2 * g + 1, 2 * g + 1)); }

// add_parts adds a block of 64 or 128 columns.
INLINE void add_parts(int f, struct total *t, const uint8_t *b, const uint8_t *x, const uint8_t *scale, const uint8_t *halves) {
  const __m256 own = f == NV4 ? scales4(b) : every(halves + 4 * (uint64_t)two(b));
  UNROLL for (int g = 0; g < parts(f); g++) {
    const __m256 v = _mm256_mul_ps(product(f, b, g, x + 32 * g, halves), every(scale + 4 * g));
    t->sum = _mm256_fmadd_ps(v, f == NV4 ? lanes(own, g) : own, t->sum);
    AFTER(b, t->sum);
  }
  if (f == NV4) return;
  const uint8_t *sums = scale + SUMS - SCALES;
  const __m128 s = f == Q1_0 ? _mm_loadu_ps((const float *)sums) : _mm_castpd_ps(_mm_load_sd((const double *)sums));
  t->least = _mm256_zextps128_ps256(_mm_fnmadd_ps(_mm256_castps256_ps128(own), s, _mm256_castps256_ps128(t->least)));
}

INLINE __m256 lane(__m256 v, int i) { return _mm256_permutevar8x32_ps(v, _mm256_set1_epi32(i)); }

#ifdef __AVX512VBMI__
// EACH is eight bytes of v.
#define EACH(v) ((v) * (int64_t)0x0101010101010101)

// looked_up are the bytes of a table of 256 with the numbers in i.
INLINE __m512i looked_up(const uint8_t *table, __m512i i) {
  const __m512i *t = (const __m512i *)table;
  const __m512i low = _mm512_permutex2var_epi8(_mm512_loadu_si512(t), i, _mm512_loadu_si512(t + 1));
  const __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(t + 2), i, _mm512_loadu_si512(t + 3));
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(i), low, high);
}

// packed_bytes are the bytes of the 64 points of block b with the numbers in i, whose ninth bits IQ3_S has elsewhere.
INLINE __m512i packed_bytes(int f, const uint8_t *b, const uint8_t *table, __m512i i) {
  const __m512i low = looked_up(table, i);
  if (f != IQ3_S) return low;
  return _mm512_mask_blend_epi8((__mmask64)all8(b + 66), low, looked_up(table + 256, i));
}

// all_signs are the signs of 256 columns, a bit each, in the low half. IQ2_S and IQ3_S have them so. Others have seven bits
// for eight columns. An eighth bit, which table adds, makes their number even.
INLINE __m512i all_signs(int f, const uint8_t *b, const uint8_t *table) {
  if (f == IQ2_S || f == IQ3_S) return _mm512_castsi256_si512(load32(b + (f == IQ2_S ? 34 : 74)));
  const __m512i first = _mm512_loadu_si512(table), second = _mm512_loadu_si512(table + 64);
  if (f == IQ2_XS) {
    const __m256i sevens = _mm512_cvtepi16_epi8(_mm512_srli_epi16(_mm512_loadu_si512(b + 2), 9));
    return _mm512_permutex2var_epi8(first, _mm512_castsi256_si512(sevens), second);
  }
  const __m512i at = _mm512_set1_epi64(f == IQ3_XXS ? 0x352e2720150e0700 : 0x352e2720352e2720);
  const __m512i v = f == IQ3_XXS ? _mm512_castsi256_si512(load32(b + 66)) : _mm512_loadu_si512(b + 2);
  const __m512i all = _mm512_permutex2var_epi8(first, _mm512_multishift_epi64_epi8(at, v), second);
  return f == IQ3_XXS ? all : _mm512_castsi256_si512(_mm512_cvtepi64_epi32(all));
}

// dots_of are the products of 64 codes with columns 64 i and on of x, whose signs change where signs say so.
INLINE __m512 dots_of(__m512i codes, __m512i signs, const uint8_t *x, int i) {
  const __m512i eighth = _mm512_setr_epi64(EACH(0), EACH(1), EACH(2), EACH(3), EACH(4), EACH(5), EACH(6), EACH(7));
  const __m512i own = _mm512_permutexvar_epi8(_mm512_add_epi8(eighth, _mm512_set1_epi8((char)(8 * i))), signs), v = _mm512_loadu_si512(x + 64 * i);
  const __m512i with_signs = _mm512_mask_sub_epi8(v, _mm512_test_epi8_mask(own, _mm512_set1_epi64((int64_t)0x8040201008040201)), _mm512_setzero_si512(), v);
  return _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, with_signs));
}

// add_packed_points is add_points for IQ2_XXS, IQ3_XXS and IQ3_S, whose points are 16 bits of a table: the first bytes of
// all points, the second ones, the values of 64 codes, of which the low two or four bits count, and signs for seven bits.
INLINE void add_packed_points(int f, struct total *t, const uint8_t *b, const uint8_t *x, const uint8_t *table) {
  const int three = f != IQ2_XXS, count = f == IQ3_S ? 512 : 256;
  const __m256 both = _mm256_mul_ps(scales32(f, b).scale, eight_at(x + SCALES));
  const __m512i numbers = _mm512_loadu_si512(b + 2), first = packed_bytes(f, b, table, numbers), second = packed_bytes(f, b, table + count, numbers);
  // The bytes of two points of 4 columns, or of one of 8, and where their codes begin.
#define PICK(a, b, c, d, e, f, g, h) _mm512_setr_epi64(EACH(a) + by, EACH(b) + by, EACH(c) + by, EACH(d) + by, EACH(e) + by, EACH(f) + by, EACH(g) + by, EACH(h) + by)
  const int64_t by = three ? 0x41014000 : 0x4000; // bytes of second have numbers from 64 on
  const __m512i pick = three ? PICK(0, 2, 4, 6, 8, 10, 12, 14) : PICK(0, 1, 2, 3, 8, 9, 10, 11);
#undef PICK
  const __m512i shifts = _mm512_set1_epi64(three ? 0x1c1814100c080400 : 0x0e0c0a0806040200);
  const __m512i values = _mm512_loadu_si512(table + 2 * count);
  const __m512i signs = all_signs(f, b, table + 2 * count + 64);
  UNROLL for (int i = 0; i < 4; i++) {
    const __m512i two = _mm512_permutex2var_epi8(first, _mm512_add_epi8(pick, _mm512_set1_epi8((char)(16 * i))), second);
    const __m512i codes = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(shifts, two), values);
    const __m512 sums = dots_of(codes, signs, x, i);
    t->sum = _mm256_fmadd_ps(_mm512_castps512_ps256(sums), lane(both, 2 * i), t->sum);
    t->sum = _mm256_fmadd_ps(_mm512_extractf32x8_ps(sums, 1), lane(both, 2 * i + 1), t->sum);
    AFTER(x, t->sum);
  }
}

// looked_up_words are the words of a table of count with the numbers in i, of which higher bits do not count.
INLINE __m512i looked_up_words(const uint8_t *table, int count, __m512i i) {
  __m512i v[16];
  UNROLL for (int j = 0; j < count / 64; j++) {
    v[j] = _mm512_permutex2var_epi16(_mm512_loadu_si512(table + 128 * j), i, _mm512_loadu_si512(table + 128 * j + 64));
    // Two of as many words each become one of twice as many as soon as both are there, which keeps few registers.
    UNROLL for (int size = 1; size < count / 64; size *= 2) {
      if ((j + 1) % (2 * size) != 0) continue;
      const int at = j + 1 - 2 * size;
      v[at] = _mm512_mask_blend_epi16(_mm512_test_epi16_mask(i, _mm512_set1_epi16((short)(64 * size))), v[at], v[at + size]);
    }
  }
  return v[0];
}

// numbers_of_words are the numbers of the 32 points of block b of IQ2_XS or IQ2_S, with other bits above them.
INLINE __m512i numbers_of_words(int f, const uint8_t *b) {
  if (f == IQ2_XS) return _mm512_loadu_si512(b + 2);
  const __m512i two_each = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(b + 66)));
  const __m512i high = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x0006000400020000), two_each);
  return _mm512_or_si512(_mm512_cvtepu8_epi16(load32(b + 2)), _mm512_slli_epi16(high, 8));
}

// add_word_points is add_points for IQ2_XS and IQ2_S, whose points are words of a table. The values of 64 codes, of which
// the low two bits count, and signs for seven bits are behind them.
INLINE void add_word_points(int f, struct total *t, const uint8_t *b, const uint8_t *x, const uint8_t *table) {
  const int count = f == IQ2_XS ? 512 : 1024;
  const __m512i points = looked_up_words(table, count, numbers_of_words(f, b)), values = _mm512_loadu_si512(table + 2 * count);
  const __m512i signs = all_signs(f, b, table + 2 * count + 64);
  const __m512 in = _mm512_castps256_ps512(eight_at(x + SCALES));
  const __m512 own = _mm512_mul_ps(_mm512_broadcast_f32x8(scale16(f, b)), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales16(f, b))));
  const __m512i groups = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1), halves = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const __m512i pick = _mm512_setr_epi64(0x100, 0x302, 0x504, 0x706, 0x908, 0xb0a, 0xd0c, 0xf0e);
  UNROLL for (int i = 0; i < 4; i++) {
    const __m512i each = _mm512_permutexvar_epi8(_mm512_add_epi8(pick, _mm512_set1_epi8((char)(16 * i))), points);
    const __m512i codes = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x0e0c0a0806040200), each), values);
    const __m512 sums = _mm512_mul_ps(dots_of(codes, signs, x, i), _mm512_permutexvar_ps(_mm512_add_epi32(groups, _mm512_set1_epi32(2 * i)), in));
    const __m512 by = _mm512_permutexvar_ps(_mm512_add_epi32(halves, _mm512_set1_epi32(4 * i)), own);
    t->sum = _mm256_fmadd_ps(_mm512_castps512_ps256(sums), _mm512_castps512_ps256(by), t->sum);
    t->sum = _mm256_fmadd_ps(_mm512_extractf32x8_ps(sums, 1), _mm512_extractf32x8_ps(by, 1), t->sum);
    AFTER(x, t->sum);
  }
}
#endif

// add_points adds a block of 256 columns whose codes are numbers of points. Its loops are not unrolled: to look points up
// takes most of the time and of the code.
INLINE void add_points(int f, struct total *t, const uint8_t *b, const uint8_t *x, const uint8_t *points) {
#ifdef __AVX512VBMI__
  if (f == IQ2_XS || f == IQ2_S) add_word_points(f, t, b, x, points);
  else add_packed_points(f, t, b, x, points);
  return;
#endif
  const __m256 scales = eight_at(x + SCALES);
  if (!by16(f)) {
    const __m256 both = _mm256_mul_ps(scales32(f, b).scale, scales);
    ROLLED for (int64_t g = 0; g < 8; g++) t->sum = _mm256_fmadd_ps(product(f, b, g, x + 32 * g, points), lane(both, (int)g), t->sum);
    return;
  }
  UNROLL for (int half = 0; half < 2; half++) {
    AFTER(b, t->sum);
    __m256 own = _mm256_mul_ps(scale16(f, b), half ? high8(scales16(f, b)) : low8(scales16(f, b)));
    ROLLED for (int64_t g = 4 * half; g < 4 * half + 4; g++) {
      const __m256 v = _mm256_mul_ps(product(f, b, g, x + 32 * g, points), every(x + SCALES + 4 * g));
      t->sum = _mm256_fmadd_ps(v, lanes(own, 0), t->sum);
      own = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(own), 0x39));
    }
  }
}

// add256 adds a block of 256 columns.
INLINE void add256(int f, struct total *t, const uint8_t *b, const uint8_t *x, const uint8_t *points) {
  if (of_points(f)) {
    add_points(f, t, b, x, points);
    return;
  }
  const __m256 scales = eight_at(x + SCALES);
  if (!by16(f)) {
    const struct pair p = scales32(f, b);
    const __m256 both = _mm256_mul_ps(p.scale, scales);
    UNROLL for (int g = 0; g < 8; g++) {
      t->sum = _mm256_fmadd_ps(product(f, b, g, x + 32 * g, points), lane(both, g), t->sum);
      AFTER(b, t->sum); // keeps the compiler from doing all loads first
    }
    if (has_least(f)) t->least = _mm256_fnmadd_ps(p.least, eight_at(x + SUMS), t->least);
    return;
  }
  const __m128i s = scales16(f, b);
  const __m256 d = scale16(f, b), low = _mm256_mul_ps(d, low8(s)), high = _mm256_mul_ps(d, high8(s));
  UNROLL for (int g = 0; g < 8; g++) {
    const __m256 v = _mm256_mul_ps(product(f, b, g, x + 32 * g, points), every(x + SCALES + 4 * g));
    t->sum = _mm256_fmadd_ps(v, lanes(g < 4 ? low : high, g % 4), t->sum);
    AFTER(b, t->sum);
  }
  if (has_signs(f)) return;
  __m128i m = s;
  __m256 by = _mm256_mul_ps(d, _mm256_set1_ps((float)zero_of(f)));
  if (f == Q2_K) {
    m = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128((const __m128i *)b), 4), _mm_set1_epi8(15));
    by = half_at(b + 82);
  }
  const __m256 sums = _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_cvtepi8_epi16(m), load32(x + SUMS16)));
  t->least = _mm256_fnmadd_ps(sums, _mm256_mul_ps(by, scales), t->least);
}

// mul_rows computes R rows, ws bytes apart, for one token. Its sums are y, ys bytes apart. It reads R streams at once:
// one row's chain of additions would be the limit. table has the values of all float16, or points.
INLINE void mul_rows(int f, int R, const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t ys, int64_t blocks, const uint8_t *table) {
  const int size = size_of_block(f);
  struct total t[4];
  UNROLL for (int r = 0; r < R; r++) t[r].sum = t[r].least = _mm256_setzero_ps();
  const uint8_t *w3 = w + times(ws, R > 3 ? 3 : 0);
  while (blocks > 0) {
    if (of256(f)) {
      UNROLL for (int r = 0; r < R; r++) {
        const uint8_t *b = r == 3 ? w3 : w + r * ws;
        UNROLL for (int i = 0; i < (size + 63) / 64; i++) _mm_prefetch(b + AHEAD + 64 * i, _MM_HINT_T0);
        add256(f, &t[r], b, x, table);
        AFTER(x, t[r].least), AFTER(w, t[r].least), AFTER(w3, t[r].least);
      }
      w += size, w3 += size, x += STEP, blocks--;
      OPAQUE(w), OPAQUE(w3), OPAQUE(x);
      continue;
    }
    const uint8_t *scale = x + SCALES;
    const int n = parts(f);
    ROLLED for (int64_t some = blocks < 8 / n ? blocks : 8 / n; some > 0; some--) {
      UNROLL for (int r = 0; r < R; r++) {
        const uint8_t *b = r == 3 ? w3 : w + r * ws;
        _mm_prefetch(b + AHEAD, _MM_HINT_T0);
        if (n > 1) add_parts(f, &t[r], b, x, scale, table);
        else add32(f, &t[r], b, x, scale, table);
        AFTER(x, t[r].sum), AFTER(w, t[r].sum), AFTER(w3, t[r].sum), AFTER(scale, t[r].sum);
      }
      w += size, w3 += size, x += 32 * n, scale += 4 * n;
      OPAQUE(w), OPAQUE(w3), OPAQUE(x), OPAQUE(scale);
    }
    x += STEP - 256, blocks -= 8 / n;
  }
  UNROLL for (int r = 0; r < R; r++) {
    *(float *)y = fold(t[r].sum) + fold(t[r].least);
    y += ys;
    OPAQUE(y);
  }
}

#define MUL_ONE(name, f, R)                                                                                                                 \
  KERNEL PREFIX(name, R)(const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t ys, int64_t blocks, const uint8_t *table) { \
    mul_rows(f, R, w, ws, x, y, ys, blocks, table);                                                                                       \
  }
#define ALL_FORMATS                                                                               \
  MUL(Q41, Q4_1) MUL(Q50, Q5_0) MUL(Q51, Q5_1) MUL(IQ4NL, IQ4_NL) MUL(Q4K, Q4_K) MUL(Q5K, Q5_K) \
  MUL(IQ4XS, IQ4_XS) MUL(Q2K, Q2_K) MUL(Q3K, Q3_K) MUL(Q6K, Q6_K) MUL(MX4, MX4)                 \
  MUL(Q10, Q1_0) MUL(Q20, Q2_0) MUL(NV4, NV4) MUL(TQ10, TQ1_0) MUL(TQ20, TQ2_0)                  \
  POINTS(IQ1S, IQ1_S) POINTS(IQ1M, IQ1_M)                                                      \
  POINTS(IQ2XXS, IQ2_XXS) POINTS(IQ2XS, IQ2_XS) POINTS(IQ2S, IQ2_S) POINTS(IQ3XXS, IQ3_XXS) POINTS(IQ3S, IQ3_S)
// Looking points up is bound by instructions: more streams than two gain nothing.
#define POINTS(name, f) MUL_ONE(name, f, 2) MUL_ONE(name, f, 1)
