// AVX-512: dot products of stored E4M3 and MXFP4 weights with one token, as in avx512_one.c: 8
// streams of neighbouring rows, each line prefetched AHEAD bytes early. See codes.h for how codes
// are widened, and avx512_minifloat.c for more tokens, whose sums have the same order.
#include "codes.h"

enum { STREAMS = 8, AHEAD = DISTANCE(1024) };

// first is the number of lines of a row that are prefetched with the row before.
INLINE int64_t first(int f, __m128i columns) {
  const int64_t n = lines(f, reload_wide(columns));
  return n < AHEAD / 64 ? n : AHEAD / 64;
}

// row computes one row of each of R streams, ss bytes apart. It prefetches the next rows, and after
// the last row the next streams.
INLINE const uint8_t *row(int f, int R, const uint8_t *w, __m128i stride, int64_t ss, __m128i far, const uint8_t *scales, const uint8_t **token, __m128i columns, __m512 acc[8]) {
  const __m512 table = values();
  const uint8_t *x = *token;
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
  if (f == MXFP4) { // the next scales
    ROLLED for (int64_t i = lines(f, reload_wide(columns)); i > 0; i -= 16) {
      const uint8_t *q = scales + (reload_wide(far) >> 4) + 4 * i - 1;
      UNROLL for (int r = 0; r < R; r++, q += ss >> 4) {
        OPAQUE(q);
        _mm_prefetch(q, _MM_HINT_T0);
      }
    }
  }
  int64_t left = lines(f, reload_wide(columns)) - first(f, columns), ahead = 64 * first(f, columns);
  const int64_t qs = ss >> 4;
  ROLLED for (__m128i parts = spill_wide(1);; parts = spill_wide(0)) {
    ROLLED for (; left > 0; left--, OPAQUE(left)) {
      __m512 in[8];
      UNROLL for (int i = 0; i < columns_of(f) / 16; i++) in[i] = _mm512_loadu_ps(x + 64 * i);
      const uint8_t *p = w, *q = scales;
      UNROLL for (int r = 0; r < R; r++) {
        OPAQUE(p);
        _mm_prefetch(p + ahead, _MM_HINT_T0);
        if (f == E4M3) {
          acc[r] = add8(_mm512_loadu_si512(p), in, acc[r]);
        } else {
          OPAQUE(q);
          acc[r] = _mm512_fmadd_ps(line4(p, table, in), powers(_mm512_set1_epi32(*(const int32_t *)q)), acc[r]);
          q += qs;
        }
        p += ss;
        AFTER(p, acc[r]);
      }
      w += 64, x += 4 * columns_of(f);
      if (f == MXFP4) scales += 4;
      OPAQUE(w), OPAQUE(x), OPAQUE(scales);
    }
    if (reload_wide(parts) == 0) break;
    left = first(f, columns) - 1;
    ahead = reload_wide(far) - 64 * lines(f, reload_wide(columns)) + 64 * first(f, columns);
  }
  // The last line may be shorter.
  left = reload_wide(columns) - columns_of(f) * (lines(f, reload_wide(columns)) - 1);
  const __mmask64 m = _bzhi_u64(~0ull, (uint64_t)(f == E4M3 ? left : left >> 1));
  const __mmask16 blocks = (__mmask16)_bzhi_u32(15, (uint32_t)left >> 5);
  __m512 in[8];
  UNROLL for (int i = 0; i < columns_of(f) / 16; i++) in[i] = _mm512_loadu_ps(x + 64 * i);
  const uint8_t *p = w, *q = scales;
  UNROLL for (int r = 0; r < R; r++) {
    OPAQUE(p);
    _mm_prefetch(p + ahead, _MM_HINT_T0);
    const __m512i codes = _mm512_maskz_loadu_epi8(m, p);
    if (f == E4M3) {
      acc[r] = add8(codes, in, acc[r]);
    } else {
      OPAQUE(q);
      acc[r] = _mm512_fmadd_ps(end4(codes, table, in), powers(_mm512_broadcastd_epi32(_mm_maskz_loadu_epi8(blocks, q))), acc[r]);
      q += qs;
    }
    p += ss;
    AFTER(p, acc[r]);
  }
  left = 64 * (lines(f, reload_wide(columns)) - 1);
  *token = x - left / 64 * 4 * columns_of(f);
  return w - left + reload_wide(stride);
}

INLINE __m512 folded(int f, __m512 sums) { return f == E4M3 ? _mm512_mul_ps(sums, _mm512_set1_ps(256)) : sums; }

INLINE void one(int f, const uint8_t *w, int64_t ws, const uint8_t *scales, const uint8_t *x, uint8_t *y, int64_t n, int64_t rows) {
  __m512 acc[8];
  const __m128i all = spill_wide(rows), columns = spill_wide(n);
  ROLLED for (int64_t i = rows >> 3; i > 0; i--, OPAQUE(i)) {
    const __m128i out = spill_wide((int64_t)y), count = spill_wide(i), lying = spill_wide((int64_t)scales + (ws >> 4)), stride = spill_wide(ws);
    const int64_t ss = times(ws, 1) * (reload_wide(all) >> 3);
    w = row(f, STREAMS, w, stride, ss, spill_wide(i == 1 ? ws + times(ss, 7) : ws), scales, &x, columns, acc);
    uint8_t *to = (uint8_t *)reload_wide(out);
    if (f == MXFP4) scales = (const uint8_t *)reload_wide(lying);
    ws = reload_wide(stride);
    i = reload_wide(count);
    const int64_t ys = reload_wide(all) >> 3 << 2;
    y = to + 4;
    __m512 sums = folded(f, fold8(acc));
    UNROLL for (int r = 0; r < 4; r++) {
      const __m128 q = _mm512_castps512_ps128(sums);
      *(float *)to = _mm_cvtss_f32(q);
      *(float *)(to + 4 * ys) = _mm_cvtss_f32(_mm_movehl_ps(q, q));
      sums = _mm512_shuffle_f32x4(sums, sums, 0x39); // the next quarter
      to += ys;
      OPAQUE(to);
    }
  }
  rows = reload_wide(all), n = reload_wide(columns);
  w += times(ws, 7) * (rows >> 3), y += 28 * (rows >> 3);
  if (f == MXFP4) scales += (times(ws, 7) >> 4) * (rows >> 3);
  ROLLED for (rows &= 7; rows > 0; rows--, OPAQUE(rows)) {
    const __m128i out = spill_wide((int64_t)y), count = spill_wide(rows), lying = spill_wide((int64_t)scales + (ws >> 4)), stride = spill_wide(ws);
    w = row(f, 1, w, stride, ws, stride, scales, &x, columns, acc);
    y = (uint8_t *)reload_wide(out), rows = reload_wide(count), ws = reload_wide(stride);
    if (f == MXFP4) scales = (const uint8_t *)reload_wide(lying);
    const __m512 sum = _mm512_castps128_ps512(_mm_set_ss(fold(acc[0])));
    *(float *)y = _mm512_cvtss_f32(folded(f, sum));
    y += 4;
  }
}

KERNEL avx512E4M3One(const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t n, int64_t rows) { one(E4M3, w, ws, 0, x, y, n, rows); }
// The scales of rows are ws / 16 bytes apart.
KERNEL avx512MXFP4One(const uint8_t *w, int64_t ws, const uint8_t *x, uint8_t *y, int64_t n, int64_t rows, const uint8_t *scales) { one(MXFP4, w, ws, scales, x, y, n, rows); }
