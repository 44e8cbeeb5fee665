// AVX-512: packed products of float32 matrices, in tiles of 14 rows by 32 columns. A panel
// has, for each k, 16 lanes.
#include "wide.h"

enum { ROWS = 14 };

// Product computes c[i][j] = sum over k of a[k][i] b[k][j], for rows in panels of 14 that
// lie as bytes apart and up to 32 columns in two panels bs bytes apart. With add the sums
// are added to what c has.
KERNEL avx512Product(const uint8_t *a, int64_t as, const uint8_t *b, int64_t bs, uint8_t *c, int64_t cs, int64_t n, int64_t rows, int64_t cols, int64_t add) {
  const __mmask16 m0 = low(cols > 16 ? 16 : cols), m1 = low(cols > 16 ? cols - 16 : 0);
  ROLLED for (; rows > 0; rows -= ROWS) {
    __m512 acc[ROWS][2];
    uint8_t *to = c;
    UNROLL for (int r = 0; r < ROWS; r++) {
      acc[r][0] = acc[r][1] = _mm512_setzero_ps();
      _mm_prefetch(to, _MM_HINT_T0);
      _mm_prefetch(to + 64, _MM_HINT_T0);
      to += cs;
      OPAQUE(to);
    }
    const uint8_t *x = a;
    int64_t left = n;
    ROLLED for (; left > 0; left--) {
      OPAQUE(x), OPAQUE(b);
      const __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + bs);
      UNROLL for (int r = 0; r < ROWS; r++) {
        const __m512 v = _mm512_set1_ps(((const float *)x)[r]);
        acc[r][0] = _mm512_fmadd_ps(v, b0, acc[r][0]);
        acc[r][1] = _mm512_fmadd_ps(v, b1, acc[r][1]);
      }
      x += 64, b += 64;
    }
    b -= times(n, 64);
    UNROLL for (int r = 0; r < ROWS; r++) {
      if (rows > r) {
        if (add) {
          acc[r][0] = _mm512_add_ps(acc[r][0], _mm512_maskz_loadu_ps(m0, c));
          acc[r][1] = _mm512_add_ps(acc[r][1], _mm512_maskz_loadu_ps(m1, c + 64));
        }
        _mm512_mask_storeu_ps(c, m0, acc[r][0]);
        _mm512_mask_storeu_ps(c + 64, m1, acc[r][1]);
      }
      c += cs;
      OPAQUE(c);
    }
    a += as;
  }
}

// Lines fills panels, ds bytes apart, from rows of memory: dst[p][k][i] = x[k][p * high + i], zeros from
// high and from width on.
KERNEL avx512Lines(uint8_t *dst, int64_t ds, const uint8_t *x, int64_t xs, int64_t width, int64_t high, int64_t n) {
  const __mmask16 whole = low(high);
  ROLLED for (; n > 0; n--) {
    uint8_t *to = dst;
    const uint8_t *from = x;
    int64_t left = width;
    ROLLED for (; left > high; left -= high, to += ds, from += 4 * high) {
      _mm512_storeu_ps(to, _mm512_maskz_loadu_ps(whole, from));
      OPAQUE(left);
    }
    _mm512_storeu_ps(to, _mm512_maskz_loadu_ps(low(left), from));
    dst += 64, x += xs;
  }
}

// Columns fills a panel from columns of memory: dst[k][i] = x[i][k], zeros from width on.
KERNEL avx512Columns(uint8_t *dst, const uint8_t *x, int64_t xs, int64_t width, int64_t n) {
  ROLLED for (; n > 0; OPAQUE(n)) {
    const __mmask16 part = low(n > 16 ? 16 : n);
    __m512i v[16];
    const uint8_t *row = x;
    UNROLL for (int i = 0; i < 16; i++) {
      const __mmask16 is = width > i ? part : 0;
      v[i] = (__m512i)_mm512_maskz_loadu_ps(is, row);
      row += xs;
      OPAQUE(row);
    }
    transpose16(v);
    UNROLL for (int i = 0; i < 16; i++) {
      if (n > i) _mm512_storeu_si512(dst + 64 * i, v[i]);
    }
    dst += 1024, x += 64, n -= 16;
  }
}
