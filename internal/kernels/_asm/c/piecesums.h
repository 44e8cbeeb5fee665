// Sums of rows with several tokens that lie in memory between the pieces of a row. Included after wide.h.

// fold_sums folds the sums of R rows with all tokens, apart bytes from row to row, and sets them to zero if that is wanted.
INLINE void fold_sums(int R, int zero, uint8_t *y, int64_t ys, uint8_t *sums, int64_t apart) {
  const int64_t apart3 = times(apart, R > 1 ? 3 : 0);
  uint8_t *end = sums + apart;
  ROLLED for (; sums != end; sums += 64, y += ys) {
    __m512 v[4];
    UNROLL for (int r = 0; r < R; r++) {
      uint8_t *at = sums + (r == 3 ? apart3 : r * apart);
      v[r] = _mm512_loadu_ps(at);
      if (zero) _mm512_storeu_ps(at, _mm512_setzero_ps());
    }
    if (R == 4) {
      _mm_storeu_ps((float *)y, folds(v[0], v[1], v[2], v[3]));
    } else {
      *(float *)y = fold(v[0]);
    }
  }
}

// fold_rows folds the sums of rows with tokens, both at least 1, into y[t][r], and sets them to zero if that is wanted.
INLINE void fold_rows(int zero, uint8_t *y, int64_t ys, uint8_t *sums, int64_t tokens, int64_t rows) {
  const int64_t apart = 64 * tokens;
  ROLLED for (; rows >= 4; rows -= 4) {
    fold_sums(4, zero, y, ys, sums, apart);
    y += 16, sums += 4 * apart;
  }
  ROLLED for (; rows > 0; rows--) {
    fold_sums(1, zero, y, ys, sums, apart);
    y += 4, sums += apart;
  }
}
