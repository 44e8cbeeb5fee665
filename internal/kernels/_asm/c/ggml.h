// The blocks of GGUF files, 32 columns at a time: their codes, their scales and their least values. f is the
// format: a constant everywhere, so that the branches on it vanish. Included after common.h.

enum { Q4_1, Q5_0, Q5_1, IQ4_NL, Q4_K, Q5_K, IQ4_XS, Q2_K, Q3_K, Q6_K };

// of256 says that a block has 256 columns. by16 says that 16 columns of it share a scale, else 32.
INLINE int of256(int f) { return f >= Q4_K; }
INLINE int by16(int f) { return f >= Q2_K; }

INLINE int size_of_block(int f) {
  return f == Q4_1 ? 20 : f == Q5_0 ? 22 : f == Q5_1 ? 24 : f == IQ4_NL ? 18 : f == Q4_K ? 144 : f == Q5_K ? 176 : f == IQ4_XS ? 136 : f == Q2_K ? 84 : f == Q3_K ? 110 : 210;
}

// zero_of is the code of the value 0, where codes have no sign and blocks have no least values.
INLINE int zero_of(int f) { return f == Q5_0 ? 16 : f == Q3_K ? 4 : f == Q6_K ? 32 : 0; }

// by_table says that codes are numbers of the values of a table.
INLINE int by_table(int f) { return f == IQ4_NL || f == IQ4_XS; }

INLINE __m256i bytes(int v) { return _mm256_set1_epi8((char)v); }
INLINE __m256i load32(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE uint16_t two(const uint8_t *p) { return *(const uint16_t *)p; }
INLINE uint32_t four(const uint8_t *p) { return *(const uint32_t *)p; }
INLINE uint64_t all8(const uint8_t *p) { return *(const uint64_t *)p; }

// shifted is v shifted to the right by n bits, to the left where n is negative. Bits pass into other bytes.
INLINE __m256i shifted(__m256i v, int n) { return n > 0 ? _mm256_srli_epi16(v, n) : n < 0 ? _mm256_slli_epi16(v, -n) : v; }

// spread has the low halves of 16 bytes, then the high ones.
INLINE __m256i spread(const uint8_t *p) {
  const __m128i q = _mm_loadu_si128((const __m128i *)p);
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(q, 4), q), bytes(15));
}

// fifth is 16 in byte i where bit i is set.
INLINE __m256i fifth(uint32_t bits) {
#ifdef __AVX512VL__
  return _mm256_maskz_set1_epi8((__mmask32)bits, 16);
#else
  const __m256i at = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i one = _mm256_set1_epi64x((long long)0x8040201008040201);
  const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), at), one);
  return _mm256_and_si256(_mm256_cmpeq_epi8(own, one), bytes(16));
#endif
}

INLINE __m256i values_of(__m256i codes) {
  const __m128i table = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes);
}

// codes_of returns the codes of columns 32 g and on of block b: of formats by_table their values.
INLINE __m256i codes_of(int f, const uint8_t *b, int g) {
  const int half = g / 4, part = g % 4;
  switch (f) {
  case Q4_1: return spread(b + 4);
  case Q5_0: return _mm256_or_si256(spread(b + 6), fifth(four(b + 2)));
  case Q5_1: return _mm256_or_si256(spread(b + 8), fifth(four(b + 4)));
  case IQ4_NL: return values_of(spread(b + 2));
  case IQ4_XS: return values_of(spread(b + 8 + 16 * g));
  case Q4_K: return _mm256_and_si256(shifted(load32(b + 16 + 32 * (g / 2)), g % 2 * 4), bytes(15));
  case Q5_K: return _mm256_or_si256(_mm256_and_si256(shifted(load32(b + 48 + 32 * (g / 2)), g % 2 * 4), bytes(15)), _mm256_and_si256(shifted(load32(b + 16), g - 4), bytes(16)));
  case Q2_K: return _mm256_and_si256(shifted(load32(b + 16 + 32 * half), 2 * part), bytes(3));
  case Q3_K: return _mm256_or_si256(_mm256_and_si256(shifted(load32(b + 32 + 32 * half), 2 * part), bytes(3)), _mm256_and_si256(shifted(load32(b), g - 2), bytes(4)));
  default:
    return _mm256_or_si256(_mm256_and_si256(shifted(load32(b + 64 * half + 32 * (part % 2)), part / 2 * 4), bytes(15)), _mm256_and_si256(shifted(load32(b + 128 + 32 * half), 2 * part - 4), bytes(48)));
  }
}

INLINE __m256 half_at(const uint8_t *p) { return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(two(p)))); }

// scale_of and least_of are the scale and the least value of a block of 32 columns.
INLINE __m256 scale_of(const uint8_t *b) { return half_at(b); }
INLINE __m256 least_of(const uint8_t *b) { return half_at(b + 2); }

// A pair has eight scales, and as many least values.
struct pair { __m256 scale, least; };

// scales32 returns those of the eight times 32 columns of block b.
INLINE struct pair scales32(int f, const uint8_t *b) {
  struct pair p = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  if (f == IQ4_XS) {
    const __m256i at = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), at2 = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const __m256i low = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)four(b + 4)), at), _mm256_set1_epi32(15));
    const __m256i high = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(two(b + 2)), at2), _mm256_set1_epi32(3));
    const __m256i s = _mm256_sub_epi32(_mm256_or_si256(low, _mm256_slli_epi32(high, 4)), _mm256_set1_epi32(32));
    p.scale = _mm256_mul_ps(half_at(b), _mm256_cvtepi32_ps(s));
    return p;
  }
  // Words 1 and 2 have six bits each of scales and least values 0 to 3, and two bits each of 4 to 7, whose other four
  // bits are in word 3.
  const __m128i v = _mm_loadu_si128((const __m128i *)b), first = _mm_srli_si128(v, 4);
  const __m128i low = _mm_and_si128(first, _mm_set1_epi8(63)), top = _mm_and_si128(_mm_srli_epi16(first, 2), _mm_set1_epi8(48));
  const __m128i rest = _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(v, 0xff), _mm_setr_epi32(0, 4, 0, 0)), _mm_set1_epi8(15));
  const __m128i all = _mm_unpacklo_epi32(low, _mm_or_si128(top, rest)); // scales, then least values
  const __m128 d = _mm_cvtph_ps(v);
  p.scale = _mm256_mul_ps(_mm256_broadcastss_ps(d), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(all)));
  p.least = _mm256_mul_ps(_mm256_broadcastss_ps(_mm_movehdup_ps(d)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(all, all))));
  return p;
}

// scales16 returns the 16 scales of a block, without their own scale.
INLINE __m128i scales16(int f, const uint8_t *b) {
  if (f == Q2_K) return _mm_and_si128(_mm_loadu_si128((const __m128i *)b), _mm_set1_epi8(15));
  if (f == Q6_K) return _mm_loadu_si128((const __m128i *)(b + 192));
  const uint64_t low = all8(b + 96), top = four(b + 104), mask = 0x0f0f0f0f0f0f0f0f, two_bits = 0x0303030303030303;
  const uint64_t first = (top | top >> 2 << 32) & two_bits, second = (top >> 4 | top >> 6 << 32) & two_bits;
  const __m128i s = _mm_set_epi64x((long long)((low >> 4 & mask) | second << 4), (long long)((low & mask) | first << 4));
  return _mm_sub_epi8(s, _mm_set1_epi8(32));
}

// scale_at16 is where the scale of the 16 scales of a block is.
INLINE int scale_at16(int f) { return f == Q2_K ? 80 : f == Q3_K ? 108 : 208; }

// low8 and high8 are half of 16 signed bytes as floats.
INLINE __m256 low8(__m128i v) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)); }
INLINE __m256 high8(__m128i v) { return low8(_mm_unpackhi_epi64(v, v)); }
