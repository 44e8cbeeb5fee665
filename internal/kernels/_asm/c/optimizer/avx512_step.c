// AVX-512: steps of optimizers.
#define WIDTH 64
#define F(name) avx512##name
#include "optimizer.h"
