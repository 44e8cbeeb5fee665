// AVX2 kernels that add products with codes of 4 and 8 bits down 128 columns: see sums.go. B is the number of bits, a constant. Needs AVX2 and FMA.
#include "common.h"

// value is (code - zero) * scale, the code in the lowest bits.
INLINE __m256 value(int B, __m256i bits, __m256 zero, __m256 scale) {
  return _mm256_mul_ps(_mm256_sub_ps(_mm256_cvtepi32_ps(_mm256_and_si256(bits, _mm256_set1_epi32((1 << B) - 1))), zero), scale);
}

// zeros are those of a table, which has 2^B more.
INLINE __m256 zeros(int B, const uint8_t *table) { return _mm256_sub_ps(_mm256_loadu_ps((const float *)(table + 512)), _mm256_set1_ps(1 << B)); }

// What does not fit in registers; see nibbleShape in sums_amd64.go. Strides and distances are in bytes.
typedef struct {
  int64_t ls, xs, tokens, ws, n, ahead;
} shape;

// add_values adds lanes[k mod 8] += x[k] values[k] for 8 columns and each token. s->n is a multiple of 8.
INLINE void add_values(uint8_t *lanes, const uint8_t *x, const uint8_t *values, const shape *s) {
  ROLLED for (int64_t tokens = s->tokens; tokens > 0; tokens--) {
    __m256 acc[8];
    UNROLL for (int l = 0; l < 8; l++) acc[l] = _mm256_loadu_ps((const float *)(lanes + 512 * l));
    const uint8_t *v = values, *in = x;
    int64_t left = s->n;
    ROLLED for (; left > 0; left -= 8) {
      UNROLL for (int l = 0; l < 8; l++) acc[l] = _mm256_fmadd_ps(_mm256_set1_ps(((const float *)in)[l]), _mm256_loadu_ps((const float *)(v + 32 * l)), acc[l]);
      v += 256, in += 32;
    }
    UNROLL for (int l = 0; l < 8; l++) _mm256_storeu_ps((float *)(lanes + 512 * l), acc[l]);
    lanes += s->ls, x += s->xs;
  }
}

#define SUMS_ARGS uint8_t *lanes, const uint8_t *x, const uint8_t *words, const uint8_t *table, uint8_t *values, const shape *s

// The words of a row have 32/B rows of a column each. s->ahead is where those that come next are. Rows may be a power of two
// apart, so that the first-level cache holds few of them: they come to the second.
INLINE void add_rows(int B, SUMS_ARGS) {
  ROLLED for (int64_t v = 0; v < 16; v++) {
    const __m256 scale = _mm256_loadu_ps((const float *)table), zero = zeros(B, table);
    const uint8_t *w = words;
    uint8_t *out = values;
    int64_t left = s->n;
    ROLLED for (; left > 0; left -= 32 / B) {
      const __m256i c = _mm256_loadu_si256((const __m256i *)w);
      _mm_prefetch(w + s->ahead, _MM_HINT_T1);
      UNROLL for (int i = 0; i < 32 / B; i++) _mm256_storeu_ps((float *)(out + 32 * i), value(B, _mm256_srli_epi32(c, B * i), zero, scale));
      w += s->ws, out += 32 * 32 / B;
    }
    add_values(lanes, x, values, s);
    words += 32, table += 32, lanes += 32;
  }
}
KERNEL avx2AddRows4(SUMS_ARGS) { add_rows(4, lanes, x, words, table, values, s); }
KERNEL avx2AddRows8(SUMS_ARGS) { add_rows(8, lanes, x, words, table, values, s); }

// The same where each row has a group of its own, an int32 in groups: table has 128 scales and zeros for each group.
INLINE void add_rows_of(int B, SUMS_ARGS, const uint8_t *groups) {
  ROLLED for (int64_t v = 0; v < 16; v++) {
    const uint8_t *w = words, *group = groups;
    uint8_t *out = values;
    int64_t left = s->n;
    ROLLED for (; left > 0; left -= 32 / B) {
      const __m256i c = _mm256_loadu_si256((const __m256i *)w);
      _mm_prefetch(w + s->ahead, _MM_HINT_T1);
      UNROLL for (int i = 0; i < 32 / B; i++) {
        const uint8_t *own = table + ((int64_t)((const int32_t *)group)[i] << 10);
        _mm256_storeu_ps((float *)(out + 32 * i), value(B, _mm256_srli_epi32(c, B * i), zeros(B, own), _mm256_loadu_ps((const float *)own)));
      }
      w += s->ws, out += 32 * 32 / B, group += 4 * 32 / B;
    }
    add_values(lanes, x, values, s);
    words += 32, table += 32, lanes += 32;
  }
}
KERNEL avx2AddRowsOf4(SUMS_ARGS, const uint8_t *groups) { add_rows_of(4, lanes, x, words, table, values, s, groups); }
KERNEL avx2AddRowsOf8(SUMS_ARGS, const uint8_t *groups) { add_rows_of(8, lanes, x, words, table, values, s, groups); }

#define ONE(l, bits) acc[l] = _mm256_fmadd_ps(_mm256_set1_ps(((const float *)in)[l]), value(4, bits, zero, scale), acc[l])

// add_rows for one token and 4 bits, whose values stay in registers.
KERNEL avx2SumRows4(SUMS_ARGS) {
  ROLLED for (int64_t v = 0; v < 16; v++) {
    const __m256 scale = _mm256_loadu_ps((const float *)table), zero = zeros(4, table);
    __m256 acc[8];
    UNROLL for (int l = 0; l < 8; l++) acc[l] = _mm256_loadu_ps((const float *)(lanes + 512 * l));
    const uint8_t *w = words, *in = x;
    int64_t left = s->n;
    ROLLED for (; left > 0; left -= 8) {
      const __m256i c = _mm256_loadu_si256((const __m256i *)w);
      _mm_prefetch(w + s->ahead, _MM_HINT_T1);
      UNROLL for (int i = 0; i < 8; i++) ONE(i, _mm256_srli_epi32(c, 4 * i));
      w += s->ws, in += 32;
    }
    UNROLL for (int l = 0; l < 8; l++) _mm256_storeu_ps((float *)(lanes + 512 * l), acc[l]);
    words += 32, table += 32, lanes += 32;
  }
}

// gather copies the words of rows to lines one after another, and calls for those that come next.
INLINE void gather(uint8_t *lines, const uint8_t *words, const shape *s) {
  int64_t left = s->n;
  ROLLED for (; left > 0; left--) {
    _mm_prefetch(words + s->ahead, _MM_HINT_T1);
    _mm256_storeu_si256((__m256i *)lines, _mm256_loadu_si256((const __m256i *)words));
    _mm256_storeu_si256((__m256i *)(lines + 32), _mm256_loadu_si256((const __m256i *)(words + 32)));
    words += s->ws, lines += 64;
  }
}

// A word has 8 columns of a row: nibble i of 8 words of a row are 8 columns, which stand together in lanes and in the table,
// those of both halves of a line one after the other. values has room for the words behind those of 128 rows.
#define COLUMNS(...) \
  __m128i turn = _mm_setzero_si128(); \
  gather(values + 8192, words, s); \
  const uint8_t *lines = values + 8192; \
  ROLLED for (int64_t v = 0; v < 16; v++) { \
    const __m256 scale = _mm256_loadu_ps((const float *)table), zero = zeros(4, table); \
    const uint8_t *w = lines; \
    int64_t left = s->n; \
    __VA_ARGS__ \
    if (v & 1) lines -= 32, turn = _mm_add_epi64(turn, _mm_cvtsi64_si128(4)); \
    else lines += 32; \
    table += 32, lanes += 32; \
  }
#define TURNED(w) _mm256_srl_epi32(_mm256_loadu_si256((const __m256i *)(w)), turn)

KERNEL avx2AddColumns4(SUMS_ARGS) {
  COLUMNS(
    uint8_t *out = values;
    ROLLED for (; left > 0; left -= 4) {
      UNROLL for (int i = 0; i < 4; i++) _mm256_storeu_ps((float *)(out + 32 * i), value(4, TURNED(w + 64 * i), zero, scale));
      w += 256, out += 128;
    }
    add_values(lanes, x, values, s);
  )
}

KERNEL avx2SumColumns4(SUMS_ARGS) {
  COLUMNS(
    __m256 acc[8];
    UNROLL for (int l = 0; l < 8; l++) acc[l] = _mm256_loadu_ps((const float *)(lanes + 512 * l));
    const uint8_t *in = x;
    ROLLED for (; left > 0; left -= 8) {
      UNROLL for (int l = 0; l < 8; l++) ONE(l, TURNED(w + 64 * l));
      w += 512, in += 32;
    }
    UNROLL for (int l = 0; l < 8; l++) _mm256_storeu_ps((float *)(lanes + 512 * l), acc[l]);
  )
}
