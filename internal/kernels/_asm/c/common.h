// What the variants share. Every KERNEL becomes a Go function of the same name; it must
// not use the stack, which the generator checks. Strides are in bytes. f is the format
// of the weights: a constant everywhere, so that the branches on it vanish.
#include <immintrin.h>
#include <stdint.h>

#define KERNEL __attribute__((preserve_none)) void
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")
// OPAQUE keeps the compiler from holding one pointer in many registers.
#define OPAQUE(p) ({ __asm__ volatile("" : "+r"(p)); })
// AFTER makes the compiler read p after it has computed v.
#define AFTER(p, v) ({ __asm__ volatile("" : "+r"(p) : "v"(v)); })
#define ROLLED _Pragma("clang loop unroll(disable)")

// DISTANCE is how far ahead of their use weights are prefetched. The generator compiles each kernel twice: with
// the usual distance, and with NEAR, a quarter of it, which some processors prefer.
#ifdef NEAR
#define DISTANCE(usual) ((usual) / 4)
#else
#define DISTANCE(usual) (usual)
#endif

enum { BF16, F16, F32 };

INLINE int64_t size_of(int f) { return f == F32 ? 4 : 2; }

// times is a product that is computed here, not kept in a register over outer loops.
INLINE int64_t times(int64_t a, int n) {
  OPAQUE(a);
  return a * n;
}

// spill moves a value to a vector register, of which there are more, and reload moves it back.
INLINE __m128i spill(int64_t v) {
  __m128i s = _mm_cvtsi64_si128(v);
  __asm__ volatile("" : "+x"(s));
  return s;
}

INLINE int64_t reload(__m128i s) {
  __asm__ volatile("" : "+x"(s));
  return _mm_cvtsi128_si64(s);
}

// The polynomial of exp on |r| <= ln 2 / 2 and the reduction; see Exp in package vector.
#define LOG2E 1.44269504088896340736f
#define LN2_HI 0.693359375f
#define LN2_LO -2.12194440054690582767e-4f

// The exponential in double: limits of its operand, log2(e), ln 2 in two parts, and the coefficients of even and of odd
// powers, falling; see AccurateExp in package vector.
#define EXP64_LEAST -708
#define EXP64_MOST 709.7827
#define EXP64_LOG2E 1.4426950408889634
#define EXP64_HIGH 0.6931471803691238
#define EXP64_LOW 1.9082149292705877e-10
#define EXP64_EVEN 1. / 479001600, 1. / 3628800, 1. / 40320, 1. / 720, 1. / 24, 1. / 2, 1
#define EXP64_ODD 1. / 6227020800, 1. / 39916800, 1. / 362880, 1. / 5040, 1. / 120, 1. / 6, 1

#define MUL_ARGS const uint8_t *w, int64_t ws, const uint8_t *x, int64_t xs, uint8_t *y, int64_t ys, int64_t n, int64_t rows
#define MIX_ARGS uint8_t *y, int64_t ys, const uint8_t *p, int64_t ps, int64_t step, const uint8_t *v, int64_t vs, int64_t keys, int64_t cols

// erfc(x) = exp(-x*x) t P(t) with t = 1 / (1 + ERFC_T x), x >= 0: fitted at Chebyshev nodes
// to a relative error of 6e-8. The coefficients fall.
#define ERFC_T 0.45f
#define ERFC_P -4.029927211e-02f, 1.861777591e-01f, -2.929523738e-01f, 1.356195952e-01f, -1.899741632e-02f, 1.190550422e-01f, 1.753575899e-01f, 2.282712382e-01f, 2.538825603e-01f, 2.538853257e-01f
// tanh(x) = x + x^3 P(x^2) up to 0.4: the Taylor series, coefficients falling.
#define TANH_P 21844.f / 6081075, -1382.f / 155925, 62.f / 2835, -17.f / 315, 2.f / 15, -1.f / 3
