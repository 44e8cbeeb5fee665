// AVX-512: queries of one token with paged keys and values, for several heads that are consecutive
// in each page. There are few products per byte, so memory bandwidth limits the kernels. Lines of
// a head AHEAD are prefetched meanwhile, in ascending order: a head is too short for the
// hardware prefetcher. Those of a head FAR are prefetched into the second-level cache, because the
// first-level cache can wait for few lines at a time.
#include "wide.h"

enum { PAGE = 16 }; // tokens
enum { Q8 = F32 + 1 };

// Pages has the arguments, which a kernel does not change, and then the values that it keeps in
// memory, as there are too few registers.
typedef struct {
  uint8_t *y;       // results
  int64_t ys;       // from a query to the next
  const uint8_t *x; // queries, or weights of the keys
  int64_t xs;       // of queries: from a head to the next; of weights: from a query to the next
  const uint8_t *w; // keys or values
  const int32_t *pages;
  int64_t ps, hs, ws;     // from a page, a head and a token to the next
  int64_t heads, n, keys; // n: channels or columns of a head

  const int32_t *page;
  int64_t keys_left, done; // done: bytes of a row of scores
  uint8_t *to, *out;
  const uint8_t *from, *at, *part, *fetch;
  int64_t left, count, columns;
  // The heads AHEAD and FAR, and what of their pages is left.
  struct ahead {
    const uint8_t *next;
    const int32_t *page;
    int64_t left, keys;
  } near, far;
} Pages;

// AHEAD is two heads of 64 channels, or six in blocks of q8_0, which are half the size.
#define AHEAD(f) ((f) == Q8 ? 6 : 2)

// FAR is how many heads lines are ahead that are prefetched into the second-level cache.
#define FAR(f) ((f) == Q8 ? 16 : 8)

// KEPT makes the compiler leave a value in memory.
#define KEPT __asm__ volatile("" ::: "memory")

// step goes to the next head.
INLINE void step(const Pages *a, struct ahead *to) {
  to->next += a->hs;
  if (--to->left > 0) return;
  to->left = a->heads;
  if (to->keys > PAGE) to->keys -= PAGE, to->page++;
  to->next = a->w + *to->page * a->ps;
}

INLINE void advance(int H, Pages *a) {
  KEPT;
  step(a, &a->near);
  KEPT;
  if (H <= 4) step(a, &a->far);
  KEPT;
}

// begin_at goes to a head by its number.
INLINE void begin_at(const Pages *a, struct ahead *to, int heads) {
  to->page = a->pages, to->keys = a->keys, to->left = a->heads;
  to->next = a->w + *a->pages * a->ps;
  ROLLED for (; heads > 0; heads--) {
    KEPT;
    step(a, to);
    KEPT;
  }
}

INLINE void begin(int f, Pages *a) {
  a->page = a->pages, a->keys_left = a->keys, a->done = 0;
  begin_at(a, &a->near, AHEAD(f));
  begin_at(a, &a->far, FAR(f));
}

// FETCH prefetches a line of the head AHEAD, and for few queries one that is further bytes away, of the head FAR. Arithmetic
// bounds kernels of more queries.
#define FETCH(H, p)                                                     \
  do {                                                                  \
    _mm_prefetch((const char *)(p), _MM_HINT_T0);                       \
    if (H <= 4) _mm_prefetch((const char *)(p) + further, _MM_HINT_T1); \
  } while (0)

INLINE __m512 widen(int f, const uint8_t *p, __mmask16 m) {
  if (f == BF16) return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16);
  return _mm512_maskz_loadu_ps(m, p);
}

// words loads 16 rows of 64 bytes and transposes them: lane r of vector i is word i of row r.
INLINE void words(int f, int H, __m512i v[16], const uint8_t *w, int64_t ws, int64_t left, const uint8_t *next, int64_t further) {
  const __mmask32 m = _bzhi_u32(0xffffffff, (uint32_t)(left < 32 ? left : 32));
  const __mmask16 n = low(left < 16 ? left : 16);
  UNROLL for (int r = 0; r < 16; r++) {
    if (f == BF16) v[r] = _mm512_maskz_loadu_epi16(m, w);
    else v[r] = _mm512_maskz_loadu_epi32(n, w);
    FETCH(H, next + 64 * r);
    w += ws;
    OPAQUE(w);
  }
  transpose16(v);
}

// score_page sets y[h][j] to the products of H queries with the 16 keys of a page, each summed in
// ascending order of the channels. Channel c of query h is at q[c H + h], with zeros behind the
// last up to 32 channels.
INLINE void score_page(int f, int H, uint8_t *y, int64_t ys, const uint8_t *q, const uint8_t *w, int64_t ws, int64_t dim, const uint8_t *next, int64_t further) {
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
    words(f, H, v, w, ws, dim, next, further);
    UNROLL for (int i = 0; i < 16; i++) {
      if (f == BF16) {
        ADD((__m512)_mm512_slli_epi32(v[i], 16));
        ADD((__m512)_mm512_and_si512(v[i], high));
      } else {
        ADD((__m512)v[i]);
      }
    }
    w += 64, next += 16 * 64, dim -= f == BF16 ? 32 : 16;
  }
  UNROLL for (int h = 0; h < H; h++) {
    _mm512_storeu_ps(y, acc[h]);
    y += ys;
    OPAQUE(y);
  }
}

// score_blocks is score_page for a head of blocks of q8_0, one at a time.
INLINE void score_blocks(int H, uint8_t *y, int64_t ys, const uint8_t *q, const uint8_t *w, int64_t ws, int64_t dim, const uint8_t *next, int64_t further) {
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
      FETCH(H, next + 64 * r);
      row += ws;
      OPAQUE(row);
    }
    FETCH(H, next + 64 * 8);
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
    w += 34, next += 16 * 34;
  }
  UNROLL for (int h = 0; h < H; h++) {
    _mm512_storeu_ps(y, acc[h]);
    y += ys;
    OPAQUE(y);
  }
}

INLINE void scores(int f, int H, Pages *a) {
  begin(f, a);
  ROLLED for (; a->keys_left > 0; a->keys_left -= PAGE, a->page++, a->done += 4 * PAGE) {
    a->at = a->w + *a->page * a->ps, a->to = a->y + a->done, a->from = a->x;
    ROLLED for (a->left = a->heads; a->left > 0; a->left--) {
      KEPT;
      if (f == Q8) score_blocks(H, a->to, a->ys, a->from, a->at, a->ws, a->n, a->near.next, a->far.next - a->near.next);
      else score_page(f, H, a->to, a->ys, a->from, a->at, a->ws, a->n, a->near.next, a->far.next - a->near.next);
      KEPT;
      a->to += H * a->ys, a->from += a->xs, a->at += a->hs;
      advance(H, a);
    }
  }
}

#define SCORES(F, H) \
  KERNEL avx512Scores##F##x##H(Pages *a) { scores(F, H, a); }
SCORES(BF16, 1) SCORES(BF16, 2) SCORES(BF16, 4) SCORES(BF16, 8)
SCORES(F32, 1) SCORES(F32, 2) SCORES(F32, 4) SCORES(F32, 8)
SCORES(Q8, 1) SCORES(Q8, 2) SCORES(Q8, 4) SCORES(Q8, 8)

// q8_part is half of a block: 16 codes times the block's scale.
INLINE __m512 q8_part(const uint8_t *block, int half) {
  const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(*(const short *)block));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(block + 2 + 16 * half)))), d);
}

// columns_bytes is the size in bytes of 16 n columns of a token.
INLINE int64_t columns_bytes(int f, int n) { return f == Q8 ? n / 2 * 34 : f == F32 ? 64 * n : 32 * n; }

// weigh_page adds y[h][c] += sum over j of p[h][j] v[j][c], in ascending order of the keys of a page,
// for H queries and C vectors of columns, of which m is what is there of each.
INLINE void weigh_page(int f, int H, int C, __mmask16 m, Pages *a) {
  __m512 acc[8][4];
  KEPT;
  uint8_t *y = a->out;
  UNROLL for (int h = 0; h < H; h++) {
    UNROLL for (int c = 0; c < C; c++) acc[h][c] = _mm512_maskz_loadu_ps(m, y + 64 * c);
    y += a->ys;
    OPAQUE(y);
  }
  const uint8_t *p = a->from, *v = a->part, *next = a->fetch;
  const int64_t further = a->far.next - a->near.next;
  const int64_t ss = a->xs, ws = a->ws, ss3 = 3 * ss;
  ROLLED for (int64_t keys = a->count; keys > 0; keys--, OPAQUE(keys)) {
    OPAQUE(p), OPAQUE(v), OPAQUE(next);
    const uint8_t *p4 = p + 4 * ss;
    if (H > 4) OPAQUE(p4);
    UNROLL for (int i = 0; 64 * i < columns_bytes(f, C); i++) FETCH(H, next + 64 * i);
    UNROLL for (int c = 0; c < C; c++) {
      const __m512 e = f == Q8 ? q8_part(v + c / 2 * 34, c % 2) : widen(f, v + c * (f == F32 ? 64 : 32), m);
      UNROLL for (int h = 0; h < H; h++) {
        const uint8_t *s = (h < 4 ? p : p4) + (h % 4 == 3 ? ss3 : h % 4 * ss);
        acc[h][c] = _mm512_fmadd_ps(e, _mm512_set1_ps(*(const float *)s), acc[h][c]);
      }
    }
    v += ws, p += 4, next += columns_bytes(f, C);
  }
  KEPT;
  y = a->out;
  UNROLL for (int h = 0; h < H; h++) {
    UNROLL for (int c = 0; c < C; c++) _mm512_mask_storeu_ps(y + 64 * c, m, acc[h][c]);
    y += a->ys;
    OPAQUE(y);
  }
  KEPT;
  a->out += 64 * C, a->part += columns_bytes(f, C), a->fetch += a->count * columns_bytes(f, C);
}

// weigh takes C vectors of columns at a time, of all pages and heads in order. The rest of a head
// are blocks of q8_0, or vectors of other formats.
INLINE void weigh(int f, int H, int C, Pages *a) {
  const int last = f == Q8 ? 2 : 1;
  begin(f, a);
  ROLLED for (; a->keys_left > 0; a->keys_left -= PAGE, a->page++, a->done += 4 * PAGE) {
    a->at = a->w + *a->page * a->ps, a->to = a->y, a->from = a->x + a->done;
    a->count = a->keys_left < PAGE ? a->keys_left : PAGE;
    ROLLED for (a->left = a->heads; a->left > 0; a->left--) {
      a->out = a->to, a->part = a->at, a->fetch = a->near.next;
      ROLLED for (a->columns = a->n; a->columns >= 16 * C; a->columns -= 16 * C) weigh_page(f, H, C, 0xffff, a);
      ROLLED for (; a->columns > 0; a->columns -= 16 * last)
        weigh_page(f, H, last, f == Q8 ? 0xffff : low(a->columns < 16 ? a->columns : 16), a);
      a->to += H * a->ys, a->from += H * a->xs, a->at += a->hs;
      advance(H, a);
    }
  }
}

#define WEIGH(F, H, C) \
  KERNEL avx512Weigh##F##x##H(Pages *a) { weigh(F, H, C, a); }
WEIGH(BF16, 1, 4) WEIGH(BF16, 2, 4) WEIGH(BF16, 4, 4) WEIGH(BF16, 8, 2)
WEIGH(F32, 1, 4) WEIGH(F32, 2, 4) WEIGH(F32, 4, 4) WEIGH(F32, 8, 2)
WEIGH(Q8, 1, 4) WEIGH(Q8, 2, 4) WEIGH(Q8, 4, 4) WEIGH(Q8, 8, 2)
