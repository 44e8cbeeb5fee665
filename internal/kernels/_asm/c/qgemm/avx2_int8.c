// AVX2: products of interleaved weights with tokens of 8-bit blocks, see int8.go and
// interleaved.go. Needs AVX2, FMA and F16C.
#include "common.h"

// Unsigned weight codes are multiplied by signed bytes, and pairs of products are added in 16-bit
// words. For Q8 that would overflow, so each activation is 16 times one small number plus another,
// and the two are multiplied separately. The sums of a block start at -zero times the sum of the
// activations, so that they end as sums of values: 16 products of at most 2^10 (2^7 by 8, or 2^3 by
// 127). They may overflow meanwhile.
//
// A block of activations has 32 codes (for Q8 32 high ones, then 32 low ones), the scale, and the
// two words at which the sums start, of columns 0 and 1 (mod 4) and of 2 and 3, for high and low.

INLINE int parts_of(int bits) { return bits == 8 ? 2 : 1; }
INLINE int scale_at(int bits) { return 32 * parts_of(bits); }
INLINE int begin_at(int bits, int part) { return scale_at(bits) + 4 + 4 * part; }
INLINE int block_of(int bits) { return begin_at(bits, parts_of(bits)); }

// second_at is where the low codes of a block begin, or the codes for the high nibbles of weights.
INLINE int second_at(int bits) { return 4 * bits; }

// magnitude is the larger of m and the bits of v without sign.
INLINE __m256i magnitude(__m256i m, __m256 v) {
  return _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff)));
}

INLINE __m256 eight(const uint8_t *src, int i) { return _mm256_loadu_ps((const float *)src + 8 * i); }

INLINE __m128i bytes_of(__m256i words) { return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)); }

// begin is the start of the sums of a part, from the sums of pairs of its codes.
INLINE void begin(uint8_t *dst, __m256i pairs, int zero) {
  __m128i q = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  q = _mm_mullo_epi32(_mm_add_epi32(q, _mm_unpackhi_epi64(q, q)), _mm_set1_epi32(-zero));
  *(int *)dst = _mm_cvtsi128_si32(_mm_packs_epi32(q, q));
}

INLINE void narrow(int bits, uint8_t *dst, const uint8_t *src, int64_t blocks) {
  const __m256i ones = _mm256_set1_epi16(1);
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
    __m256i pairs[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    UNROLL for (int i = 0; i < 4; i += 2) {
      __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(eight(src, i), factor)), b = _mm256_cvtps_epi32(_mm256_mul_ps(eight(src, i + 1), factor));
      __m256i codes = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
      if (bits == 8) {
        const __m256i high = _mm256_srai_epi16(_mm256_add_epi16(codes, _mm256_set1_epi16(8)), 4);
        codes = _mm256_sub_epi16(codes, _mm256_slli_epi16(high, 4));
        _mm_storeu_si128((__m128i *)(dst + 8 * i), bytes_of(high));
        pairs[1] = _mm256_add_epi32(pairs[1], _mm256_madd_epi16(high, ones));
      }
      _mm_storeu_si128((__m128i *)(dst + scale_at(bits) - 32 + 8 * i), bytes_of(codes));
      pairs[0] = _mm256_add_epi32(pairs[0], _mm256_madd_epi16(codes, ones));
    }
    *(float *)(dst + scale_at(bits)) = d;
    if (bits == 8) begin(dst + begin_at(8, 0), pairs[1], 128), begin(dst + begin_at(8, 1), pairs[0], 128);
    else begin(dst + begin_at(4, 0), pairs[0], 8);
    dst += block_of(bits), src += 128;
  }
}

KERNEL avx2intsNarrowQ8(uint8_t *dst, const uint8_t *src, int64_t blocks) { narrow(8, dst, src, blocks); }
KERNEL avx2intsNarrowQ4(uint8_t *dst, const uint8_t *src, int64_t blocks) { narrow(4, dst, src, blocks); }

INLINE __m256i every(const uint8_t *p) { return _mm256_set1_epi32(*(const int *)p); }

// nibbles returns the low or the high nibbles of bytes.
INLINE __m256i nibbles(__m256i v, int high) { return _mm256_and_si256(high ? _mm256_srli_epi16(v, 4) : v, _mm256_set1_epi8(15)); }

INLINE __m256i pairs(__m256i acc, __m256i codes, __m256i x) { return _mm256_add_epi16(acc, _mm256_maddubs_epi16(codes, x)); }

// scaled adds the integer sums of eight rows of a block, times d, times the scale of the token.
INLINE __m256 scaled(int bits, __m256 sum, const __m256i *acc, __m256 d, const uint8_t *x) {
  __m256i all = _mm256_madd_epi16(acc[0], _mm256_set1_epi16(bits == 8 ? 16 : 1));
  if (bits == 8) all = _mm256_add_epi32(all, _mm256_madd_epi16(acc[1], _mm256_set1_epi16(1)));
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(all), _mm256_mul_ps(d, _mm256_broadcast_ss((const float *)(x + scale_at(bits)))), sum);
}

INLINE __m256 scales(const uint8_t *w) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w)); }

// AHEAD is the distance of the prefetch in blocks: the hardware prefetcher stops at the end of a
// page.
enum { AHEAD = DISTANCE(16) };

// DONE makes the compiler finish an addition here: there are too few registers to put it off.
#define DONE(v) __asm__ volatile("" : "+x"(v))

// A place is a position in a product: bands from w on (w3 is the fourth), a block of a token, and
// its sums.
struct place {
  const uint8_t *w, *w3, *x;
  uint8_t *y;
};

// BAND is band g of p. Bands are ws bytes apart.
#define BAND(g) ((g) == 3 ? p->w3 : p->w + (g) * ws)

// step adds a block of the bands first to first + G - 1 for T tokens.
INLINE void step(int bits, int first, int G, int T, struct place *p, int64_t ws, int64_t ahead, int64_t xs, int64_t ys) {
  const int parts = parts_of(bits);
  __m256i acc[8][4][2]; // of half a band, token, part
  UNROLL for (int t = 0; t < T; t++) UNROLL for (int i = 0; i < parts; i++) {
    const __m256i from = every(p->x + t * xs + begin_at(bits, i));
    UNROLL for (int r = 0; r < 2 * G; r++) acc[r][t][i] = from;
  }
  UNROLL for (int j = 0; j < bits; j++) {
    OPAQUE(p->x); // keeps the compiler from doing all loads first
    __m256i in[4][2];
    if (T < 4) UNROLL for (int t = 0; t < T; t++) UNROLL for (int i = 0; i < 2; i++) in[t][i] = every(p->x + t * xs + 4 * j + i * second_at(bits));
    UNROLL for (int r = 0; r < 2 * G; r++) {
      OPAQUE(p->w), OPAQUE(p->w3);
      const uint8_t *codes = BAND(first + r / 2) + 32 + 64 * j + 32 * (r % 2);
      if (r % 2 == 0) _mm_prefetch(codes + ahead, _MM_HINT_T0);
      const __m256i c = _mm256_loadu_si256((const __m256i *)codes);
      UNROLL for (int i = 0; i < 2; i++) {
        const __m256i v = bits == 8 ? c : nibbles(c, i);
        UNROLL for (int t = 0; t < T; t++) {
          if (T == 4) in[t][i] = every(p->x + t * xs + 4 * j + i * second_at(bits));
          acc[r][t][i % parts] = pairs(acc[r][t][i % parts], v, in[t][i]);
          DONE(acc[r][t][i % parts]);
        }
      }
    }
  }
  UNROLL for (int r = 0; r < 2 * G; r++) {
    OPAQUE(p->w), OPAQUE(p->w3), OPAQUE(p->x), OPAQUE(p->y);
    const __m256 d = scales(BAND(first + r / 2) + 16 * (r % 2));
    UNROLL for (int t = 0; t < T; t++) {
      float *to = (float *)(p->y + t * ys) + 16 * first + 8 * r;
      _mm256_storeu_ps(to, scaled(bits, _mm256_loadu_ps(to), acc[r][t], d, p->x + t * xs));
    }
  }
}

// mul computes the rows of S bands for T tokens, G bands at a time. A lane is a row. It adds the
// products of a block as integers and then adds these, scaled, to the sums at y. Reading four bands
// in turn is faster than one.
INLINE void mul(int bits, int S, int G, int T, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) {
  if (!add) {
    uint8_t *to = y;
    UNROLL for (int t = 0; t < T; t++) {
      UNROLL for (int i = 0; i < 2 * S; i++) _mm256_storeu_ps((float *)to + 8 * i, _mm256_setzero_ps());
      to += ys;
      OPAQUE(to);
    }
  }
  const int size = 32 + 64 * bits;
  struct place p = {w, w + times(ws, 3), x, y};
  int64_t ahead = AHEAD * size - 32;
  ROLLED for (; blocks > 0; blocks--, OPAQUE(blocks)) {
    if (blocks == AHEAD) ahead += times(ws, S - 1); // prefetch the next bands from here on
    step(bits, 0, G, T, &p, ws, ahead, xs, ys);
    if (S > G) step(bits, G, G, T, &p, ws, ahead, xs, ys);
    if (S > 2 * G) step(bits, 2 * G, G, T, &p, ws, ahead, xs, ys);
    if (S > 3 * G) step(bits, 3 * G, G, T, &p, ws, ahead, xs, ys);
    p.w += size, p.w3 += size, p.x += block_of(bits);
  }
}

#define MUL(Q, B, S, G, T)                                                                                                                        \
  KERNEL avx2intsMul##Q##S##x##T(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks, int64_t add) { \
    mul(B, S, G, T, w, ws, x, xs, y, ys, blocks, add);                                                                                            \
  }
MUL(Q8, 8, 4, 2, 1) MUL(Q8, 8, 4, 1, 2) MUL(Q8, 8, 1, 1, 2) MUL(Q8, 8, 1, 1, 1)
MUL(Q4, 4, 4, 1, 4) MUL(Q4, 4, 1, 1, 4)
MUL(Q4, 4, 4, 4, 1) MUL(Q4, 4, 4, 2, 2) MUL(Q4, 4, 1, 1, 2) MUL(Q4, 4, 1, 1, 1)

// edge is mul of up to eight rows of the last band, which may have fewer than 16, for one token.
// Its scales begin at w, and its codes follow all scales. The sums continue from y.
INLINE void edge(int bits, const uint8_t *w, int64_t codes, int64_t rows, int64_t take, const uint8_t *x, uint8_t *y, int64_t blocks) {
  const __m256i m = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)take), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256 sum = _mm256_loadu_ps((const float *)y);
  ROLLED for (; blocks > 0; blocks--) {
    __m256i acc[2];
    UNROLL for (int p = 0; p < parts_of(bits); p++) acc[p] = every(x + begin_at(bits, p));
    const uint8_t *from = w + codes;
    UNROLL for (int j = 0; j < bits; j++) {
      const __m256i c = _mm256_maskload_epi32((const int *)from, m);
      UNROLL for (int p = 0; p < 2; p++) {
        __m256i *sums = acc + p % parts_of(bits);
        *sums = pairs(*sums, bits == 8 ? c : nibbles(c, p), every(x + 4 * j + p * second_at(bits)));
      }
      from += 4 * rows;
      OPAQUE(from);
    }
    // Reading 16 bytes of a block is always allowed. Lanes without a scale are not stored.
    sum = scaled(bits, sum, acc, scales(w), x);
    w += times(rows, 2 + 4 * bits), x += block_of(bits);
    OPAQUE(w), OPAQUE(x);
  }
  _mm256_storeu_ps((float *)y, sum);
}

#define EDGE_ARGS const uint8_t *w, int64_t codes, int64_t rows, int64_t take, const uint8_t *x, uint8_t *y, int64_t blocks
KERNEL avx2intsEdgeQ8(EDGE_ARGS) { edge(8, w, codes, rows, take, x, y, blocks); }
KERNEL avx2intsEdgeQ4(EDGE_ARGS) { edge(4, w, codes, rows, take, x, y, blocks); }
