// Exceptions of coded bfloat16 weights, whatever the width of the vectors; package coded describes them. Included after common.h.
enum { GROUP = 192, CODES = 128, MARK = 0xff, RAW = 129, OFFSETS = 132 };

// is_exception reports whether the group at p is one.
INLINE int is_exception(const uint8_t *p) { return __builtin_expect(p[CODES] == MARK, 0); }

// The loads below are volatile, or the compiler joins them and needs more registers.

// is_raw reports whether the record of the group at p has all its high bytes.
INLINE int is_raw(const uint8_t *p) { return *(const volatile uint8_t *)(p + RAW) != 0; }

// unit_of is the first unit of the record of the group at p.
INLINE const uint8_t *unit_of(const uint8_t *p) { return p + *(const volatile int32_t *)(p + OFFSETS); }
INLINE int64_t word_at(const uint8_t *p) { return *(const int64_t *)p; }
