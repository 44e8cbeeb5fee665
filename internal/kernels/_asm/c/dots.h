// Dot products of rows of codes whose scales are apart, with the bits of unpacked rows: see dots.go. Included after what a
// variant has: vectors of LANES floats, and how it widens codes of a kind (codekinds.h).

// What does not fit in registers; see dotShape in dots_amd64.go. Strides and distances are in bytes.
typedef struct {
  int64_t ws, ss, xs, columns, n, rows, zeros, high, round;
  // Room of the kernels.
  int64_t behind;
  const uint8_t *first;
  uint8_t *out;
} shape;

#define DOT_ARGS uint8_t *sums, const uint8_t *w, const uint8_t *x, const uint8_t *scales, const uint8_t *table, shape *s
// NTH is row or token i: most distances are computed where they are used, since registers are few.
#define NTH(p, each, i) ((p) + ((i) % 4 == 3 ? each##3 : (i) % 4 * each))

// SECOND is the distance of the scales of both halves of 32 columns with BYTES, 0 or 1: the number behind the scales of bytes.
#define SECOND (*(const int64_t *)(table + 64 + 1024))

// dot adds the products of s->n columns, a multiple of 32, of R rows at a time to the lanes of T tokens. sums has those of a row
// one token after another.
INLINE void dot(int kind, int R, int T, DOT_ARGS) {
  enum { PIECE = 512 };
  const constants k = constants_of(kind, table, s->high);
  const int ahead = T == 1 ? 1024 : kind >= INT8 ? PIECE : PIECE / 2, bytes = kind >= INT8 ? 32 : 16;
  ROLLED for (; s->rows >= R; s->rows -= R) {
    vector acc[4][8];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int t = 0; t < T; t++) acc[r][t] = load(sums + 4 * LANES * (r * T + t));
    s->first = scales, s->out = sums;
    OPAQUE(s);
    const int64_t ws = s->ws, ws3 = R > 3 ? times(ws, 3) : 0;
    int64_t n = s->n;
    ROLLED do {
      OPAQUE(s);
      int64_t left = s->columns;
      if (left > n) left = n;
      n -= left;
      s->behind = n;
      group g[4];
      if (kind != BYTES) {
        const uint8_t *by = scales, *zeros = scales + s->zeros;
        UNROLL for (int r = 0; r < R; r++) {
          g[r] = group_of(kind, by, zeros, table, s->round);
          PIN(g[r].a), PIN(g[r].b);
          by += s->ss, zeros += s->ss;
          OPAQUE(by), OPAQUE(zeros);
        }
        scales += 4;
      }
      const int64_t xs = s->xs, xs3 = T > 3 ? times(xs, 3) : 0, ss = s->ss, ss3 = kind == BYTES && R > 3 ? times(ss, 3) : 0;
      ROLLED for (; left > 0; OPAQUE(left)) {
        OPAQUE(w), OPAQUE(x), OPAQUE(scales);
        const uint8_t *upper = x + 4 * xs;
        chunk c[4];
        UNROLL for (int r = 0; r < R; r++) {
          _mm_prefetch(NTH(w, ws, r) + ahead, _MM_HINT_T0);
          c[r] = chunk_of(kind, NTH(w, ws, r), &k);
        }
        UNROLL for (int i = 0; i < 32 / LANES; i++) {
          if (kind == BYTES && i * LANES == 16) scales += SECOND;
          OPAQUE(w), OPAQUE(x), OPAQUE(scales);
          if (T > 4) OPAQUE(upper);
          vector v[4];
          UNROLL for (int r = 0; r < R; r++) {
            if (kind == BYTES && i * LANES % 16 == 0) g[r] = group_of_byte(NTH(scales, ss, r), table, &k);
            v[r] = widen(kind, c[r], NTH(w, ws, r), i, &g[r], &k);
            if (LANES == 8) PIN(v[r]); // or more is read at once than registers hold
          }
          UNROLL for (int t = 0; t < T; t++) {
            const vector a = load(NTH(t < 4 ? x : upper, xs, t) + 4 * LANES * i);
            UNROLL for (int r = 0; r < R; r++) acc[r][t] = fmadd(v[r], a, acc[r][t]);
          }
          AFTER(w, acc[0][0]);
        }
        if (kind == BYTES) scales++;
        w += bytes, x += 128, left -= 32;
      }
      OPAQUE(s);
      n = s->behind;
    } while (n > 0);
    sums = s->out, scales = s->first + R * s->ss;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int t = 0; t < T; t++) store(sums + 4 * LANES * (r * T + t), acc[r][t]);
    n = s->n;
    sums += 4 * LANES * R * T, x -= 4 * n, w += R * s->ws - (kind >= INT8 ? n : n / 2);
    OPAQUE(s);
  }
}

#define DOTS(R, T) \
  KERNEL NAME(Table##R##x##T)(DOT_ARGS) { dot(TABLE, R, T, sums, w, x, scales, table, s); } \
  KERNEL NAME(Bytes##R##x##T)(DOT_ARGS) { dot(BYTES, R, T, sums, w, x, scales, table, s); } \
  KERNEL NAME(Int8##R##x##T)(DOT_ARGS) { dot(INT8, R, T, sums, w, x, scales, table, s); } \
  KERNEL NAME(Scaled##R##x##T)(DOT_ARGS) { dot(SCALED, R, T, sums, w, x, scales, table, s); } \
  KERNEL NAME(UInt8##R##x##T)(DOT_ARGS) { dot(UINT8, R, T, sums, w, x, scales, table, s); }

// Fold sets y[t][r] to the sum of the lanes of row r and token t. ys is in bytes.
KERNEL NAME(Fold)(uint8_t *y, int64_t ys, const uint8_t *sums, int64_t rows, int64_t tokens) {
  ROLLED for (; rows > 0; rows--) {
    uint8_t *to = y;
    ROLLED for (int64_t t = tokens; t > 0; t--) {
      *(float *)to = fold(load(sums));
      sums += 4 * LANES, to += ys;
    }
    y += 4;
  }
}
