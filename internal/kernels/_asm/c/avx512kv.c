// AVX-512 kernels of keys and values in pages. Needs F, BW, DQ and VL, and BMI2.
#include "wide.h"

// UnpackRowsQ8 widens rows of blocks of q8_0, each element one product.
KERNEL avx512UnpackRowsQ8(uint8_t *dst, int64_t ds, const uint8_t *src, int64_t ss, int64_t rows, int64_t blocks) {
  ROLLED for (; rows > 0; rows--) {
    uint8_t *to = dst;
    const uint8_t *from = src;
    ROLLED for (int64_t left = blocks; left > 0; left--, OPAQUE(left)) {
      const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(*(const short *)from));
      UNROLL for (int h = 0; h < 2; h++)
        _mm512_storeu_ps(to + 64 * h, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(from + 2 + 16 * h)))), d));
      to += 128, from += 34;
    }
    dst += ds, src += ss;
  }
}

enum { PAGE = 16 }; // tokens
enum { Q8 = F32 + 1 };

INLINE __m512 widen(int f, const uint8_t *p, __mmask16 m) {
  if (f == BF16) return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16);
  return _mm512_maskz_loadu_ps(m, p);
}

// words loads 16 rows of 64 bytes and turns them, so that lane r of vector i is word i of row r.

INLINE void words(int f, __m512i v[16], const uint8_t *w, int64_t ws, int64_t left) {
  const __mmask32 m = _bzhi_u32(0xffffffff, (uint32_t)(left < 32 ? left : 32));
  const __mmask16 n = low(left < 16 ? left : 16);
  UNROLL for (int r = 0; r < 16; r++) {
    if (f == BF16) v[r] = _mm512_maskz_loadu_epi16(m, w);
    else v[r] = _mm512_maskz_loadu_epi32(n, w);
    w += ws;
    OPAQUE(w);
  }
  turn16(v);
}

// score_page sets y[h][j] to the products of H queries with the 16 keys of a page, each summed in
// ascending order of the channels. Channel c of query h is at q[c H + h], with zeros behind the
// last up to 32 channels.
INLINE void score_page(int f, int H, uint8_t *y, int64_t ys, const uint8_t *q, const uint8_t *w, int64_t ws, int64_t dim) {
  __m512 acc[8];
  UNROLL for (int h = 0; h < H; h++) acc[h] = _mm512_setzero_ps();
  const __m512i high = _mm512_set1_epi32((int32_t)0xffff0000);
#define ADD(e)                                                                                                              \
  do {                                                                                                                      \
    const __m512 value = (e);                                                                                               \
    UNROLL for (int h = 0; h < H; h++) acc[h] = _mm512_fmadd_ps(value, _mm512_set1_ps(*(const float *)(q + 4 * h)), acc[h]); \
    q += 4 * H;                                                                                                             \
    OPAQUE(q);                                                                                                              \
  } while (0)
  ROLLED for (; dim > 0; OPAQUE(dim)) {
    __m512i v[16];
    words(f, v, w, ws, dim);
    UNROLL for (int i = 0; i < 16; i++) {
      if (f == BF16) {
        ADD((__m512)_mm512_slli_epi32(v[i], 16));
        ADD((__m512)_mm512_and_si512(v[i], high));
      } else {
        ADD((__m512)v[i]);
      }
    }
    w += 64, dim -= f == BF16 ? 32 : 16;
  }
  UNROLL for (int h = 0; h < H; h++) {
    _mm512_storeu_ps(y, acc[h]);
    y += ys;
    OPAQUE(y);
  }
}

// score_blocks is score_page for a head of blocks of q8_0, one at a time.
INLINE void score_blocks(int H, uint8_t *y, int64_t ys, const uint8_t *q, const uint8_t *w, int64_t ws, int64_t dim) {
  __m512 acc[8];
  UNROLL for (int h = 0; h < H; h++) acc[h] = _mm512_setzero_ps();
  ROLLED for (; dim > 0; dim -= 32, OPAQUE(dim)) {
    // Two rows of 32 codes in each of eight vectors: the words of rows r and r + 8.
    __m512i v[8];
    const uint8_t *row = w;
    __v8hi d[2] = {(__v8hi)_mm_set1_epi16(*(const short *)row), (__v8hi)_mm_set1_epi16(*(const short *)(row + 8 * ws))};
    __asm__ volatile("" : "+v"(d[0]), "+v"(d[1])); // as vectors, not by way of registers that are few
    UNROLL for (int r = 0; r < 8; r++) {
      v[r] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(row + 2))), _mm256_loadu_si256((const __m256i *)(row + 8 * ws + 2)), 1);
      if (r > 0) d[0][r] = *(const short *)row, d[1][r] = *(const short *)(row + 8 * ws);
      row += ws;
      OPAQUE(row);
    }
    const __m512 scale = _mm512_cvtph_ps(_mm256_set_m128i((__m128i)d[1], (__m128i)d[0]));
    // Within each half: 8 rows of 8 words.
    __m512i t[8];
    UNROLL for (int i = 0; i < 8; i += 4) {
      __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]), b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
      __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]), e = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
      t[i] = _mm512_unpacklo_epi64(a, c), t[i + 1] = _mm512_unpackhi_epi64(a, c);
      t[i + 2] = _mm512_unpacklo_epi64(b, e), t[i + 3] = _mm512_unpackhi_epi64(b, e);
    }
    // t[i + j] has in quarter p the words 4 (p mod 2) + j of rows i to i + 3, of the second eight
    // where p > 1. Quarters of a result: rows 0 to 3, 4 to 7, 8 to 11, 12 to 15.
    UNROLL for (int word = 0; word < 8; word++) {
      const int j = word % 4, odd = word / 4;
      const __m512i pick = odd ? _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15) : _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
      const __m512i codes = _mm512_permutex2var_epi64(t[j], pick, t[4 + j]);
      ADD(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(codes, 24), 24)), scale));
      ADD(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(codes, 16), 24)), scale));
      ADD(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(codes, 8), 24)), scale));
      ADD(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(codes, 24)), scale));
    }
    w += 34;
  }
  UNROLL for (int h = 0; h < H; h++) {
    _mm512_storeu_ps(y, acc[h]);
    y += ys;
    OPAQUE(y);
  }
}

#define SCORE_ARGS uint8_t *y, int64_t ys, const uint8_t *q, const uint8_t *w, const int32_t *pages, int64_t ps, int64_t ws, int64_t dim, int64_t count
INLINE void scores(int f, int H, SCORE_ARGS) {
  ROLLED for (; count > 0; count--, OPAQUE(count)) {
    const uint8_t *page = w + *pages * ps;
    if (f == Q8) score_blocks(H, y, ys, q, page, ws, dim);
    else score_page(f, H, y, ys, q, page, ws, dim);
    y += 4 * PAGE, pages++;
  }
}

#define SCORES(F, H) \
  KERNEL avx512Scores##F##x##H(SCORE_ARGS) { scores(F, H, y, ys, q, w, pages, ps, ws, dim, count); }
SCORES(BF16, 1) SCORES(BF16, 2) SCORES(BF16, 4) SCORES(BF16, 8)
SCORES(F32, 1) SCORES(F32, 2) SCORES(F32, 4) SCORES(F32, 8)
SCORES(Q8, 1) SCORES(Q8, 2) SCORES(Q8, 4) SCORES(Q8, 8)

// q8_part is a quarter or half of a block: 16 codes from column c of a row on, which begins at a
// multiple of 16, times the block's scale.
INLINE __m512 q8_part(const uint8_t *block, int half) {
  const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(*(const short *)block));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(block + 2 + 16 * half)))), d);
}

#define WEIGH_ARGS uint8_t *y, int64_t ys, const uint8_t *p, int64_t ss, const uint8_t *w, const int32_t *pages, int64_t ps, int64_t ws, int64_t keys, int64_t cols

// weigh adds y[h][c] += sum over j of p[h][j] v[j][c], in ascending order of the keys, for H
// queries and C vectors of columns, of which m is what is there of each.
INLINE void weigh(int f, int H, int C, __mmask16 m, uint8_t *y, int64_t ys, const uint8_t *p, int64_t ss, const uint8_t *w, const int32_t *pages, int64_t ps, int64_t ws, int64_t keys) {
  __m512 acc[4][4];
  uint8_t *out = y;
  UNROLL for (int h = 0; h < H; h++) {
    UNROLL for (int c = 0; c < C; c++) acc[h][c] = _mm512_maskz_loadu_ps(m, out + 64 * c);
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
      UNROLL for (int c = 0; c < C; c++) {
        const __m512 e = f == Q8 ? q8_part(v + c / 2 * 34, c % 2) : widen(f, v + c * (f == F32 ? 64 : 32), m);
        UNROLL for (int h = 0; h < H; h++) acc[h][c] = _mm512_fmadd_ps(e, _mm512_set1_ps(*(const float *)(h == 3 ? last + 2 * ss : p + h * ss)), acc[h][c]);
      }
      v += ws, p += 4;
    }
  }
  UNROLL for (int h = 0; h < H; h++) {
    UNROLL for (int c = 0; c < C; c++) _mm512_mask_storeu_ps(y + 64 * c, m, acc[h][c]);
    y += ys;
    OPAQUE(y);
  }
}

// Weigh takes 64 columns, and those with C 2 and 1 up to 32 of q8_0 and 16 of others.
#define WEIGH(F, H)                                                                                                   \
  KERNEL avx512Weigh##F##x##H(WEIGH_ARGS) { weigh(F, H, 4, 0xffff, y, ys, p, ss, w, pages, ps, ws, keys); (void)cols; } \
  KERNEL avx512WeighRest##F##x##H(WEIGH_ARGS) { weigh(F, H, F == Q8 ? 2 : 1, F == Q8 ? 0xffff : low(cols), y, ys, p, ss, w, pages, ps, ws, keys); }
WEIGH(BF16, 1) WEIGH(BF16, 2) WEIGH(BF16, 4)
WEIGH(F32, 1) WEIGH(F32, 2) WEIGH(F32, 4)
WEIGH(Q8, 1) WEIGH(Q8, 2) WEIGH(Q8, 4)
