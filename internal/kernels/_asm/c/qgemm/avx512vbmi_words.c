// AVX-512 VBMI: as avx512vbmi_rows.c, with more points.
#include "common.h"
#include "rows.h"

#define PREFIX(name, rows) avx512vbmiRows##name##x##rows
POINTS(IQ2XS, IQ2_XS) POINTS(IQ2S, IQ2_S)
