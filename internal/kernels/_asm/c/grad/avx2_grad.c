// AVX2: gradients.
#define WIDTH 32
#define F(name) avx2##name
#include "grad.h"
