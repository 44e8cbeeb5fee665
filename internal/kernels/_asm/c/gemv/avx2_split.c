// AVX2: dot products of stored bfloat16 weights with a small batch of float32 tokens. A shift and a
// mask widen the two weights of a 32-bit word, so tokens have their even and odd elements apart:
// see split.go. Needs AVX2 and FMA.
#include "common.h"
#include "folds.h"

enum { AHEAD = DISTANCE(1024) }; // bytes, how far ahead weights are fetched

// low has the lanes below n.
INLINE __m256i low(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// half returns 8 of 16 weights as floats: those of even k, or those of odd k.
INLINE __m256 half(__m256i words, int odd) {
  return (__m256)(odd ? _mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000)) : _mm256_slli_epi32(words, 16));
}

// add is acc += a b, and stays in this place of the code: the compiler would otherwise move sums
// between registers, and twelve of them would not fit.
INLINE void add(__m256 *acc, __m256 a, __m256 b) { __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(*acc) : "x"(a), "x"(b)); }

#define ROW(r) (w + ((r) == 3 ? ws3 : (r) * ws))

// rows_of adds n columns, whole blocks, of R rows for T tokens to sums. counts is 4 rows, plus 1 if
// the sums begin at 0, plus 2 if they end. The tokens are those of a group of G, from number begin
// on. Meanwhile it prefetches as many lines: of three distant streams sp bytes apart (the first
// half of a group of 8 fetches two of them), or with four rows of one. It returns the address of
// the weights of the next rows.
INLINE const uint8_t *rows_of(int R, int T, int G, int begin, const uint8_t *w, int64_t ws, const uint8_t **tokens, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t counts, const uint8_t **stream, int64_t sp) {
  const int64_t ws3 = R == 4 ? times(ws, 3) : 0;
  const int first = begin ? 2 : 0, lines = G == T ? R : R == 3 ? 2 - begin / 4 : !begin; // of each 32 columns
  const uint8_t *x = *tokens, *far = *stream;
  int64_t left = n;
  __m256 acc[12]; // row r of token t is t R + r
  if (counts & 1) {
    UNROLL for (int i = 0; i < R * T; i++) acc[i] = _mm256_setzero_ps();
  } else {
    UNROLL for (int i = 0; i < R * T; i++) acc[i] = _mm256_loadu_ps((const float *)sums + 8 * i);
  }
  ROLLED for (; left > 0; left -= 32, OPAQUE(left)) {
    UNROLL for (int i = 0; i < 4; i++) {
      OPAQUE(w), OPAQUE(x), OPAQUE(far);
      __m256 a[4];
      UNROLL for (int r = 0; r < R; r++) a[r] = half(_mm256_loadu_si256((const __m256i *)(ROW(r) + i / 2 * 32)), i % 2);
      if (i < lines) _mm_prefetch(R == 4 ? far + 64 * i : far + (first + i) * sp, _MM_HINT_T1);
      UNROLL for (int t = 0; t < T; t++) {
        const __m256 in = _mm256_loadu_ps((const float *)(x + 128 * (begin + t) + i % 2 * 64 + i / 2 * 32));
        UNROLL for (int r = 0; r < R; r++) add(&acc[t * R + r], a[r], in);
      }
    }
    w += 64, x += 128 * G, far += R == 4 ? 256 : 64;
  }
  if (begin + T == G) *stream = far;
  if (counts & 2) {
    UNROLL for (int t = 0; t < T; t++) {
      __m256 *own = acc + t * R;
      if (R == 4) _mm_storeu_ps((float *)y, folds(own[0], own[1], own[2], own[3]));
      else if (R == 3) _mm_maskstore_ps((float *)y, _mm_setr_epi32(-1, -1, -1, 0), folds(own[0], own[1], own[2], own[2]));
      else *(float *)y = fold(own[0]);
      y += ys;
      OPAQUE(y);
    }
  } else {
    UNROLL for (int i = 0; i < R * T; i++) _mm256_storeu_ps((float *)sums + 8 * i, acc[i]);
  }
  // Subtracting is cheaper than keeping the old pointer in a register over the loop.
  OPAQUE(n);
  *tokens = x - n * (4 * G);
  return w - n * 2 + times(ws, R);
}

// group computes R rows of weights for a group of G tokens, four at a time.
INLINE const uint8_t *group(int R, int G, const uint8_t *w, int64_t ws, const uint8_t **x, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t counts, const uint8_t **stream, int64_t sp) {
  if (G == 8) {
    rows_of(R, 4, G, 0, w, ws, x, sums, y, ys, n, counts, stream, sp);
    OPAQUE(ws);
    return rows_of(R, 4, G, 4, w, ws, x, sums + 128 * R, y + times(ys, 4), ys, n, counts, stream, sp);
  }
  return rows_of(R, G, G, 0, w, ws, x, sums, y, ys, n, counts, stream, sp);
}

// mul_split computes rows of weights for a group of T tokens. The streams that it prefetches begin
// far bytes behind w.
INLINE void mul_split(int T, const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t counts, int64_t far, int64_t sp) {
  const int R = T >= 4 ? 3 : T == 2 ? 4 : 1; // One has whole rows of one token
  const uint8_t *stream = w + far;
  ROLLED for (; counts >= 4 * R; counts -= 4 * R, OPAQUE(counts)) {
    w = group(R, T, w, ws, &x, sums, y, ys, n, counts, &stream, sp);
    sums += 32 * R * T, y += 4 * R;
  }
  ROLLED for (; counts >= 4; counts -= 4, OPAQUE(counts)) {
    w = group(1, T, w, ws, &x, sums, y, ys, n, counts, &stream, sp);
    sums += 32 * T, y += 4;
  }
}

#define SPLIT(T)                                                                                                                                                    \
  KERNEL avx2MulSplit##T(const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t counts, int64_t far, int64_t sp) { \
    mul_split(T, w, ws, x, sums, y, ys, n, counts, far, sp);                                                                                                         \
  }
SPLIT(1) SPLIT(2) SPLIT(4) SPLIT(8)

// Split lays tokens out as avx512Split does.
KERNEL avx2Split(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) {
  ROLLED for (; n > 0; n -= 32, OPAQUE(n)) {
    UNROLL for (int i = 0; i < 2; i++) {
      const float *from = (const float *)src + 16 * i;
      const __m256 a = _mm256_maskload_ps(from, low(n - 16 * i)), b = _mm256_maskload_ps(from + 8, low(n - 16 * i - 8));
      const __m256 even = _mm256_shuffle_ps(a, b, 0x88), odd = _mm256_shuffle_ps(a, b, 0xdd);
      _mm256_storeu_ps((float *)dst + 8 * i, (__m256)_mm256_permute4x64_epi64((__m256i)even, 0xd8));
      _mm256_storeu_ps((float *)dst + 16 + 8 * i, (__m256)_mm256_permute4x64_epi64((__m256i)odd, 0xd8));
    }
    dst += step, src += 128;
  }
}

// SplitOne is MulSplit of one token, in whole blocks, from the first k to the last. Memory bandwidth
// limits it, so it reads 8 streams of neighbouring rows at once, as avx512_one.c does. Each line of
// 64 bytes is prefetched AHEAD bytes early, across the ends of rows and of the streams.
enum { STREAMS = 8, LAST = AHEAD / 64 };

// lines is the number of lines of n weights. last is the number of lines at the end that prefetch
// the next row.
INLINE int64_t lines(int64_t n) {
  OPAQUE(n);
  return (int64_t)((uint64_t)n >> 5);
}

INLINE int64_t last(int64_t n) {
  n = lines(n);
  return n < LAST ? n : LAST;
}

#define STREAM(p, r) ((p) + ((r) == 7 ? ss7 : (r) == 6 ? 2 * ss3 : (r) == 5 ? ss5 : (r) == 3 ? ss3 : (r) * ss))

// row computes one row of each of R streams, ss bytes apart; count rows of a stream remain. Values
// that follow from n are computed again, as there is no register for them.
INLINE const uint8_t *row(int R, const uint8_t *w, int64_t ws, int64_t ss, __m128i count, const uint8_t **token, int64_t n, __m256 acc[8]) {
  int64_t ss3 = times(ss, 3);
  const int64_t ss5 = times(ss, 5), ss7 = times(ss, 7);
  const uint8_t *x = *token;
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
#define LINES                                                                                                       \
  ROLLED for (; left > 0; left--, OPAQUE(left)) {                                                                   \
    UNROLL for (int i = 0; i < 2; i++) {                                                                            \
      OPAQUE(w), OPAQUE(x), OPAQUE(next), OPAQUE(ss), OPAQUE(ss3); /* or multiples of them are kept */             \
      const __m256 even = _mm256_loadu_ps((const float *)x + 8 * i), odd = _mm256_loadu_ps((const float *)x + 16 + 8 * i); \
      UNROLL for (int r = 0; r < R; r++) {                                                                          \
        if (i == 0) _mm_prefetch(STREAM(next, r), _MM_HINT_T0);                                                     \
        const __m256i v = _mm256_loadu_si256((const __m256i *)(STREAM(w, r) + 32 * i));                             \
        add(&acc[r], half(v, 0), even);                                                                             \
        add(&acc[r], half(v, 1), odd);                                                                              \
      }                                                                                                             \
    }                                                                                                               \
    w += 64, next += 64, x += 128;                                                                                  \
  }
  const uint8_t *next = w + 64 * last(n);
  int64_t left = lines(n) - last(n);
  LINES
  left = last(n);
  next = w + 64 * left - 64 * lines(n) + (R == 4 ? 4 * ws : R > 1 && reload(count) == 1 ? ws + ss7 : ws);
  LINES
  left = 64 * lines(n);
  *token = x - 2 * left;
  return w - left + ws;
}

// one computes all rows, in blocks of the largest size that remains.
INLINE void one(int most, const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t n, int64_t rows) {
  __m256 acc[8];
  const __m128i all = spill(rows);
  if (most == 8) ROLLED for (int64_t i = rows >> 3; i > 0; i--, OPAQUE(i)) {
    const __m128i out = spill((int64_t)y), count = spill(i);
    w = row(STREAMS, w, ws, times(ws, 1) * (reload(all) >> 3), count, &x, n, acc);
    uint8_t *to = (uint8_t *)reload(out);
    i = reload(count);
    const int64_t ys = reload(all) >> 3 << 2;
    y = to + 4;
    UNROLL for (int r = 0; r < 8; r += 4) {
      __m128 sums = folds(acc[r], acc[r + 1], acc[r + 2], acc[r + 3]);
      UNROLL for (int k = 0; k < 4; k++) {
        _mm_store_ss((float *)to, sums);
        sums = _mm_shuffle_ps(sums, sums, 0x39); // the next
        to += ys;
        OPAQUE(to);
      }
    }
  }
  rows = reload(all);
  if (most == 8) w += times(ws, 7) * (rows >> 3), y += 28 * (rows >> 3);
  if (most == 8 && rows & 4) {
    row(4, w, ws, ws, all, &x, n, acc);
    _mm_storeu_ps((float *)y, folds(acc[0], acc[1], acc[2], acc[3]));
    w += 4 * ws, y += 16;
  }
  if (most == 4) ROLLED for (rows >>= 2; rows > 0; rows--, OPAQUE(rows)) {
    const __m128i out = spill((int64_t)y), count = spill(rows);
    w = row(4, w, ws, ws, all, &x, n, acc);
    y = (uint8_t *)reload(out), rows = reload(count);
    _mm_storeu_ps((float *)y, folds(acc[0], acc[1], acc[2], acc[3]));
    w += times(ws, 3), y += 16;
  }
  rows = reload(all);
  if (most > 1) rows &= 3;
  ROLLED for (; rows > 0; rows--, OPAQUE(rows)) {
    w = row(1, w, ws, ws, all, &x, n, acc);
    *(float *)y = fold(acc[0]);
    y += 4;
  }
}

#define ONE(R) \
  KERNEL avx2SplitOne##x##R(const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t n, int64_t rows) { one(R, w, ws, x, y, n, rows); }
ONE(8) ONE(4) ONE(1)
