// Tiles of up to 6 rows by 16 columns of a product of panels, for AVX2. Included after common.h.

// edge has the lanes below n.
INLINE __m256i edge(int64_t n) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)n), lanes);
}

// step adds the products of one k.
INLINE void step(int R, __m256 acc[6][2], const uint8_t *x, const uint8_t *b, int64_t bs) {
  const __m256 b0 = _mm256_loadu_ps((const float *)b), b1 = _mm256_loadu_ps((const float *)(b + bs));
  UNROLL for (int r = 0; r < R; r++) {
    const __m256 v = _mm256_broadcast_ss((const float *)x + r);
    acc[r][0] = _mm256_fmadd_ps(v, b0, acc[r][0]);
    acc[r][1] = _mm256_fmadd_ps(v, b1, acc[r][1]);
  }
}

// steps adds those of n, two a round: counting takes the ports that multiply. It returns b.
INLINE const uint8_t *steps(int R, __m256 acc[6][2], const uint8_t *x, const uint8_t *b, int64_t bs, int64_t n) {
  int64_t left = n;
  ROLLED for (; left > 1; left -= 2, OPAQUE(left)) {
    OPAQUE(x), OPAQUE(b);
    step(R, acc, x, b, bs);
    OPAQUE(x), OPAQUE(b);
    step(R, acc, x + 32, b + 32, bs);
    x += 64, b += 64;
  }
  if (left > 0) {
    OPAQUE(x), OPAQUE(b);
    step(R, acc, x, b, bs);
    b += 32;
  }
  return b - times(n, 32);
}
