// AVX2: packed products of float32 matrices, in tiles of 6 rows by 16 columns. A panel has,
// for each k, 8 lanes.
#include "common.h"
#include "avx2panels.h"

enum { ROWS = 6 };

// Product is avx512Product for panels of 6 rows and up to 16 columns.
KERNEL avx2Product(const uint8_t *a, int64_t as, const uint8_t *b, int64_t bs, uint8_t *c, int64_t cs, int64_t n, int64_t rows, int64_t cols, int64_t add) {
  ROLLED for (; rows > 0; rows -= ROWS) {
    __m256 acc[ROWS][2];
    uint8_t *to = c;
    UNROLL for (int r = 0; r < ROWS; r++) {
      acc[r][0] = acc[r][1] = _mm256_setzero_ps();
      _mm_prefetch(to, _MM_HINT_T0);
      to += cs;
      OPAQUE(to);
    }
    b = steps(ROWS, acc, a, b, bs, n);
    OPAQUE(cols);
    UNROLL for (int r = 0; r < ROWS; r++) {
      if (rows > r) {
        float *y = (float *)c;
        if (add) {
          acc[r][0] = _mm256_add_ps(acc[r][0], _mm256_maskload_ps(y, edge(cols)));
          acc[r][1] = _mm256_add_ps(acc[r][1], _mm256_maskload_ps(y + 8, edge(cols - 8)));
        }
        _mm256_maskstore_ps(y, edge(cols), acc[r][0]);
        _mm256_maskstore_ps(y + 8, edge(cols - 8), acc[r][1]);
      }
      c += cs;
      OPAQUE(c), OPAQUE(cols);
    }
    a += as;
  }
}

// Lines fills panels, ds bytes apart, from rows of memory: dst[p][k][i] = x[k][p * high + i], zeros from
// high and from width on.
KERNEL avx2Lines(uint8_t *dst, int64_t ds, const uint8_t *x, int64_t xs, int64_t width, int64_t high, int64_t n) {
  const __m256i whole = edge(high);
  ROLLED for (; n > 0; n--) {
    uint8_t *to = dst;
    const uint8_t *from = x;
    int64_t left = width;
    ROLLED for (; left > high; left -= high, to += ds, from += 4 * high) {
      _mm256_storeu_ps((float *)to, _mm256_maskload_ps((const float *)from, whole));
      OPAQUE(left);
    }
    _mm256_storeu_ps((float *)to, _mm256_maskload_ps((const float *)from, edge(left)));
    dst += 32, x += xs;
  }
}

// Columns fills a panel from columns of memory: dst[k][i] = x[i][k], zeros from width on.
KERNEL avx2Columns(uint8_t *dst, const uint8_t *x, int64_t xs, int64_t width, int64_t n) {
  ROLLED for (; n > 0; OPAQUE(n)) {
    __m256 v[8], t[8];
    const uint8_t *row = x;
    UNROLL for (int i = 0; i < 8; i++) {
      v[i] = _mm256_maskload_ps((const float *)row, edge(width > i ? n : 0));
      row += xs;
      OPAQUE(row);
    }
    UNROLL for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4) {
      v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    UNROLL for (int i = 0; i < 8; i++) {
      if (n > i) _mm256_storeu_ps((float *)(dst + 32 * i), i < 4 ? _mm256_permute2f128_ps(v[i % 4], v[i % 4 + 4], 0x20) : _mm256_permute2f128_ps(v[i % 4], v[i % 4 + 4], 0x31));
    }
    dst += 256, x += 32, n -= 8;
  }
}
