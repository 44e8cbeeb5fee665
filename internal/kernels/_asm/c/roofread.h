// Reads memory as fast as a processor can, in vectors of WIDTH bytes. Included by avx2_roof.c and
// avx512_roof.c.

typedef long long vector __attribute__((vector_size(WIDTH)));
typedef long long stored __attribute__((vector_size(WIDTH), aligned(1)));

// A block is 8 streams, which are read faster than fewer. APART is no power of two, so that the
// streams use different sets of the caches. Lines are prefetched AHEAD bytes early, across the ends
// of blocks.
enum { STREAMS = 8, APART = 24 << 10, AHEAD = DISTANCE(1024) };

// read_all reads n bytes, a multiple of 1024, and stores their exclusive or, 64 bytes, at out.
INLINE void read_all(const uint8_t *p, int64_t n, uint8_t *out) {
  vector a[STREAMS][64 / WIDTH] = {0};
#define STREAM(p, s) ((p) + ((s) == 7 ? apart7 : (s) == 6 ? 2 * apart3 : (s) == 5 ? apart5 : (s) == 3 ? apart3 : (s) * apart))
  ROLLED for (; n > 0; OPAQUE(n)) {
    int64_t apart = n < STREAMS * APART ? n / STREAMS : APART, apart3 = times(apart, 3);
    const int64_t apart5 = times(apart, 5), apart7 = times(apart, 7);
    const int64_t last = apart < AHEAD ? apart / 64 : AHEAD / 64;
    int64_t left = apart / 64 - last;
    const uint8_t *next = p + 64 * last;
    n -= 8 * apart;
    ROLLED for (int part = 0; part < 2; part++) {
      ROLLED for (; left > 0; left--, OPAQUE(left)) {
        OPAQUE(p), OPAQUE(next), OPAQUE(apart), OPAQUE(apart3);
        UNROLL for (int s = 0; s < STREAMS; s++) {
          _mm_prefetch(STREAM(next, s), _MM_HINT_T0);
          UNROLL for (int i = 0; i < 64 / WIDTH; i++) a[s][i] ^= *(const stored *)(STREAM(p, s) + i * WIDTH);
        }
        p += 64, next += 64;
      }
      left = last;
      next += apart7;
      OPAQUE(left);
    }
    p += apart7;
  }
  UNROLL for (int i = 0; i < 64 / WIDTH; i++) {
    vector sum = a[0][i];
    UNROLL for (int s = 1; s < STREAMS; s++) sum ^= a[s][i];
    *(stored *)(out + i * WIDTH) = sum;
  }
}

// read_as_one_stream is read_all as one stream.
INLINE void read_as_one_stream(const uint8_t *p, int64_t n, uint8_t *out) {
  vector a[4][64 / WIDTH] = {0};
  ROLLED for (; n > 0; n -= 256, OPAQUE(n)) {
    UNROLL for (int line = 0; line < 4; line++) {
      _mm_prefetch(p + AHEAD + 64 * line, _MM_HINT_T0);
      UNROLL for (int i = 0; i < 64 / WIDTH; i++) a[line][i] ^= *(const stored *)(p + 64 * line + i * WIDTH);
    }
    p += 256;
  }
  UNROLL for (int i = 0; i < 64 / WIDTH; i++) *(stored *)(out + i * WIDTH) = a[0][i] ^ a[1][i] ^ a[2][i] ^ a[3][i];
}
