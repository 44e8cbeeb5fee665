// AVX-512 BF16: packed products of bfloat16 with bfloat16, added up in float32.
#include "pairs.h"

// PackTokens writes up to 16 rows of x as a panel of bfloat16: for each pair of k the
// pairs of 16 tokens. Zeros fill it up to 16 tokens and a multiple of 32 k. It reads the last row again in place of absent
// ones: a load takes some hundred cycles where its mask is empty and its page is not mapped.
KERNEL avx512bf16PackTokens(uint8_t *dst, const uint8_t *x, int64_t xs, int64_t tokens, int64_t n) {
  ROLLED for (; n > 0; OPAQUE(n)) {
    const __mmask16 first = low(n > 16 ? 16 : n), second = low(n > 32 ? 16 : n > 16 ? n - 16 : 0);
    __m512i v[16];
    const uint8_t *row = x;
    UNROLL for (int t = 0; t < 16; t++) {
      OPAQUE(tokens);
      const __mmask16 is = tokens > t ? 0xffff : 0;
      v[t] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(second & is, row + 64), _mm512_maskz_loadu_ps(first & is, row));
      if (tokens > t + 1) row += xs;
      OPAQUE(row);
    }
    transpose16(v);
    UNROLL for (int i = 0; i < 16; i++) _mm512_storeu_si512(dst + 64 * i, v[i]);
    dst += 1024, x += 128, n -= 32;
  }
}

enum { NOWHERE, FIRST_LEVEL, SECOND_LEVEL };

// pack_row writes left elements of a row that is there into the blocks of a pack, or zeros. It prefetches ahead bytes early into a cache.
INLINE void pack_row(int there, uint8_t *to, const uint8_t *row, int64_t left, int64_t ahead, int cache) {
  if (there) {
    ROLLED for (; left >= 32; left -= 32, OPAQUE(left)) {
      if (cache == FIRST_LEVEL) _mm_prefetch(row + ahead, _MM_HINT_T0);
      if (cache == SECOND_LEVEL) _mm_prefetch(row + ahead, _MM_HINT_T1);
      _mm512_storeu_si512(to, _mm512_loadu_si512(row));
      to += 1024, row += 64;
    }
    if (left > 0) _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(_bzhi_u32(0xffffffff, (uint32_t)left), row));
  } else {
    ROLLED for (; left > 0; left -= 32, OPAQUE(left)) {
      _mm512_storeu_si512(to, _mm512_setzero_si512());
      to += 1024;
    }
  }
}

// PackRows writes up to 16 rows of w as blocks of 16 rows by 32 k. Zeros fill it up to 16
// rows and a multiple of 32 k. It goes through 16 blocks at a time, which the first-level
// cache holds.
KERNEL avx512bf16PackRows(uint8_t *dst, const uint8_t *w, int64_t ws, int64_t rows, int64_t n) {
  ROLLED for (; n > 0; n -= 512) {
    const uint8_t *first = w;
    ROLLED for (int64_t r = 0; r < 16; r++, OPAQUE(r)) {
      pack_row(r < rows, dst, first, n > 512 ? 512 : n, 1024, FIRST_LEVEL);
      dst += 64, first += ws;
    }
    dst += 16 * 1024 - 1024, w += 1024;
  }
}

// PackWholeRows is PackRows row by row, in the order of memory.
KERNEL avx512bf16PackWholeRows(uint8_t *dst, const uint8_t *w, int64_t ws, int64_t rows, int64_t n) {
  ROLLED for (int64_t r = 0; r < 16; r++, OPAQUE(r)) {
    pack_row(r < rows, dst, w, n, 8192, SECOND_LEVEL);
    dst += 64, w += ws;
  }
}

// PackPiece is PackRows for some packs, one after another, whose rows are in the second-level cache: it prefetches nothing.
KERNEL avx512bf16PackPiece(uint8_t *dst, const uint8_t *w, int64_t ws, int64_t rows, int64_t n, int64_t packs) {
  const int64_t further = ((n + 31) & -32) * 32 - 1024;
  ROLLED for (; packs > 0; packs--, OPAQUE(packs)) {
    ROLLED for (int64_t r = 16; r > 0; r--, OPAQUE(r)) {
      pack_row(rows > 0, dst, w, n, 0, NOWHERE);
      dst += 64, w += ws, rows--;
    }
    dst += further;
  }
}

// tile adds 8 rows times 32 tokens to c, over blocks of 32 k. It prefetches as many bytes as its weights from next on.
INLINE void tile(const uint8_t *w, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t add, const uint8_t *next) {
  __m512 acc[8][2];
  uint8_t *out = c;
  const __mmask16 keep = add ? 0xffff : 0;
  UNROLL for (int r = 0; r < 8; r++) {
    UNROLL for (int t = 0; t < 2; t++) acc[r][t] = _mm512_maskz_loadu_ps(keep, out + 64 * t);
    out += cs;
    OPAQUE(out);
  }
  ROLLED for (; blocks > 0; blocks--) {
    UNROLL for (int i = 0; i < 8; i++) _mm_prefetch(next + 64 * i, _MM_HINT_T1);
    next += 512;
    ROLLED for (int64_t k = 16; k > 0; k--, OPAQUE(k)) {
      OPAQUE(w), OPAQUE(x);
      __m512i a = _mm512_loadu_si512(x), b = _mm512_loadu_si512(x + xs);
      UNROLL for (int r = 0; r < 8; r++) {
        __m512i v = _mm512_set1_epi32(*(const int32_t *)(w + 64 * r));
        acc[r][0] = _mm512_dpbf16_ps(acc[r][0], pairs(v), pairs(a));
        acc[r][1] = _mm512_dpbf16_ps(acc[r][1], pairs(v), pairs(b));
      }
      w += 4, x += 64;
    }
    w += 1024 - 64;
  }
  UNROLL for (int r = 0; r < 8; r++) {
    UNROLL for (int t = 0; t < 2; t++) _mm512_storeu_ps(c + 64 * t, acc[r][t]);
    c += cs;
    OPAQUE(c);
  }
}

// Tile computes c[r][t] for 8 rows of a pack and pairs of panels of tokens, xs bytes
// apart, over blocks of 32 k. Where add is set it goes on from what c has. Beside the first pair it prefetches as many
// bytes as its weights from next on, which may be w.
KERNEL avx512bf16Tile(const uint8_t *w, const uint8_t *x, int64_t xs, uint8_t *c, int64_t cs, int64_t blocks, int64_t couples, int64_t add, const uint8_t *next) {
  ROLLED for (; couples > 0; OPAQUE(couples)) {
    tile(w, x, xs, c, cs, blocks, add, next);
    x += times(xs, 2), c += 128, couples--, next = w;
  }
}

// TransposeAddBias sets y[t][r] = c[r][t] + bias[r] for up to 16 rows. bias may be nil.
KERNEL avx512bf16TransposeAddBias(uint8_t *y, int64_t ys, const uint8_t *c, int64_t cs, const uint8_t *bias, int64_t rows, int64_t tokens) {
  const __mmask16 m = low(rows);
  const __m512 b = bias ? _mm512_maskz_loadu_ps(m, bias) : _mm512_setzero_ps();
  ROLLED for (; tokens > 0; OPAQUE(tokens)) {
    __m512i v[16];
    const uint8_t *row = c;
    UNROLL for (int r = 0; r < 16; r++) {
      v[r] = _mm512_loadu_si512(row);
      row += cs;
      OPAQUE(row);
    }
    transpose16(v);
    UNROLL for (int t = 0; t < 16; t++) {
      if (tokens > t) _mm512_mask_storeu_ps(y, m, bias ? _mm512_add_ps((__m512)v[t], b) : (__m512)v[t]);
      y += ys;
      OPAQUE(y);
    }
    c += 64, tokens -= 16;
  }
}
