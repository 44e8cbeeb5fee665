// Groups of coded bfloat16 weights in vectors of 512 bits; package coded describes them. Included after wide.h.
enum { GROUP = 192, CODES = 128, MARK = 0xff, OFFSET = 132, MASKS = 16, TABLE = 32 };

// A group is 128 words in order.
struct group { __m512i v[4]; };

INLINE __m512i table_at(const uint8_t *p) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p)); }

// words restores 64 words of low and high bytes.
INLINE void words(__m512i *to, __m512i low, __m512i high) {
  to[0] = _mm512_unpacklo_epi8(low, high);
  to[1] = _mm512_unpackhi_epi8(low, high);
}

// decode_group restores the group at p. first is the first half of the row's table, second the address of the other.
INLINE struct group decode_group(const uint8_t *p, __m512i first, const uint8_t *second, const uint8_t *exceptions) {
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512i codes = _mm512_loadu_si512(p + CODES), high0, high1;
  if (__builtin_expect(p[CODES] != MARK, 1)) {
    high0 = _mm512_shuffle_epi8(first, _mm512_and_si512(codes, nibble));
    high1 = _mm512_shuffle_epi8(first, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
  } else {
    const uint32_t offset = *(const uint32_t *)(p + OFFSET);
    const uint8_t *record = exceptions + (offset & 0x7fffffff);
    if (offset >> 31) {
      high0 = _mm512_loadu_si512(record), high1 = _mm512_loadu_si512(record + 64);
    } else {
      codes = _mm512_mask_loadu_epi64(codes, 1, record + MASKS);
      const __m512i t = table_at(second), c0 = _mm512_and_si512(codes, nibble), c1 = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
      high0 = _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(first, c0), *(const uint64_t *)record, t, c0);
      high1 = _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(first, c1), *(const uint64_t *)(record + 8), t, c1);
    }
  }
  struct group g;
  words(g.v, _mm512_loadu_si512(p), high0);
  words(g.v + 2, _mm512_loadu_si512(p + 64), high1);
  return g;
}
