// AVX-512: gradients.
#define WIDTH 64
#define F(name) avx512##name
#include "grad.h"
