// Values of a format's table as the nearest numbers of a shorter format, eight at a time. Included after common.h.

enum { EXACT, TO_BF16, TO_F16 };

// rounded is v as the nearest number of a shorter format. A NaN stays one.
INLINE __m256 rounded(int to, __m256 v) {
  if (to == TO_F16) return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  if (to == EXACT) return v;
  const __m256i bits = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i near = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256 r = _mm256_castsi256_ps(_mm256_and_si256(near, _mm256_set1_epi32((int)0xffff0000)));
  return _mm256_blendv_ps(r, v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}
