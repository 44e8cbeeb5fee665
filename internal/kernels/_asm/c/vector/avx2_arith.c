// AVX2: sums and scaled sums of vectors.
#define WIDTH 32
#define F(name) avx2##name
#include "arith.h"
