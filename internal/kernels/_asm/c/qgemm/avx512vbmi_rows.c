// AVX-512 VBMI: rows of GGUF blocks whose codes are numbers of points, which are looked up in registers. Needs AVX-512
// VNNI, VBMI, BW, DQ and VL. Its sums are those of avx512vnni_rows.c.
#include "common.h"
#include "rows.h"

#define PREFIX(name, rows) avx512vbmiRows##name##x##rows
POINTS(IQ2XXS, IQ2_XXS) POINTS(IQ3XXS, IQ3_XXS) POINTS(IQ3S, IQ3_S)
