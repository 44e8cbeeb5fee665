// Loops that the compiler turns into vectors, the same source for every variant. F names a function of
// the variant. c is the constants of a call. Loops of elements compute what the Go variant does, bit by
// bit; sums are added up in any order, in float64.
#include "common.h"

#define EACH(i, n) _Pragma("clang loop vectorize(assume_safety)") for (int64_t i = 0; i < (n); i++)
// EACH_ALONE is EACH for loops whose constants leave few registers.
#define EACH_ALONE(i, n) _Pragma("clang loop vectorize(assume_safety) interleave(disable)") for (int64_t i = 0; i < (n); i++)
#define ANY_ORDER _Pragma("clang fp reassociate(on)")
