// The blocks of GGUF files, 32 columns at a time: their codes, their scales and their least values. f is the
// format: a constant everywhere, so that the branches on it vanish. Included after common.h.

enum { Q4_1, Q5_0, Q5_1, IQ4_NL, MX4, Q1_0, Q2_0, NV4, Q4_K, Q5_K, IQ4_XS, TQ1_0, TQ2_0, IQ1_S, IQ2_XXS, IQ3_XXS, IQ3_S, Q2_K, Q3_K, Q6_K, IQ1_M, IQ2_XS, IQ2_S };

// of256 says that a block has 256 columns. by16 says that 16 columns of it share a scale, else 32.
INLINE int of256(int f) { return f >= Q4_K; }
INLINE int by16(int f) { return f >= Q2_K; }

// parts is the number of times 32 columns in a smaller block.
INLINE int parts(int f) { return f == Q1_0 ? 4 : f == Q2_0 || f == NV4 ? 2 : 1; }

INLINE int iq1(int f) { return f == IQ1_S || f == IQ1_M; }

// of_points says that codes are numbers of points: a point has the magnitudes of 8 columns, or of 4 for IQ3, and
// the signs are bits of their own. The points of IQ1 have signs, are 8 times too large, and are moved up or down by one.
INLINE int of_points(int f) { return iq1(f) || f == IQ2_XXS || f == IQ2_XS || f == IQ2_S || f == IQ3_XXS || f == IQ3_S; }

INLINE int size_of_block(int f) {
  switch (f) {
  case Q4_1: return 20;
  case Q5_0: return 22;
  case Q5_1: return 24;
  case IQ4_NL: return 18;
  case MX4: return 17;
  case Q1_0:
  case Q2_0: return 18;
  case NV4: return 36;
  case TQ1_0: return 54;
  case IQ1_S: return 50;
  case IQ1_M: return 56;
  case TQ2_0: return 66;
  case Q4_K: return 144;
  case Q5_K: return 176;
  case IQ4_XS: return 136;
  case IQ2_XXS: return 66;
  case IQ3_XXS: return 98;
  case IQ3_S: return 110;
  case Q2_K: return 84;
  case Q3_K: return 110;
  case Q6_K: return 210;
  case IQ2_XS: return 74;
  default: return 82;
  }
}

// zero_of is the code of the value 0, where codes have no sign and blocks have no least values.
INLINE int zero_of(int f) {
  if (f == Q1_0 || f == Q2_0 || f == TQ1_0 || f == TQ2_0) return 1;
  return f == Q5_0 ? 16 : f == Q3_K ? 4 : f == Q6_K ? 32 : 0;
}

// has_least says that blocks have least values, or a scale for 256 columns, which times zero_of is one.
INLINE int has_least(int f) { return f == Q4_1 || f == Q5_1 || f == Q4_K || f == Q5_K || f == Q2_K || f == TQ1_0 || f == TQ2_0; }

// has_signs says that codes_of returns codes with signs.
INLINE int has_signs(int f) { return f == IQ4_NL || f == MX4 || f == NV4 || f == IQ4_XS || of_points(f); }

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

// where_set is 255 in byte i where bit i is set.
INLINE __m256i where_set(uint32_t bits) {
  const __m256i at = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i one = _mm256_set1_epi64x((long long)0x8040201008040201);
  const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), at), one);
  return _mm256_cmpeq_epi8(own, one);
}

// value_where is v in byte i where bit i is set.
INLINE __m256i value_where(int v, uint32_t bits) {
#ifdef __AVX512VL__
  return _mm256_maskz_set1_epi8((__mmask32)bits, (char)v);
#else
  return _mm256_and_si256(where_set(bits), bytes(v));
#endif
}

// fours are the four times two bits of each of eight bytes.
INLINE __m256i fours(const uint8_t *p) {
  const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)), v = _mm256_or_si256(b, _mm256_slli_epi32(b, 12));
  return _mm256_or_si256(_mm256_and_si256(v, _mm256_set1_epi32(0x30003)), _mm256_and_si256(_mm256_slli_epi32(v, 6), _mm256_set1_epi32(0x3000300)));
}

// digits are the first digits in base 3 of bytes times powers of 3, the words for the first eight bytes of each half and
// those for the others.
INLINE __m256i digits(__m256i v, __m256i first, __m256i others) {
  const __m256i zero = _mm256_setzero_si256(), three = _mm256_set1_epi16(3);
  const __m256i a = _mm256_mulhi_epu16(_mm256_mullo_epi16(_mm256_unpacklo_epi8(zero, v), first), three);
  return _mm256_packus_epi16(a, _mm256_mulhi_epu16(_mm256_mullo_epi16(_mm256_unpackhi_epi8(zero, v), others), three));
}

// ternary are the digits of columns 32 g and on.
INLINE __m256i ternary(const uint8_t *b, int g) {
  const int powers[5] = {1, 3, 9, 27, 81};
  if (g < 5) return digits(load32(b), _mm256_set1_epi16((short)powers[g]), _mm256_set1_epi16((short)powers[g]));
  const __m128i v = _mm_loadu_si128((const __m128i *)(b + 32));
  if (g < 7) {
    const __m256i p = _mm256_set_m128i(_mm_set1_epi16((short)powers[2 * g - 9]), _mm_set1_epi16((short)powers[2 * g - 10]));
    return digits(_mm256_broadcastsi128_si256(v), p, p);
  }
  const __m128i last = _mm_set1_epi16(81);
  return digits(_mm256_set_m128i(_mm_set1_epi32((int)four(b + 48)), v), _mm256_set_m128i(_mm_setr_epi16(1, 1, 1, 1, 3, 3, 3, 3), last),
                _mm256_set_m128i(_mm_setr_epi16(9, 9, 9, 9, 27, 27, 27, 27), last));
}

// negated has byte i of v negated where bit i is set.
INLINE __m256i negated(__m256i v, uint32_t bits) {
#ifdef __AVX512VL__
  return _mm256_mask_sub_epi8(v, (__mmask32)bits, _mm256_setzero_si256(), v);
#else
  const __m256i m = where_set(bits);
  return _mm256_sub_epi8(_mm256_xor_si256(v, m), m);
#endif
}

// even completes the seven bits of each byte by an eighth, so that their number is even.
INLINE uint32_t even(uint32_t v) {
  uint32_t p = v ^ v >> 4;
  p ^= p >> 2, p ^= p >> 1;
  return v | (p & 0x01010101) << 7;
}

// spread_seven_bits has the four times seven low bits of v in a byte each.
INLINE uint32_t spread_seven_bits(uint32_t v) { return (v & 0x7f) | (v << 1 & 0x7f00) | (v << 2 & 0x7f0000) | (v << 3 & 0x7f000000); }

// words are bytes as words.
INLINE __m128i words(__m128i v) { return _mm_cvtepu8_epi16(v); }

// points8 are the points of 8 columns with the numbers in four words. One is looked up after the other, for lack of
// registers.
INLINE __m256i points8(const uint8_t *points, __m128i numbers) {
  uint64_t q = (uint64_t)_mm_cvtsi128_si64(numbers);
  __m128i v[2];
  UNROLL for (int i = 0; i < 2; i++) {
    v[i] = _mm_cvtsi64_si128((long long)all8(points + 8 * (q & 0xffff)));
    q >>= 16;
    AFTER(q, v[i]);
    v[i] = _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(v[i]), (const __m64 *)(points + 8 * (q & 0xffff))));
    q >>= 16;
    AFTER(q, v[i]);
  }
  return _mm256_set_m128i(v[1], v[0]);
}

// points4 are the points of 4 columns with the numbers in eight words.
INLINE __m256i points4(const uint8_t *points, __m128i numbers) {
  __m128i v[2];
  UNROLL for (int i = 0; i < 2; i++) {
    uint64_t q = (uint64_t)_mm_cvtsi128_si64(i ? _mm_unpackhi_epi64(numbers, numbers) : numbers);
    v[i] = _mm_cvtsi32_si128((int)four(points + 4 * (q & 0xffff)));
#define INSERT(lane)   \
  q >>= 16;            \
  AFTER(q, v[i]);      \
  v[i] = _mm_insert_epi32(v[i], (int)four(points + 4 * (q & 0xffff)), lane);
    INSERT(1) INSERT(2) INSERT(3)
#undef INSERT
  }
  return _mm256_set_m128i(v[1], v[0]);
}

// numbers_of returns the numbers of the points of columns 32 g and on.
INLINE __m128i numbers_of(int f, const uint8_t *b, int g) {
  if (iq1(f)) { // the high three bits are every third or fourth of a word
    const __m128i at = f == IQ1_S ? _mm_setr_epi32(0, 3, 6, 9) : _mm_setr_epi32(0, 4, 8, 12);
    const __m128i all = _mm_srlv_epi32(_mm_set1_epi32(two(b + (f == IQ1_S ? 34 : 32) + 2 * g) << 8), at);
    const __m128i high = _mm_and_si128(all, _mm_set1_epi32(0x700));
    return _mm_or_si128(words(_mm_cvtsi32_si128((int)four(b + (f == IQ1_S ? 2 : 0) + 4 * g))), _mm_packus_epi32(high, high));
  }
  const __m128i every = _mm_set1_epi16(b[66 + g]);
  switch (f) {
  case IQ2_XXS: return words(_mm_cvtsi32_si128((int)four(b + 2 + 8 * g)));
  case IQ2_XS: return _mm_and_si128(_mm_loadl_epi64((const __m128i *)(b + 2 + 8 * g)), _mm_set1_epi16(511));
  case IQ2_S: {
    const __m128i high = _mm_and_si128(_mm_mullo_epi16(every, _mm_setr_epi16(256, 64, 16, 4, 0, 0, 0, 0)), _mm_set1_epi16(0x300));
    return _mm_or_si128(words(_mm_cvtsi32_si128((int)four(b + 2 + 4 * g))), high);
  }
  case IQ3_S: {
    const __m128i high = _mm_and_si128(_mm_mullo_epi16(every, _mm_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2)), _mm_set1_epi16(256));
    return _mm_or_si128(words(_mm_loadl_epi64((const __m128i *)(b + 2 + 8 * g))), high);
  }
  default: return words(_mm_loadl_epi64((const __m128i *)(b + 2 + 8 * g)));
  }
}

// signs_of returns the signs of columns 32 g and on, one bit each.
INLINE uint32_t signs_of(int f, const uint8_t *b, int g) {
  switch (f) {
  case IQ2_XXS: return even(spread_seven_bits(four(b + 6 + 8 * g)));
  case IQ2_XS: {
    const __m128i signs = _mm_srli_epi16(_mm_loadl_epi64((const __m128i *)(b + 2 + 8 * g)), 9);
    return even((uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(signs, signs)));
  }
  case IQ2_S: return four(b + 34 + 4 * g);
  case IQ3_S: return four(b + 74 + 4 * g);
  default: return even(spread_seven_bits(four(b + 66 + 4 * g)));
  }
}

// moves are 1 or -1 for columns 32 g and on of IQ1.
INLINE __m256i moves(int f, const uint8_t *b, int g) {
  if (f == IQ1_S) return bytes(1 - 2 * (two(b + 34 + 2 * g) >> 15));
  const __m256i bits = _mm256_sllv_epi64(_mm256_set1_epi64x(two(b + 32 + 2 * g)), _mm256_setr_epi64x(60, 56, 52, 48));
  return _mm256_or_si256(_mm256_cmpgt_epi64(_mm256_setzero_si256(), bits), bytes(1));
}

// signed_points are the points of columns 32 g and on, with their signs.
INLINE __m256i signed_points(int f, const uint8_t *b, int g, const uint8_t *points) {
  const __m128i numbers = numbers_of(f, b, g);
  const __m256i v = f == IQ3_XXS || f == IQ3_S ? points4(points, numbers) : points8(points, numbers);
  AFTER(b, v);
  if (iq1(f)) return _mm256_add_epi8(v, moves(f, b, g));
  return negated(v, signs_of(f, b, g));
}

// values_of are the values of codes that are numbers of a table's values.
INLINE __m256i values_of(int f, __m256i codes) {
  const __m128i table = f == MX4 || f == NV4 ? _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
                                 : _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes);
}

// codes_of returns the codes of columns 32 g and on of block b: their values, where they are numbers.
INLINE __m256i codes_of(int f, const uint8_t *b, int g, const uint8_t *points) {
  const int half = g / 4, part = g % 4;
  if (of_points(f)) return signed_points(f, b, g, points);
  switch (f) {
  case Q4_1: return spread(b + 4);
  case Q5_0: return _mm256_or_si256(spread(b + 6), value_where(16, four(b + 2)));
  case Q5_1: return _mm256_or_si256(spread(b + 8), value_where(16, four(b + 4)));
  case IQ4_NL: return values_of(f, spread(b + 2));
  case MX4: return values_of(f, spread(b + 1));
  case Q1_0: return value_where(2, four(b + 2 + 4 * g));
  case Q2_0: return fours(b + 2 + 8 * g);
  case NV4: return values_of(f, _mm256_permute4x64_epi64(spread(b + 4 + 16 * g), 0xd8));
  case TQ1_0: return ternary(b, g);
  case TQ2_0: return _mm256_and_si256(shifted(load32(b + 32 * half), 2 * part), bytes(3));
  case IQ4_XS: return values_of(f, spread(b + 8 + 16 * g));
  case Q4_K: return _mm256_and_si256(shifted(load32(b + 16 + 32 * (g / 2)), g % 2 * 4), bytes(15));
  case Q5_K: return _mm256_or_si256(_mm256_and_si256(shifted(load32(b + 48 + 32 * (g / 2)), g % 2 * 4), bytes(15)), _mm256_and_si256(shifted(load32(b + 16), g - 4), bytes(16)));
  case Q2_K: return _mm256_and_si256(shifted(load32(b + 16 + 32 * half), 2 * part), bytes(3));
  case Q3_K: return _mm256_or_si256(_mm256_and_si256(shifted(load32(b + 32 + 32 * half), 2 * part), bytes(3)), _mm256_and_si256(shifted(load32(b), g - 2), bytes(4)));
  default:
    return _mm256_or_si256(_mm256_and_si256(shifted(load32(b + 64 * half + 32 * (part % 2)), part / 2 * 4), bytes(15)), _mm256_and_si256(shifted(load32(b + 128 + 32 * half), 2 * part - 4), bytes(48)));
  }
}

INLINE __m256 half_at(const uint8_t *p) { return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(two(p)))); }

// power is half of the power of two that byte b stands for, which may be no normal number.
INLINE __m256 power(const uint8_t *b) {
  const __m256i e = _mm256_set1_epi32(*b), normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

// scale_of and least_of are the scale and the least value of a block of 32 columns.
INLINE __m256 scale_of(int f, const uint8_t *b) { return f == MX4 ? power(b) : half_at(b); }
INLINE __m256 least_of(const uint8_t *b) { return half_at(b + 2); }

// scales4 are the four scales of a block of NV4, twice. E4M3 is a float16 with four times two fewer bits of exponent.
INLINE __m256 scales4(const uint8_t *b) {
  const __m128i v = _mm_cvtsi32_si128((int)four(b)), number = _mm_andnot_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8(0x7f)), _mm_set1_epi8(0x7f));
  const __m128 s = _mm_cvtph_ps(_mm_slli_epi16(words(_mm_and_si128(v, number)), 7));
  return _mm256_mul_ps(_mm256_set_m128(s, s), _mm256_set1_ps(128)); // exact
}

// A pair has eight scales, and as many least values.
struct pair { __m256 scale, least; };

// scales32 returns those of the eight times 32 columns of block b.
INLINE struct pair scales32(int f, const uint8_t *b) {
  struct pair p = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  if (f == TQ1_0 || f == TQ2_0) {
    p.scale = p.least = half_at(b + size_of_block(f) - 2);
    return p;
  }
  if (f == IQ4_XS) {
    const __m256i at = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), at2 = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const __m256i low = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)four(b + 4)), at), _mm256_set1_epi32(15));
    const __m256i high = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(two(b + 2)), at2), _mm256_set1_epi32(3));
    const __m256i s = _mm256_sub_epi32(_mm256_or_si256(low, _mm256_slli_epi32(high, 4)), _mm256_set1_epi32(32));
    p.scale = _mm256_mul_ps(half_at(b), _mm256_cvtepi32_ps(s));
    return p;
  }
  if (of_points(f)) {
    __m256i s;
    if (f == IQ3_S) {
      s = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)four(b + 106)), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)), _mm256_set1_epi32(15));
    } else if (f == IQ1_S) {
      s = _mm256_and_si256(_mm256_srli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(b + 34))), 12), _mm256_set1_epi32(7));
    } else if (f == IQ3_XXS) {
      s = _mm256_srli_epi32(load32(b + 66), 28);
    } else {
      const __m256 odd = _mm256_shuffle_ps(_mm256_castsi256_ps(load32(b + 2)), _mm256_castsi256_ps(load32(b + 34)), 0xdd);
      s = _mm256_srli_epi32(_mm256_permute4x64_epi64(_mm256_castps_si256(odd), 0xd8), 28);
    }
    const __m256 d = _mm256_mul_ps(half_at(b), _mm256_set1_ps(f == IQ3_S ? 1 : f == IQ3_XXS ? 0.25f : 0.125f)); // exact
    p.scale = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_add_epi32(s, s), _mm256_set1_epi32(1))));
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
  if (f == IQ1_M) { // four words of four times three bits
    const __m128i v = _mm_loadl_epi64((const __m128i *)(b + 48)), w = _mm_unpacklo_epi16(v, v), up = _mm_setr_epi16(1 << 13, 1 << 10, 1 << 7, 1 << 4, 1 << 13, 1 << 10, 1 << 7, 1 << 4);
    const __m128i first = _mm_mullo_epi16(_mm_unpacklo_epi32(w, w), up), second = _mm_mullo_epi16(_mm_unpackhi_epi32(w, w), up);
    const __m128i q = _mm_packus_epi16(_mm_srli_epi16(first, 13), _mm_srli_epi16(second, 13));
    return _mm_add_epi8(_mm_add_epi8(q, q), _mm_set1_epi8(1));
  }
  if (of_points(f)) {
    const __m128i v = _mm_loadl_epi64((const __m128i *)(b + (f == IQ2_XS ? 66 : 74)));
    const __m128i q = _mm_and_si128(_mm_unpacklo_epi8(v, _mm_srli_epi16(v, 4)), _mm_set1_epi8(15));
    return _mm_add_epi8(_mm_add_epi8(q, q), _mm_set1_epi8(1));
  }
  const uint64_t low = all8(b + 96), top = four(b + 104), mask = 0x0f0f0f0f0f0f0f0f, two_bits = 0x0303030303030303;
  const uint64_t first = (top | top >> 2 << 32) & two_bits, second = (top >> 4 | top >> 6 << 32) & two_bits;
  const __m128i s = _mm_set_epi64x((long long)((low >> 4 & mask) | second << 4), (long long)((low & mask) | first << 4));
  return _mm_sub_epi8(s, _mm_set1_epi8(32));
}

// scale16 is the scale of the 16 scales of a block.
INLINE __m256 scale16(int f, const uint8_t *b) {
  if (f == IQ1_M) { // the high four bits of four words
    const uint64_t q = all8(b + 48), bits = (q >> 12 & 15) | (q >> 24 & 0xf0) | (q >> 36 & 0xf00) | (q >> 48 & 0xf000);
    return _mm256_mul_ps(_mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128((int)bits))), _mm256_set1_ps(0.125f)); // exact
  }
  if (of_points(f)) return _mm256_mul_ps(half_at(b), _mm256_set1_ps(0.125f)); // exact
  return half_at(b + (f == Q2_K ? 80 : f == Q3_K ? 108 : 208));
}

// low8 and high8 are half of 16 signed bytes as floats.
INLINE __m256 low8(__m128i v) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)); }
INLINE __m256 high8(__m128i v) { return low8(_mm_unpackhi_epi64(v, v)); }
