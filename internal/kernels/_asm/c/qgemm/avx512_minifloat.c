// AVX-512: dot products of stored E4M3 and MXFP4 weights with a small batch of tokens. Each weight
// is widened once for all tokens. See codes.h, and avx512_minifloat_one.c for one token, whose sums
// have the same order.
#include "codes.h"

// ends_times writes the sums of R rows and T tokens, times by.
INLINE void ends_times(int R, int T, __m512 acc[4][8], float by, uint8_t *y, int64_t ys) {
  UNROLL for (int t = 0; t < T; t++) {
    if (R == 4) {
      _mm_storeu_ps((float *)y, _mm_mul_ps(folds(acc[0][t], acc[1][t], acc[2][t], acc[3][t]), _mm_set1_ps(by)));
    } else {
      UNROLL for (int r = 0; r < R; r++) ((float *)y)[r] = fold(acc[r][t]) * by;
    }
    y += ys;
    OPAQUE(y);
  }
}

// widen stores n codes of R rows as float32: for each line, row by row, the vectors that are
// multiplied by a token. Products then do not wait for conversions.
INLINE void widen(int f, int R, const uint8_t *w, int64_t ws, uint8_t *room, int64_t n) {
  const __m512 table = values();
  ROLLED for (; n > 0; n -= columns_of(f), OPAQUE(n)) {
    const int64_t bytes = f == E4M3 ? n : n >> 1;
    const __mmask64 m = bytes < 64 ? _bzhi_u64(~0ull, (uint64_t)bytes) : ~0ull;
    const uint8_t *p = w;
    UNROLL for (int r = 0; r < R; r++, p += ws) {
      OPAQUE(p), OPAQUE(room);
      const __m512i codes = _mm512_maskz_loadu_epi8(m, p);
      if (f == E4M3) {
        UNROLL for (int odd = 0; odd < 2; odd++) {
          const __m512i h = halves(codes, odd);
          UNROLL for (int high = 0; high < 2; high++) _mm512_storeu_ps(room + 128 * odd + 64 * high, half(h, high));
        }
      } else {
        UNROLL for (int i = 0; i < 8; i++) _mm512_storeu_ps(room + 64 * i, VALUE(codes, i));
      }
      room += 4 * columns_of(f);
    }
    w += 64;
    OPAQUE(w);
  }
}

#define WIDEN(f, R) \
  KERNEL avx512##f##Widen##R(const uint8_t *w, int64_t ws, uint8_t *room, int64_t n) { widen(f, R, w, ws, room, n); }
WIDEN(E4M3, 3) WIDEN(E4M3, 4) WIDEN(MXFP4, 3) WIDEN(MXFP4, 4)

// meet adds the products of a line of R rows with T tokens. For MXFP4 each line has a sum of its
// own.
INLINE void meet(int f, int R, int T, const uint8_t *room, const uint8_t *x, __m512 acc[4][8]) {
  UNROLL for (int i = 0; i < columns_of(f) / 16; i++) {
    __m512 a[4];
    OPAQUE(room), OPAQUE(x);
    UNROLL for (int r = 0; r < R; r++) a[r] = _mm512_loadu_ps(room + r * 4 * columns_of(f) + 64 * i);
    UNROLL for (int t = 0; t < T; t++) {
      const int at = f == E4M3 ? i % 2 * 128 * T + 128 * t + i / 2 * 64 : 512 * t + 64 * i;
      const __m512 in = _mm512_loadu_ps(x + at);
      UNROLL for (int r = 0; r < R; r++) acc[r][t] = f == MXFP4 && i == 0 ? _mm512_mul_ps(a[r], in) : _mm512_fmadd_ps(a[r], in, acc[r][t]);
    }
    UNROLL for (int k = 0; k < R * T; k++) __asm__ volatile("" : "+v"(acc[k % R][k / R])); // keeps the steps in this order
  }
}

// small_batch adds n columns of R widened rows for T tokens to sums. flags: 1 if the sums begin at 0, 2 if
// they end. Meanwhile it prefetches rows from next on, ws bytes apart. For MXFP4 the partial sums
// are those of a line, as each line has its own scales, ws / 16 bytes apart from row to row.
INLINE void small_batch(int f, int R, int T, const uint8_t *room, const uint8_t *x, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t flags, const uint8_t *next, int64_t ws, int64_t far, const uint8_t *scales) {
  __m512 acc[4][8];
  __mmask16 keep = flags & 1 ? 0 : 0xffff;
  next += far;
  if (f == E4M3) {
    UNROLL for (int i = 0; i < R * T; i++) acc[i % R][i / R] = _mm512_maskz_loadu_ps(keep, sums + 64 * i);
  }
  ROLLED for (; n > 0; n -= columns_of(f), OPAQUE(n)) {
    const uint8_t *p = next;
    UNROLL for (int r = 0; r < R; r++, p += ws) {
      OPAQUE(p);
      _mm_prefetch(p, _MM_HINT_T1);
    }
    meet(f, R, T, room, x, acc);
    if (f == MXFP4) {
      const __mmask16 whole = (__mmask16)(n < 128 ? _bzhi_u32(15, (uint32_t)n >> 5) : 15);
      p = scales;
      UNROLL for (int r = 0; r < R; r++, p += ws >> 4) {
        OPAQUE(p);
        const __m512 by = powers(_mm512_broadcastd_epi32(_mm_maskz_loadu_epi8(whole, p)));
        UNROLL for (int t = 0; t < T; t++) {
          OPAQUE(sums);
          uint8_t *total = sums + 64 * (t * R + r);
          _mm512_storeu_ps(total, _mm512_fmadd_ps(acc[r][t], by, _mm512_maskz_loadu_ps(keep, total)));
        }
      }
      keep = 0xffff, scales += 4;
    }
    next += 64, x += 4 * T * columns_of(f), room += 4 * R * columns_of(f);
    OPAQUE(next), OPAQUE(x), OPAQUE(room);
  }
  if (flags & 2) {
    if (f == MXFP4) {
      UNROLL for (int i = 0; i < R * T; i++) acc[i % R][i / R] = _mm512_loadu_ps(sums + 64 * i);
    }
    ends_times(R, T, acc, f == E4M3 ? 256 : 1, y, ys);
  } else if (f == E4M3) {
    UNROLL for (int i = 0; i < R * T; i++) _mm512_storeu_ps(sums + 64 * i, acc[i % R][i / R]);
  }
}

#define FEW(f, R, T)                                                                                                                                                                             \
  KERNEL avx512##f##SmallBatch##T(const uint8_t *room, const uint8_t *x, uint8_t *sums, uint8_t *y, int64_t ys, int64_t n, int64_t flags, const uint8_t *next, int64_t ws, int64_t far, const uint8_t *scales) { \
    small_batch(f, R, T, room, x, sums, y, ys, n, flags, next, ws, far, scales);                                                                                                                             \
  }
FEW(E4M3, 4, 2) FEW(E4M3, 4, 4) FEW(E4M3, 3, 8) FEW(MXFP4, 4, 2) FEW(MXFP4, 4, 4) FEW(MXFP4, 3, 8)

// PackMXFP4 lays tokens out in blocks of 128 elements, step bytes apart: element i of each eight,
// for i from 0 to 7. It fills the last block with zeros.
KERNEL avx512PackMXFP4(uint8_t *dst, int64_t step, const uint8_t *src, int64_t n) {
  const __m512i each = _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120);
  ROLLED for (; n > 0; n -= 128, OPAQUE(n)) {
    const __mmask16 m = n >= 128 ? 0xffff : (__mmask16)_bzhi_u32(0xffff, (uint32_t)n >> 3);
    ROLLED for (int i = 0; i < 8; i++) {
      _mm512_storeu_ps(dst + 64 * i, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), m, each, src + 4 * i, 4));
    }
    dst += step, src += 512;
  }
}

// ScaleBlocks multiplies n floats by scales, each of which is for a run of as many floats. All
// counts are multiples of 32.
KERNEL avx512ScaleBlocks(uint8_t *dst, const uint8_t *src, int64_t n, int64_t each, const uint8_t *scales) {
  ROLLED while (n > 0) {
    const __m512 by = _mm512_set1_ps(*(const float *)scales);
    int64_t left = n < each ? n : each;
    n -= left, scales += 4;
    ROLLED for (; left > 0; left -= 32, OPAQUE(left)) {
      _mm512_storeu_ps(dst, _mm512_mul_ps(_mm512_loadu_ps(src), by));
      _mm512_storeu_ps(dst + 64, _mm512_mul_ps(_mm512_loadu_ps(src + 64), by));
      dst += 128, src += 128;
    }
  }
}
