// What kernels with AVX-512 BF16 share.
#include "wide.h"

INLINE __m512bh pairs(__m512i v) { return (__m512bh)v; }

// aside is away in any of the 32 registers, of which sums may need the first 16, and again moves it back.
INLINE __m128i aside(int64_t v) {
  __m128i s = _mm_cvtsi64_si128(v);
  __asm__ volatile("" : "+v"(s));
  return s;
}

INLINE int64_t again(__m128i s) {
  __asm__ volatile("" : "+v"(s));
  return _mm_cvtsi128_si64(s);
}
