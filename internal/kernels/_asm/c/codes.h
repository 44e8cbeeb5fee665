// What the AVX-512 kernels of E4M3 and MXFP4 codes share: how a line of 64 bytes is widened and
// multiplied by a token that is laid out for it.
#include "wide.h"

enum { E4M3, MXFP4 };

// spill_wide moves a value to a vector register, of which AVX-512 has 32, and reload_wide moves it back.
INLINE __m128i spill_wide(int64_t v) {
  __m128i s = _mm_cvtsi64_si128(v);
  __asm__ volatile("" : "+v"(s));
  return s;
}

INLINE int64_t reload_wide(__m128i s) {
  __asm__ volatile("" : "+v"(s));
  return _mm_cvtsi128_si64(s);
}

INLINE int64_t columns_of(int f) { return f == E4M3 ? 64 : 128; }

// lines is the number of lines of a row. The last one may be shorter.
INLINE int64_t lines(int f, int64_t n) { return (int64_t)((uint64_t)(n + columns_of(f) - 1) >> (f == E4M3 ? 6 : 7)); }

// halves returns the even or the odd codes of 64 of E4M3 as float16, too small by 2^8. The bits of
// a code, shifted by 7, are that number, except that the second bit is a copy of the sign. If
// adding one to the last bit of the code changes that bit, all bits of the code are ones: it is a
// NaN.
INLINE __m512i halves(__m512i codes, int odd) {
  const __m512i last = _mm512_set1_epi16(0x80), second = _mm512_set1_epi16(0x4000);
  const __m512i shifted = _mm512_maddubs_epi16(_mm512_set1_epi16((short)(odd ? 0x8000 : 0x80)), codes);
  return _mm512_ternarylogic_epi32(shifted, second, _mm512_add_epi16(shifted, last), 0x78); // a ^ (b & c)
}

INLINE __m512 half(__m512i halves, int high) { return _mm512_cvtph_ps(high ? _mm512_extracti64x4_epi64(halves, 1) : _mm512_castsi512_si256(halves)); }

// add8 adds the products of 64 codes: even ones, then odd ones.
INLINE __m512 add8(__m512i codes, const __m512 *x, __m512 sum) {
  UNROLL for (int odd = 0; odd < 2; odd++) {
    const __m512i h = halves(codes, odd);
    UNROLL for (int high = 0; high < 2; high++) sum = _mm512_fmadd_ps(half(h, high), x[2 * high + odd], sum);
  }
  return sum;
}

// values is a table of the values of MXFP4 codes.
INLINE __m512 values(void) { return _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6); }

// powers returns 2^(e - 127) for four exponents e, each in four lanes.
INLINE __m512 powers(__m512i exponents) {
  const __m512i up = _mm512_setr_epi32(23, 23, 23, 23, 15, 15, 15, 15, 7, 7, 7, 7, 31, 31, 31, 31);
  const __m512 e = (__m512)_mm512_and_si512(_mm512_rolv_epi32(exponents, up), _mm512_set1_epi32(0x7f800000));
  // Exponent 0 is 2^-127, and the last one is a NaN.
  return _mm512_fixupimm_ps(_mm512_set1_ps(0x1p-127f), e, _mm512_set1_epi32(0x11311011), 0);
}

// The low bits of a word select element i of its eight codes.
#define VALUE(words, i) _mm512_permutexvar_ps((i) == 0 ? (words) : _mm512_srli_epi32(words, 4 * (i)), table)

// end4 is the sum of the products of up to 128 codes, lane by lane.
INLINE __m512 end4(__m512i codes, __m512 table, const __m512 *x) {
  __m512 sum = _mm512_mul_ps(VALUE(codes, 0), x[0]);
  UNROLL for (int i = 1; i < 8; i++) {
    sum = _mm512_fmadd_ps(VALUE(codes, i), x[i], sum);
    __asm__ volatile("" : "+v"(sum));
  }
  return sum;
}

// line4 is end4 for a line that is not the last, with half the shifts.
INLINE __m512 line4(const uint8_t *w, __m512 table, const __m512 *x) {
  __m512 sum;
  UNROLL for (int i = 0; i < 8; i += 2) {
    const __m512i codes = _mm512_loadu_si512(w + i / 2);
    sum = i == 0 ? _mm512_mul_ps(VALUE(codes, 0), x[0]) : _mm512_fmadd_ps(VALUE(codes, 0), x[i], sum);
    sum = _mm512_fmadd_ps(VALUE(codes, 1), x[i + 1], sum);
    AFTER(w, sum);
  }
  return sum;
}
