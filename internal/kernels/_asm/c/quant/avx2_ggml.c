// AVX2: unpacks the blocks of GGUF files, see ggml.go. Needs AVX2 and F16C. AVX-512 has no faster way: the
// values take more time to store than to compute.
#include "common.h"
#include "ggml.h"

// put stores 32 values: code · scale, less or plus the least value. first is the scale of columns 0 to 15.
INLINE void put(int f, uint8_t *dst, __m256i codes, __m256 first, __m256 second, __m256 least) {
  UNROLL for (int i = 0; i < 4; i++) {
    const __m128i q = i < 2 ? _mm256_castsi256_si128(codes) : _mm256_extracti128_si256(codes, 1), at = i % 2 ? _mm_srli_si128(q, 8) : q;
    const __m256i c = has_signs(f) ? _mm256_cvtepi8_epi32(at) : _mm256_sub_epi32(_mm256_cvtepu8_epi32(at), _mm256_set1_epi32(zero_of(f)));
    __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(c), i < 2 ? first : second);
    if (f == Q4_1 || f == Q5_1) v = _mm256_add_ps(v, least);
    if (f == Q4_K || f == Q5_K) v = _mm256_sub_ps(v, least);
    if (f == Q2_K) v = _mm256_sub_ps(v, i < 2 ? _mm256_permute2f128_ps(least, least, 0) : _mm256_permute2f128_ps(least, least, 0x11));
    _mm256_storeu_ps((float *)dst + 8 * i, v);
  }
}

// lane is element i of v, everywhere.
INLINE __m256 lane(__m256 v, int i) { return _mm256_permutevar8x32_ps(v, _mm256_set1_epi32(i)); }

INLINE void unpack(int f, uint8_t *dst, const uint8_t *b, int64_t blocks, const uint8_t *points) {
  ROLLED for (; blocks > 0; blocks--) {
    if (f == NV4) {
      const __m256 s = scales4(b);
      UNROLL for (int g = 0; g < 2; g++) put(f, dst + 128 * g, codes_of(f, b, g, points), lane(s, 2 * g), lane(s, 2 * g + 1), s);
      dst += 256;
    } else if (parts(f) > 1) {
      const __m256 d = half_at(b);
      UNROLL for (int g = 0; g < parts(f); g++) put(f, dst + 128 * g, codes_of(f, b, g, points), d, d, d);
      dst += 128 * parts(f);
    } else if (!of256(f)) {
      const __m256 d = scale_of(f, b);
      put(f, dst, codes_of(f, b, 0, points), d, d, f == Q4_1 || f == Q5_1 ? least_of(b) : d);
      dst += 128;
    } else if (!by16(f)) {
      const struct pair p = scales32(f, b);
      UNROLL for (int g = 0; g < 8; g++) put(f, dst + 128 * g, codes_of(f, b, g, points), lane(p.scale, g), lane(p.scale, g), lane(p.least, g));
      dst += 1024;
    } else {
      const __m128i s = scales16(f, b);
      const __m256 d = scale16(f, b), low = _mm256_mul_ps(d, low8(s)), high = _mm256_mul_ps(d, high8(s));
      __m256 least[2] = {d, d};
      if (f == Q2_K) {
        const __m128i m = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128((const __m128i *)b), 4), _mm_set1_epi8(15));
        least[0] = _mm256_mul_ps(half_at(b + 82), low8(m)), least[1] = _mm256_mul_ps(half_at(b + 82), high8(m));
      }
      UNROLL for (int g = 0; g < 8; g++) {
        const __m256 own = g < 4 ? low : high, other = least[g / 4];
        __m256 m = other;
        if (f == Q2_K) m = _mm256_blend_ps(lane(other, g % 4 * 2), lane(other, g % 4 * 2 + 1), 0xf0);
        put(f, dst + 128 * g, codes_of(f, b, g, points), lane(own, g % 4 * 2), lane(own, g % 4 * 2 + 1), m);
      }
      dst += 1024;
    }
    b += size_of_block(f);
    OPAQUE(b), OPAQUE(dst);
  }
}

// points are those of formats that have some.
#define UNPACK(name, f) \
  KERNEL avx2Unpack##name(uint8_t *dst, const uint8_t *src, int64_t blocks, const uint8_t *points) { unpack(f, dst, src, blocks, points); }
UNPACK(Q41, Q4_1) UNPACK(Q50, Q5_0) UNPACK(Q51, Q5_1) UNPACK(IQ4NL, IQ4_NL) UNPACK(Q4K, Q4_K) UNPACK(Q5K, Q5_K)
UNPACK(IQ4XS, IQ4_XS) UNPACK(Q2K, Q2_K) UNPACK(Q3K, Q3_K) UNPACK(Q6K, Q6_K) UNPACK(MX4, MX4)
UNPACK(Q10, Q1_0) UNPACK(Q20, Q2_0) UNPACK(NV4, NV4) UNPACK(TQ10, TQ1_0) UNPACK(TQ20, TQ2_0)
UNPACK(IQ1S, IQ1_S) UNPACK(IQ1M, IQ1_M) UNPACK(IQ2XXS, IQ2_XXS) UNPACK(IQ2XS, IQ2_XS) UNPACK(IQ2S, IQ2_S) UNPACK(IQ3XXS, IQ3_XXS) UNPACK(IQ3S, IQ3_S)
