// AVX-512 VNNI: products of rows of GGUF blocks with tokens of 8-bit blocks, see rows.go. Needs AVX-512 VNNI, BW,
// DQ and VL. Vectors have 256 bits, which have one unit more than those of 512, and the order of sums of AVX2.
#include "common.h"
#include "rows.h"

#define PREFIX(name, rows) avx512vnniRows##name##x##rows
#define MUL(name, f) MUL_ONE(name, f, 4) MUL_ONE(name, f, 1)
ALL_FORMATS
