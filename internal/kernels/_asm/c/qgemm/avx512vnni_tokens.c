// AVX-512 VNNI: products of two rows of GGUF blocks with several tokens of 8-bit blocks, see rows.go. Needs AVX-512
// VNNI, BW, DQ and VL. The rows are the halves of vectors, whose sums are those of avx512vnni_rows.c. Codes and scales of
// weights are unpacked once for all tokens.
#include "common.h"
#include "rows.h"

INLINE __m512 halves(__m256 a, __m256 b) { return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1); }
INLINE __m512i halves_of(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }

// in_both has 32 bytes of a token in both halves.
INLINE __m512 in_both(const uint8_t *p) { return _mm512_broadcast_f32x8(eight_at(p)); }
INLINE __m512i codes_in_both(const uint8_t *p) { return _mm512_broadcast_i64x4(load32(p)); }

// elements has element i of each half of v in the low half of that half, and element i + step in the high one.
INLINE __m512 elements(__m512 v, int i, int step) {
  const __m512i from = _mm512_setr_epi32(0, 0, 0, 0, step, step, step, step, 8, 8, 8, 8, 8 + step, 8 + step, 8 + step, 8 + step);
  OPAQUE(i); // keeps the compiler from holding the sum for each i in a register
  return _mm512_permutexvar_ps(_mm512_add_epi32(from, _mm512_set1_epi32(i)), v);
}

// token_scale is the scale of columns 32 g and on of a token.
INLINE __m512 token_scale(const uint8_t *x, int g) { return _mm512_set1_ps(*(const float *)(x + SCALES + 4 * g)); }

// TOKEN is token t, xs bytes behind the one before. three is the fourth.
#define TOKEN(t) ((t) == 3 ? three : x + (t) * xs)

struct totals { __m512 sum[4], least[4]; };

INLINE __m512 products(int f, __m512i codes, const uint8_t *x) {
  __m512i v = codes_in_both(x);
  if (has_signs(f)) v = _mm512_mask_sub_epi8(v, _mm512_movepi8_mask(codes), _mm512_setzero_si512(), v), codes = _mm512_abs_epi8(codes);
  return _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, v));
}

// by32 adds a block whose scales are for 32 columns.
INLINE void by32(int f, int T, struct totals *s, const uint8_t *b, const uint8_t *c, const uint8_t *x, const uint8_t *three, int64_t xs) {
  const struct pair p = scales32(f, b), q = scales32(f, c);
  const __m512 scale = halves(p.scale, q.scale), least = halves(p.least, q.least);
  UNROLL for (int g = 0; g < 8; g++) {
    const __m512i codes = halves_of(codes_of(f, b, g, 0), codes_of(f, c, g, 0));
    const __m512 own = elements(scale, g, 0);
    UNROLL for (int t = 0; t < T; t++) s->sum[t] = _mm512_fmadd_ps(products(f, codes, TOKEN(t) + 32 * g), _mm512_mul_ps(own, token_scale(TOKEN(t), g)), s->sum[t]);
    AFTER(b, s->sum[T - 1]), AFTER(c, s->sum[T - 1]), AFTER(x, s->sum[T - 1]), AFTER(three, s->sum[T - 1]);
  }
  if (!has_least(f)) return;
  UNROLL for (int t = 0; t < T; t++) s->least[t] = _mm512_fnmadd_ps(least, in_both(TOKEN(t) + SUMS), s->least[t]);
}

// by16s adds a block whose scales are for 16 columns.
INLINE void by16s(int f, int T, struct totals *s, const uint8_t *b, const uint8_t *c, const uint8_t *x, const uint8_t *three, int64_t xs) {
  const __m128i p = scales16(f, b), q = scales16(f, c);
  const __m256 dp = scale16(f, b), dq = scale16(f, c);
  const __m512 low = halves(_mm256_mul_ps(dp, low8(p)), _mm256_mul_ps(dq, low8(q)));
  const __m512 high = halves(_mm256_mul_ps(dp, high8(p)), _mm256_mul_ps(dq, high8(q)));
  UNROLL for (int g = 0; g < 8; g++) {
    const __m512i codes = halves_of(codes_of(f, b, g, 0), codes_of(f, c, g, 0));
    const __m512 scale = elements(g < 4 ? low : high, 2 * (g % 4), 1);
    UNROLL for (int t = 0; t < T; t++) {
      const __m512 v = _mm512_mul_ps(products(f, codes, TOKEN(t) + 32 * g), token_scale(TOKEN(t), g));
      s->sum[t] = _mm512_fmadd_ps(v, scale, s->sum[t]);
    }
    AFTER(b, s->sum[T - 1]), AFTER(c, s->sum[T - 1]), AFTER(x, s->sum[T - 1]), AFTER(three, s->sum[T - 1]);
  }
  __m512i m = halves_of(_mm256_cvtepi8_epi16(p), _mm256_cvtepi8_epi16(q));
  __m512 by = _mm512_mul_ps(halves(dp, dq), _mm512_set1_ps((float)zero_of(f)));
  if (f == Q2_K) {
    const __m256i n = _mm256_set_m128i(_mm_loadu_si128((const __m128i *)c), _mm_loadu_si128((const __m128i *)b));
    m = _mm512_cvtepi8_epi16(_mm256_and_si256(_mm256_srli_epi16(n, 4), bytes(15)));
    by = halves(half_at(b + 82), half_at(c + 82));
  }
  UNROLL for (int t = 0; t < T; t++) {
    const __m512 sums = _mm512_cvtepi32_ps(_mm512_madd_epi16(m, codes_in_both(TOKEN(t) + SUMS16)));
    s->least[t] = _mm512_fnmadd_ps(sums, _mm512_mul_ps(by, in_both(TOKEN(t) + SCALES)), s->least[t]);
  }
}

// two_rows computes two rows, ws bytes apart, for T tokens. Their sums are neighbours at y, and those of tokens ys bytes apart.
INLINE void two_rows(int f, int T, const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks) {
  const int size = size_of_block(f);
  struct totals s;
  UNROLL for (int t = 0; t < T; t++) s.sum[t] = s.least[t] = _mm512_setzero_ps();
  const uint8_t *c = w + ws, *three = x + times(xs, T > 3 ? 3 : 0);
  ROLLED for (; blocks > 0; blocks--) {
    UNROLL for (int i = 0; i < (size + 63) / 64; i++) _mm_prefetch(c + ws + 64 * i, _MM_HINT_T0), _mm_prefetch(c + times(ws, 2) + 64 * i, _MM_HINT_T0);
    if (by16(f)) by16s(f, T, &s, w, c, x, three, xs);
    else by32(f, T, &s, w, c, x, three, xs);
    w += size, c += size, x += STEP, three += STEP;
    OPAQUE(w), OPAQUE(c), OPAQUE(x), OPAQUE(three);
  }
  UNROLL for (int t = 0; t < T; t++) {
    ((float *)y)[0] = fold(_mm512_castps512_ps256(s.sum[t])) + fold(_mm512_castps512_ps256(s.least[t]));
    ((float *)y)[1] = fold(_mm512_extractf32x8_ps(s.sum[t], 1)) + fold(_mm512_extractf32x8_ps(s.least[t], 1));
    y += ys;
    OPAQUE(y);
  }
}

#define TWO_ROWS(name, f, T)                                                                                                                       \
  KERNEL avx512vnniTokens##name##x##T(const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t blocks) {       \
    two_rows(f, T, w, ws, x, xs, y, ys, blocks);                                                                                                \
  }
#define TOKENS(name, f) TWO_ROWS(name, f, 4) TWO_ROWS(name, f, 2)
TOKENS(Q4K, Q4_K) TOKENS(Q5K, Q5_K) TOKENS(Q6K, Q6_K) TOKENS(Q2K, Q2_K) TOKENS(Q3K, Q3_K) TOKENS(IQ4XS, IQ4_XS)
