// AVX-512: sums and scaled sums of vectors.
#define WIDTH 64
#define F(name) avx512##name
#include "arith.h"
