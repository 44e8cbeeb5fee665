// AVX-512 kernels that add products with codes of 4 and 8 bits down 128 columns: see sums.go. B is the number of bits, a
// constant. Needs F, BW, DQ and VL.
#include "wide.h"

// value is (code - zero) * scale, the code in the highest bits of the mantissa and 2^B already added to zero: with the exponent
// of 2^B in front of it the code is 2^B + code as a float.
INLINE __m512 value(int B, __m512i bits, __m512 zero, __m512 scale) {
  const __m512i mask = _mm512_set1_epi32(((1 << B) - 1) << (23 - B)), exponent = _mm512_set1_epi32((127 + B) << 23);
  __m512i f = _mm512_ternarylogic_epi32(bits, mask, exponent, 0xea);
  return _mm512_mul_ps(_mm512_sub_ps(_mm512_castsi512_ps(f), zero), scale);
}

// What does not fit in registers; see nibbleShape in sums_amd64.go. Strides and distances are in bytes.
typedef struct {
  int64_t ls, xs, tokens, ws, n, ahead;
} shape;

// add_values adds lanes[k mod 16] += x[k] values[k] for 16 columns and each token. s->n is a multiple of 16.
INLINE void add_values(uint8_t *lanes, const uint8_t *x, const uint8_t *values, const shape *s) {
  ROLLED for (int64_t tokens = s->tokens; tokens > 0; tokens--) {
    __m512 acc[16];
    UNROLL for (int l = 0; l < 16; l++) acc[l] = _mm512_loadu_ps(lanes + 512 * l);
    const uint8_t *v = values, *in = x;
    int64_t left = s->n;
    ROLLED for (; left > 0; left -= 16) {
      UNROLL for (int l = 0; l < 16; l++) acc[l] = _mm512_fmadd_ps(_mm512_set1_ps(((const float *)in)[l]), _mm512_loadu_ps(v + 64 * l), acc[l]);
      v += 1024, in += 64;
    }
    UNROLL for (int l = 0; l < 16; l++) _mm512_storeu_ps(lanes + 512 * l, acc[l]);
    lanes += s->ls, x += s->xs;
  }
}

#define SUMS_ARGS uint8_t *lanes, const uint8_t *x, const uint8_t *words, const uint8_t *table, uint8_t *values, const shape *s

// shifted has code i of each word in the highest bits of the mantissa. i is a constant.
INLINE __m512i shifted(int B, __m512i c, int i) {
  const int left = 23 - B - B * i;
  return left >= 0 ? _mm512_slli_epi32(c, left >= 0 ? left : 0) : _mm512_srli_epi32(c, left >= 0 ? 0 : -left);
}

// The words of a row have 32/B rows of a column each. s->ahead is where those that come next are. Rows may be a power of two
// apart, so that the first-level cache holds few of them: they come to the second.
INLINE void add_rows(int B, SUMS_ARGS) {
  ROLLED for (int64_t v = 0; v < 8; v++) {
    const __m512 scale = _mm512_loadu_ps(table), zero = _mm512_loadu_ps(table + 512);
    const uint8_t *w = words;
    uint8_t *out = values;
    int64_t left = s->n;
    ROLLED for (; left > 0; left -= 32 / B) {
      const __m512i c = _mm512_loadu_si512(w);
      _mm_prefetch(w + s->ahead, _MM_HINT_T1);
      UNROLL for (int i = 0; i < 32 / B; i++) _mm512_storeu_ps(out + 64 * i, value(B, shifted(B, c, i), zero, scale));
      w += s->ws, out += 64 * 32 / B;
    }
    add_values(lanes, x, values, s);
    words += 64, table += 64, lanes += 64;
  }
}
KERNEL avx512AddRows4(SUMS_ARGS) { add_rows(4, lanes, x, words, table, values, s); }
KERNEL avx512AddRows8(SUMS_ARGS) { add_rows(8, lanes, x, words, table, values, s); }

// The same where each row has a group of its own, an int32 in groups: table has 128 scales and zeros for each group.
INLINE void add_rows_of(int B, SUMS_ARGS, const uint8_t *groups) {
  ROLLED for (int64_t v = 0; v < 8; v++) {
    const uint8_t *w = words, *group = groups;
    uint8_t *out = values;
    int64_t left = s->n;
    ROLLED for (; left > 0; left -= 32 / B) {
      const __m512i c = _mm512_loadu_si512(w);
      _mm_prefetch(w + s->ahead, _MM_HINT_T1);
      UNROLL for (int i = 0; i < 32 / B; i++) {
        const uint8_t *own = table + ((int64_t)((const int32_t *)group)[i] << 10);
        _mm512_storeu_ps(out + 64 * i, value(B, shifted(B, c, i), _mm512_loadu_ps(own + 512), _mm512_loadu_ps(own)));
      }
      w += s->ws, out += 64 * 32 / B, group += 4 * 32 / B;
    }
    add_values(lanes, x, values, s);
    words += 64, table += 64, lanes += 64;
  }
}
KERNEL avx512AddRowsOf4(SUMS_ARGS, const uint8_t *groups) { add_rows_of(4, lanes, x, words, table, values, s, groups); }
KERNEL avx512AddRowsOf8(SUMS_ARGS, const uint8_t *groups) { add_rows_of(8, lanes, x, words, table, values, s, groups); }

#define ONE(l, bits) acc[l] = _mm512_fmadd_ps(_mm512_set1_ps(((const float *)in)[l]), value(4, bits, zero, scale), acc[l])

// add_rows for one token and 4 bits, whose values stay in registers.
KERNEL avx512SumRows4(SUMS_ARGS) {
  ROLLED for (int64_t v = 0; v < 8; v++) {
    const __m512 scale = _mm512_loadu_ps(table), zero = _mm512_loadu_ps(table + 512);
    __m512 acc[16];
    UNROLL for (int l = 0; l < 16; l++) acc[l] = _mm512_loadu_ps(lanes + 512 * l);
    const uint8_t *w = words, *in = x;
    int64_t left = s->n;
    ROLLED for (; left > 0; left -= 16) {
      UNROLL for (int first = 0; first < 16; first += 8) {
        const __m512i c = _mm512_loadu_si512(w);
        _mm_prefetch(w + s->ahead, _MM_HINT_T1);
        UNROLL for (int i = 0; i < 8; i++) ONE(first + i, shifted(4, c, i));
        w += s->ws;
      }
      in += 64;
    }
    UNROLL for (int l = 0; l < 16; l++) _mm512_storeu_ps(lanes + 512 * l, acc[l]);
    words += 64, table += 64, lanes += 64;
  }
}

// gather copies the words of rows to lines one after another, and calls for those that come next.
INLINE void gather(uint8_t *lines, const uint8_t *words, const shape *s) {
  int64_t left = s->n;
  ROLLED for (; left > 0; left--) {
    _mm_prefetch(words + s->ahead, _MM_HINT_T1);
    _mm512_storeu_si512(lines, _mm512_loadu_si512(words));
    words += s->ws, lines += 64;
  }
}

// A word has 8 columns of a row: nibble i of the 16 words of a row are 16 columns, which stand together in lanes and in the
// table. values has room for the words behind those of 128 rows.
KERNEL avx512AddColumns4(SUMS_ARGS) {
  __m512i turn = _mm512_set1_epi32(19);
  gather(values + 8192, words, s);
  ROLLED for (int64_t v = 0; v < 8; v++) {
    const __m512 scale = _mm512_loadu_ps(table), zero = _mm512_loadu_ps(table + 512);
    uint8_t *out = values;
    int64_t left = s->n;
    ROLLED for (; left > 0; left -= 4) {
      UNROLL for (int i = 0; i < 4; i++) _mm512_storeu_ps(out + 64 * i, value(4, _mm512_rolv_epi32(_mm512_loadu_si512(out + 8192 + 64 * i), turn), zero, scale));
      out += 256;
    }
    add_values(lanes, x, values, s);
    turn = _mm512_sub_epi32(turn, _mm512_set1_epi32(4));
    table += 64, lanes += 64;
  }
}

KERNEL avx512SumColumns4(SUMS_ARGS) {
  __m512i turn = _mm512_set1_epi32(19);
  gather(values + 8192, words, s);
  ROLLED for (int64_t v = 0; v < 8; v++) {
    const __m512 scale = _mm512_loadu_ps(table), zero = _mm512_loadu_ps(table + 512);
    __m512 acc[16];
    UNROLL for (int l = 0; l < 16; l++) acc[l] = _mm512_loadu_ps(lanes + 512 * l);
    const uint8_t *w = values + 8192, *in = x;
    int64_t left = s->n;
    ROLLED for (; left > 0; left -= 16) {
      UNROLL for (int l = 0; l < 16; l++) ONE(l, _mm512_rolv_epi32(_mm512_loadu_si512(w + 64 * l), turn));
      w += 1024, in += 64;
    }
    UNROLL for (int l = 0; l < 16; l++) _mm512_storeu_ps(lanes + 512 * l, acc[l]);
    turn = _mm512_sub_epi32(turn, _mm512_set1_epi32(4));
    table += 64, lanes += 64;
  }
}
