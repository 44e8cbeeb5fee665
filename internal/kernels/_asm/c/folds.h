// Sums of the lanes of vectors of eight, in one order for all kernels. Included after common.h.

// fold adds the lanes in halves.
INLINE __m128 fold4(__m256 v) { return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)); }

INLINE float fold(__m256 v) {
  __m128 q = fold4(v);
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

// folds is fold of four vectors at once, with the same additions.
INLINE __m128 folds(__m256 v0, __m256 v1, __m256 v2, __m256 v3) {
  __m128 a = fold4(v0), b = fold4(v1), c = fold4(v2), d = fold4(v3);
  __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
  __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
  return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}
